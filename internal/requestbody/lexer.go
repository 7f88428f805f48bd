// SPDX-License-Identifier: MIT

package requestbody

import (
	"bytes"
	"encoding/json"
	"strings"
	"unicode/utf8"
)

// lexer reads values from a text that is known to be JSON, so it checks nothing. It passes over a string at the speed of
// bytes.IndexByte, because prompts are long, and read several times. json.Decoder takes forty times as long.
type lexer struct {
	text []byte
	at   int // of the next byte
}

// peek returns the first byte of the next token, or 0 at the end of the text.
func (x *lexer) peek() byte {
	for ; x.at < len(x.text); x.at++ {
		if c := x.text[x.at]; c != ' ' && c != '\n' && c != '\r' && c != '\t' {
			return c
		}
	}
	return 0
}

// more reports whether an array or an object that has begun has another value. Otherwise it moves behind its end.
func (x *lexer) more() bool {
	c := x.peek()
	if c == ',' {
		x.at++
		c = x.peek()
	}
	if c == '}' || c == ']' {
		x.at++
	}
	return c != '}' && c != ']' && c != 0
}

// key reads a key and the colon behind it.
func (x *lexer) key() string {
	key := x.string()
	x.peek()
	x.at++
	return key
}

// string reads a string.
func (x *lexer) string() (s string) {
	raw := x.value().in(x.text)
	if n := len(raw); n > 1 && raw[0] == '"' && bytes.IndexByte(raw, '\\') < 0 && utf8.Valid(raw) {
		return string(raw[1 : n-1])
	}
	_ = json.Unmarshal(raw, &s) // as servers read it
	return s
}

// value moves behind the next value, and returns where it is.
func (x *lexer) value() span {
	c, from, depth := x.peek(), x.at, 0
	if c != '"' && c != '{' && c != '[' {
		if n := bytes.IndexAny(x.text[from:], ",]} \n\r\t"); n >= 0 {
			x.at += n
		} else {
			x.at = len(x.text)
		}
		return span{from, x.at}
	}
	for x.at < len(x.text) {
		c := x.text[x.at]
		x.at++
		switch c {
		case '"':
			x.restOfString()
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		}
		if depth == 0 {
			break
		}
	}
	return span{from, x.at}
}

// restOfString moves behind the quote that ends a string.
func (x *lexer) restOfString() {
	for {
		n := bytes.IndexByte(x.text[x.at:], '"')
		if n < 0 {
			x.at = len(x.text)
			return
		}
		part := x.text[x.at : x.at+n]
		x.at += n + 1
		if escapes := len(part) - len(bytes.TrimRight(part, `\`)); escapes%2 == 0 {
			return
		}
	}
}

// span is a part of a text.
type span struct{ from, to int }

func (s span) in(text []byte) []byte { return text[s.from:s.to] }

// members returns where the values of an object are in a text, by their keys. at is added to each place. It
// returns nil if the value in the text is no object.
func members(document []byte, at int) map[string]span {
	x := lexer{text: document}
	if x.peek() != '{' {
		return nil
	}
	x.at++
	found := map[string]span{}
	for x.more() {
		key := x.key()
		v := x.value()
		found[key] = span{at + v.from, at + v.to}
	}
	return found
}

// begins reports whether a value can have a shape by its first byte, and by its text if it is a number.
func (x *lexer) begins(s shape) bool {
	c := x.peek()
	switch s := s.(type) {
	case object, kinds:
		return c == '{'
	case list:
		return c == '['
	case scalar:
		switch {
		case c == '"':
			return s == text
		case c == 't' || c == 'f':
			return s == truth
		case strings.IndexByte("-0123456789", c) >= 0:
			ahead := *x
			digits, negative, size := whole(string(ahead.value().in(x.text)))
			return s == number || s == count && !negative && size == ordinary && digits != "0"
		}
	}
	return false
}
