// SPDX-License-Identifier: MIT

package weblog

import (
	"net/netip"
	"strconv"
	"strings"

	"github.com/diana-limiter/diana/internal/httptext"
)

// readCombined reads
//
//	203.0.113.7 - ann [10/Oct/2000:13:55:36 -0700] "GET /a?b HTTP/1.1" 200 2326 "REFERER" "AGENT"
//
// The last two fields may be missing, as in the common form. Text after them is ignored, except one
// more quoted field that lists addresses: X-Forwarded-For, as in the format of nginx' sample
// configuration.
func readCombined(line string, names *Names, when *clock, e *Entry) (kind, string) {
	space := strings.IndexByte(line, ' ')
	open := strings.Index(line, " [")
	if space < 0 || open < space {
		return broken, "not a line of an access log: expected the combined form, JSON or key=value"
	}
	e.Remote = line[:space]
	line = line[open+2:]
	end := strings.IndexByte(line, ']')
	if end < 0 {
		return broken, "the time has no end, expected ]"
	}
	var ok bool
	if e.Start, ok = when.common(line[:end]); !ok {
		return broken, "not a time, expected one such as 10/Oct/2000:13:55:36 -0700"
	}
	e.Whole = true
	text, escaped, rest, ok := quoted(line[end+1:])
	if !ok {
		return broken, `expected a request such as "GET / HTTP/1.1" after the time`
	}
	if len(rest) < 4 || rest[0] != ' ' {
		return broken, "expected a status after the request"
	}
	if e.Status, ok = digits(rest[1:4]); !ok || len(rest) > 4 && rest[4] != ' ' {
		return broken, "expected a status after the request"
	}
	size, _, _ := strings.Cut(strings.TrimPrefix(rest[4:], " "), " ")
	if n, ok := httptext.Whole(size); ok {
		e.Bytes = n
	}
	if names.referer >= 0 || names.agent >= 0 || names.forwards >= 0 {
		readQuotedHeaders(rest[4:], names, e)
	}
	if escaped {
		text = unescape(text)
	}
	return e.requestLine(text), ""
}

// readQuotedHeaders reads the text after the status: the size, and headers in quotes.
func readQuotedHeaders(rest string, names *Names, e *Entry) {
	at := strings.IndexByte(rest, '"')
	if at < 0 {
		return
	}
	rest = rest[at-1:]
	for i, header := range []int{names.referer, names.agent, names.forwards} {
		text, escaped, behind, ok := quoted(rest)
		if !ok {
			return
		}
		rest = behind
		if header < 0 || text == "-" || i == 2 && !addresses(text) {
			continue
		}
		if escaped {
			text = unescape(text)
		}
		e.Headers[header] = text
	}
}

// addresses reports whether the last of a list is an address.
func addresses(list string) bool {
	_, err := netip.ParseAddr(strings.TrimSpace(list[strings.LastIndexByte(list, ',')+1:]))
	return err == nil
}

// quoted reads a space and a text in quotes.
func quoted(s string) (text string, escaped bool, rest string, ok bool) {
	if len(s) < 2 || s[0] != ' ' || s[1] != '"' {
		return "", false, s, false
	}
	s = s[2:]
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '"':
			return s[:i], escaped, s[i+1:], true
		case '\\':
			escaped = true
			i++
		}
	}
	return "", false, s, false
}

// unescape undoes what nginx (\xHH) and Apache (also \" \\ \n and so on) do to a field.
func unescape(s string) string {
	b := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c != '\\' || i+1 == len(s) {
			b = append(b, c)
			continue
		}
		i++
		switch c = s[i]; c {
		case 'n':
			c = '\n'
		case 't':
			c = '\t'
		case 'r':
			c = '\r'
		case 'x':
			if i+2 < len(s) {
				if v, err := strconv.ParseUint(s[i+1:i+3], 16, 8); err == nil {
					c = byte(v)
					i += 2
				}
			}
		}
		b = append(b, c)
	}
	return string(b)
}
