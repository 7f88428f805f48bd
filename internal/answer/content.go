// SPDX-License-Identifier: MIT

package answer

import "bytes"

// content counts the bytes of texts that a model has written, in JSON that arrives in pieces. It knows them by their
// keys, and counts them as they are written.
type content struct {
	n int64 // so far

	inText  bool // between quotes
	escaped bool // the last byte was a backslash
	counts  bool // the latest key is one of contentKeys
	long    bool // the present text is too long for a key
	keySize int
	key     [longestKey]byte // the present text
	size    int64            // of the present text
	ended   bool             // a text has ended, and it is a key if a colon follows
}

const longestKey = 17

// contentKeys are the keys of texts that are tokens of output, in all formats.
var contentKeys = [][]byte{
	[]byte("content"), []byte("text"), []byte("delta"), []byte("arguments"), []byte("refusal"), []byte("reasoning"),
	[]byte("reasoning_content"), []byte("thinking"), []byte("partial_json"), []byte("input"),
}

func (c *content) read(p []byte) {
	for len(p) > 0 {
		if c.inText {
			p = c.inside(p)
		} else {
			p = c.outside(p)
		}
	}
}

// total returns the bytes so far, with those of a text that has not ended.
func (c *content) total() int64 {
	if c.counts && (c.inText || c.ended) {
		return c.n + c.size
	}
	return c.n
}

// inside reads what is in a text, and returns what follows its last quote. A line ends each text, because no JSON text
// continues in the next.
func (c *content) inside(p []byte) []byte {
	for i, b := range p {
		switch {
		case c.escaped:
			c.escaped = false
		case b == '\\':
			c.escaped = true
		case b == '"', b == '\n':
			c.add(p[:i])
			c.inText, c.ended = false, b == '"'
			return p[i+1:]
		}
	}
	c.add(p)
	return nil
}

// outside reads what is between texts, and returns what follows the next quote.
func (c *content) outside(p []byte) []byte {
	for i, b := range p {
		switch b {
		case ' ', '\t', '\r':
			continue
		case ':':
			if c.ended {
				c.counts = c.isContent()
			}
		default:
			if c.ended && c.counts {
				c.n += c.size
			}
		}
		if c.ended = false; b == '"' {
			c.inText, c.escaped, c.long, c.keySize, c.size = true, false, false, 0, 0
			return p[i+1:]
		}
	}
	return nil
}

func (c *content) add(p []byte) {
	c.size += int64(len(p))
	if c.keySize += copy(c.key[min(c.keySize, longestKey):], p); c.size > longestKey {
		c.long = true
	}
}

func (c *content) isContent() bool {
	if c.long {
		return false
	}
	for _, key := range contentKeys {
		if bytes.Equal(c.key[:c.keySize], key) {
			return true
		}
	}
	return false
}
