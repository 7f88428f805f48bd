// SPDX-License-Identifier: MIT

package weblog

import (
	"encoding/json"
	"strings"
)

// readJSON reads a line that is an object.
func readJSON(line string, into *fields) (kind, string) {
	s := scanner{text: line}
	if !s.object(into, 0, false) {
		return broken, "not JSON"
	}
	if s.space(); s.at < len(s.text) {
		return broken, "not JSON: there is text after the object"
	}
	return request, ""
}

// deepest is how deeply nested objects are read.
const deepest = 3

// inside reports whether an object of that name is read, and whether it contains headers.
func inside(key string) (headers, ok bool) {
	switch key {
	case "request", "req", "http":
		return false, true
	case "headers", "request_headers", "req_headers":
		return true, true
	}
	return false, false
}

// scanner reads the needed parts of JSON. It does not check all of what it skips.
type scanner struct {
	text string
	at   int
}

// object reads an object, and the nested objects that describe the request.
func (s *scanner) object(into *fields, depth int, headers bool) bool {
	s.at++ // {
	if s.space(); s.skip('}') {
		return true
	}
	for {
		s.space()
		name, ok := s.string()
		if !ok {
			return false
		}
		if s.space(); !s.skip(':') {
			return false
		}
		s.space()
		key := into.normal(name)
		if s.peek() == '{' && depth < deepest {
			within, of := inside(string(key))
			if of {
				if !s.object(into, depth+1, within) {
					return false
				}
			} else if !s.other() {
				return false
			}
		} else {
			value, ok := s.value()
			if !ok {
				return false
			}
			into.put(key, value, headers)
		}
		switch s.space(); {
		case s.skip('}'):
			return true
		case !s.skip(','):
			return false
		}
	}
}

// peek returns the next byte, or 0.
func (s *scanner) peek() byte {
	if s.at < len(s.text) {
		return s.text[s.at]
	}
	return 0
}

func (s *scanner) skip(c byte) bool {
	if s.peek() != c {
		return false
	}
	s.at++
	return true
}

func (s *scanner) space() {
	for s.at < len(s.text) && (s.text[s.at] == ' ' || s.text[s.at] == '\t' || s.text[s.at] == '\r') {
		s.at++
	}
}

// string reads a string. It allocates memory only for a string with escapes.
func (s *scanner) string() (string, bool) {
	if s.peek() != '"' {
		return "", false
	}
	begin := s.at + 1
	escaped := false
	for i := begin; i < len(s.text); i++ {
		switch s.text[i] {
		case '\\':
			escaped = true
			i++
		case '"':
			s.at = i + 1
			if !escaped {
				return s.text[begin:i], true
			}
			var plain string
			err := json.Unmarshal([]byte(s.text[begin-1:i+1]), &plain)
			return plain, err == nil
		}
	}
	return "", false
}

// value reads a value and returns the text of a string or a number, or the first string of an
// array. It returns "" for other values.
func (s *scanner) value() (string, bool) {
	switch c := s.peek(); {
	case c == '"':
		return s.string()
	case c == '[':
		begin := *s
		begin.at++
		begin.space()
		first, ok := begin.string()
		if !ok {
			first = ""
		}
		return first, s.other()
	case c == '-' || '0' <= c && c <= '9':
		return s.number(), true
	}
	return "", s.other()
}

// other skips a value of any kind.
func (s *scanner) other() bool {
	open := 0
	for s.at < len(s.text) {
		switch c := s.text[s.at]; c {
		case '{', '[':
			open++
			s.at++
		case '}', ']':
			if open--; open < 0 {
				return false
			}
			s.at++
		case '"':
			if _, ok := s.string(); !ok {
				return false
			}
		default:
			if open == 0 {
				return s.word()
			}
			s.at++
		}
		if open == 0 {
			return true
		}
	}
	return false
}

// word reads true, false, null or a number.
func (s *scanner) word() bool {
	for _, w := range []string{"true", "false", "null"} {
		if strings.HasPrefix(s.text[s.at:], w) {
			s.at += len(w)
			return true
		}
	}
	return s.number() != ""
}

func (s *scanner) number() string {
	begin := s.at
	for s.at < len(s.text) && strings.IndexByte("+-.eE0123456789", s.text[s.at]) >= 0 {
		s.at++
	}
	return s.text[begin:s.at]
}
