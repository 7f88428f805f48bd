// SPDX-License-Identifier: MIT

package weblog

import (
	"strings"

	"github.com/diana-limiter/diana/internal/httptext"
)

// kind is the kind of a line.
type kind int

const (
	request kind = iota
	other        // it has no request, or one that the server could not read
	broken
)

// parser reads lines. It remembers what neighbouring lines have in common.
type parser struct {
	names  *Names
	when   clock
	fields fields
}

// parse reads a line into e. why says what is wrong with a broken line.
func (p *parser) parse(line string, e *Entry) (k kind, why string) {
	clear(e.Headers)
	*e = Entry{Response: Response{Duration: Unknown, Bytes: Unknown, Cost: Unknown, StatusAfter: Unknown}, Headers: e.Headers, File: e.File, Line: e.Line, read: e.read}
	line = strings.TrimLeft(line, " \t")
	switch {
	case line == "":
		return other, ""
	case line[0] == '{':
		return p.fieldsOf(readJSON, line, e)
	case isKeyValue(line):
		return p.fieldsOf(readKeyValue, line, e)
	}
	return readCombined(line, p.names, &p.when, e)
}

// fieldsOf reads a line of keys and values into e. read reads them from the line.
func (p *parser) fieldsOf(read func(string, *fields) (kind, string), line string, e *Entry) (kind, string) {
	p.fields.reset(p.names, e.Headers)
	if k, why := read(line, &p.fields); k != request {
		return k, why
	}
	return p.fields.entry(&p.when, e)
}

// requestLine reads the first line of a request. If it is not valid, the server that logged it
// answered by itself.
func (e *Entry) requestLine(text string) kind {
	method, rest, _ := strings.Cut(text, " ")
	target, version, _ := strings.Cut(rest, " ")
	if !httptext.IsToken(method) || target == "" || !strings.HasPrefix(version, "HTTP/") || strings.Contains(version, " ") {
		return other
	}
	e.Method, e.Target = method, target
	return request
}
