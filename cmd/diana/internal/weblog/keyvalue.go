// SPDX-License-Identifier: MIT

package weblog

import (
	"strconv"
	"strings"
)

// isKeyValue reports whether a line begins with a key and an equals sign.
func isKeyValue(line string) bool {
	for i := range len(line) {
		switch c := line[i]; {
		case c == '=':
			return i > 0
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '_', c == '-', c == '.':
		default:
			return false
		}
	}
	return false
}

// readKeyValue reads a line such as diana serve writes:
//
//	time=2006-01-02T15:04:05.678Z level=INFO msg=request method=GET path=/a status=200 ...
//
// A line with another msg is not a request.
func readKeyValue(line string, into *fields) (kind, string) {
	for line != "" {
		key, rest, ok := strings.Cut(line, "=")
		if !ok || strings.ContainsAny(key, " \"") {
			return broken, "expected key=value, separated by spaces"
		}
		var value string
		if strings.HasPrefix(rest, `"`) {
			q, err := strconv.QuotedPrefix(rest)
			if err != nil {
				return broken, `a value in quotes has no end, expected a "`
			}
			rest = rest[len(q):]
			if value, err = strconv.Unquote(q); err != nil {
				return broken, "a value in quotes cannot be read"
			}
			if rest != "" && rest[0] != ' ' {
				return broken, "expected a space after a value in quotes"
			}
		} else {
			value, rest, _ = strings.Cut(rest, " ")
		}
		into.put(into.normal(key), value, false)
		line = strings.TrimLeft(rest, " ")
	}
	if into.has(messageField) && into.values[messageField] != ownRequest {
		return other, ""
	}
	return request, ""
}
