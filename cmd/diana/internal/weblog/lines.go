// SPDX-License-Identifier: MIT

package weblog

import (
	"bufio"
	"compress/gzip"
	"io"
	"strings"
)

const (
	blockSize   = 64 << 10
	longestLine = 64 << 10 // more than the longest header of a request
)

// lines cuts a text into lines. They are parts of blocks, each of which is read by one call.
type lines struct {
	from   io.Reader
	rest   string // of the block, not yet returned
	buffer []byte
	long   bool // the current line is too long, and its beginning has been dropped
	ended  error
	read   int64 // bytes
}

// newLines returns the lines of a text, which may be compressed by gzip.
func newLines(r io.Reader) (*lines, error) {
	b := bufio.NewReaderSize(r, blockSize)
	l := &lines{from: b}
	if magic, err := b.Peek(2); err == nil && magic[0] == 0x1f && magic[1] == 0x8b {
		z, err := gzip.NewReader(b)
		if err != nil {
			return nil, err
		}
		l.from = z
	} else if err != nil && err != io.EOF {
		return nil, err
	}
	return l, nil
}

// next returns the next line, without its line end. long reports that the line was too long, and
// lacks its beginning. The error is io.EOF at the end.
func (l *lines) next() (line string, long bool, err error) {
	for {
		if end := strings.IndexByte(l.rest, '\n'); end >= 0 {
			line, l.rest = l.rest[:end], l.rest[end+1:]
			long, l.long = l.long, false
			return strings.TrimSuffix(line, "\r"), long, nil
		}
		if l.ended != nil {
			line, l.rest = l.rest, ""
			long, l.long = l.long, false
			if line == "" && !long {
				return "", false, l.ended
			}
			return strings.TrimSuffix(line, "\r"), long, nil
		}
		l.fill()
	}
}

// fill reads another block after the rest of the current one.
func (l *lines) fill() {
	if l.buffer == nil {
		l.buffer = make([]byte, longestLine+blockSize)
	}
	if len(l.rest) > longestLine {
		l.rest, l.long = "", true
	}
	n := copy(l.buffer, l.rest)
	m, err := l.from.Read(l.buffer[n : n+blockSize])
	l.read += int64(m)
	l.rest = string(l.buffer[:n+m])
	l.ended = err
}
