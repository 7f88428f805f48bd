// SPDX-License-Identifier: MIT

// Package accesslog reads what web servers write of the requests they have answered.
//
// Three forms of lines are known, told apart line by line: the combined form of nginx and
// Apache (and the common one, which is its beginning), JSON objects, and key=value, which
// diana serve writes. Files may be compressed by gzip. Several files are merged by time.
//
// # Memory
//
// Text is read in blocks, and what an [Entry] holds are parts of a block; so a line costs no
// memory of its own. What is held back to be put in order is bounded, see order.
package accesslog

import (
	"net/http"
	"slices"
	"strings"
)

// Entry is a request as a log tells of it. It is valid until the next one is read.
type Entry struct {
	Start    int64 // when it came, in microseconds since the Unix epoch
	Duration int64 // how long it took, in microseconds; Unknown if that is not told
	Whole    bool  // the time is told in whole seconds

	Method string
	Target string // as it stands in the request line
	Query  string // of a Target that is told without; "" if not told
	Host   string // "" if not told
	Remote string // address that it came from; "" if not told
	Status int    // of the answer; 0 if not told

	// Account and Device are who diana serve has found; "" if it has found none, or another
	// program wrote the line.
	Account, Device string

	// Headers holds the request's header, by Names.Headers; "" where none is told.
	Headers []string

	Own        bool // diana serve wrote its line
	File, Line int  // File is the index in what was opened

	read int64 // bytes of text that had been read with it, all files together
}

// Unknown is the Duration of an Entry whose line does not tell it.
const Unknown = -1

// Names are the headers of requests that are looked for, in the spelling of
// http.CanonicalHeaderKey.
type Names struct {
	Headers []string

	byKey                    map[string]int // index in Headers, by key
	referer, agent, forwards int            // index in Headers; -1: not looked for
}

// NewNames returns the names for some headers.
func NewNames(headers []string) *Names {
	n := &Names{byKey: map[string]int{}}
	for _, h := range headers {
		if h = http.CanonicalHeaderKey(h); !slices.Contains(n.Headers, h) {
			n.byKey[strings.ToLower(strings.ReplaceAll(h, "-", "_"))] = len(n.Headers)
			n.Headers = append(n.Headers, h)
		}
	}
	n.referer = slices.Index(n.Headers, "Referer")
	n.agent = slices.Index(n.Headers, "User-Agent")
	n.forwards = slices.Index(n.Headers, "X-Forwarded-For")
	return n
}

// kind is what a line turns out to be.
type kind int

const (
	request kind = iota
	other        // it tells of no request that was understood by the server
	broken
)

// parser reads lines. It remembers what lines have in common.
type parser struct {
	names *Names
	when  clock
	found found
}

// parse reads a line into e. why tells what is wrong with a broken one.
func (p *parser) parse(line string, e *Entry) (k kind, why string) {
	clear(e.Headers)
	*e = Entry{Duration: Unknown, Headers: e.Headers, File: e.File, Line: e.Line, read: e.read}
	line = strings.TrimLeft(line, " \t")
	switch {
	case line == "":
		return other, ""
	case line[0] == '{':
		return p.json(line, e)
	case isKeyValue(line):
		return p.keyValue(line, e)
	}
	return p.combined(line, e)
}

// requestLine takes the first line of a request apart. What is none did not reach anyone
// behind the server that has logged it.
func (e *Entry) requestLine(text string) kind {
	method, rest, _ := strings.Cut(text, " ")
	target, version, _ := strings.Cut(rest, " ")
	if !isToken(method) || target == "" || !strings.HasPrefix(version, "HTTP/") || strings.Contains(version, " ") {
		return other
	}
	e.Method, e.Target = method, target
	return request
}

// isToken reports whether a method could be one.
func isToken(s string) bool {
	for i := range len(s) {
		if c := s[i]; c <= ' ' || c >= 0x7f || strings.IndexByte(`"(),/:;<=>?@[\]{}`, c) >= 0 {
			return false
		}
	}
	return s != ""
}
