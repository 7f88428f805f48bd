// SPDX-License-Identifier: MIT

package httptext

import (
	"bytes"
	"strings"
)

// CleanPath returns the clean form of a path: percent-decoded once, without empty segments, dot
// segments and a trailing slash. It keeps letter case. In a clean path "%" is written %25, and a
// slash within a segment %2F, so cleaning it again changes nothing.
func CleanPath(path string) string {
	if isClean(path) {
		return path
	}
	var b []byte
	for raw := range strings.SplitSeq(path, "/") {
		segment := Unescape(nil, raw)
		switch string(segment) {
		case "", ".":
		case "..":
			b = b[:max(bytes.LastIndexByte(b, '/'), 0)]
		default:
			b = appendEscaped(append(b, '/'), segment)
		}
	}
	if len(b) == 0 {
		return "/"
	}
	return string(b)
}

// isClean reports whether a path is certainly in its clean form. It does not decode, so it returns
// false for some clean paths.
func isClean(path string) bool {
	n := len(path)
	return n > 1 && path[0] == '/' && path[n-1] != '/' &&
		strings.IndexByte(path, '%') < 0 && !strings.Contains(path, "//") && !strings.Contains(path, "/.")
}

func appendEscaped(b, segment []byte) []byte {
	for _, c := range segment {
		switch c {
		case '%':
			b = append(b, "%25"...)
		case '/':
			b = append(b, "%2F"...)
		default:
			b = append(b, c)
		}
	}
	return b
}

// IsWild reports whether a segment of a rule's URL is {name}, which stands for any segment.
func IsWild(segment string) bool {
	n := len(segment)
	return n > 2 && segment[0] == '{' && segment[n-1] == '}' && !strings.ContainsAny(segment[1:n-1], "{}")
}
