// SPDX-License-Identifier: MIT

package rule

import (
	"bytes"
	"net/http"
	"strings"
)

// Servers read one path in different ways, and a client can walk around a limiter that reads a
// path in another way than the server behind it. So Find refuses what no honest client sends, and
// evaluates every reading of the rest.
//
// It refuses, with a [PathError]:
//
//   - a control byte (00 to 1F, 7F), also a percent-encoded one;
//   - malformed percent-encoding;
//   - a dot segment that is not written plainly, as "." or ".." between plain slashes;
//   - ".." above the root;
//   - more than MaxSegments segments, or more than MaxPath bytes;
//   - no slash at the front.
//
// The readings that are left differ in these:
//
//   - parameters (";v=1") are kept or dropped;
//   - an encoded slash (%2F), a backslash and an encoded backslash (%5C) divide a segment or not;
//   - what is still percent-encoded after it is decoded once is decoded again or not;
//   - an empty segment counts or not, and what follows two slashes at the front is a host or not;
//   - dots and spaces at the end of a segment are kept or dropped;
//   - letters of ASCII differ in case or not, see [Paths].
//
// As dot segments are plain, a reading either takes them for segments like others, as routers of
// frameworks do, or resolves them: ".." takes away the segment in front of it. Only where that
// segment has several readings does it depend on the server what is left.
//
// The readings are not made one after another, as there are too many. Find takes the path apart
// once, see spelling.go, and walks the tree of URLs with the set of all nodes to which some
// reading leads, see match.go. So each segment can be read in its own way, which covers a chain
// of servers that differ.
//
// Rejected: to choose one reading by a setting. It is wrong as soon as two servers stand behind
// one gateway, and nobody notices. Also rejected: to evaluate what is refused now, in 144
// readings, at 7 to 17 ms for a path of 8,000 bytes; some spellings escaped even so.

// MaxPath is the longest path that Find accepts, in bytes as it was sent. It is the default of
// nginx and Apache too.
const MaxPath = 8 << 10

// MaxSegments is the most segments of a path that Find accepts.
const MaxSegments = 256

// Paths are the settings of how paths are read. The zero value is the default.
type Paths struct {
	Strange Strange
	Case    Case
}

// Strange says what becomes of a request with a path that Find refuses by default. A path of more
// than MaxPath bytes is always refused.
type Strange int

// What becomes of it.
const (
	RefuseStrange Strange = iota // a PathError
	JudgeStrange                 // all entries of its method evaluate it
)

func (s Strange) String() string { return [...]string{"refuse", "judge"}[s] }

// Case says whether letters of a path differ in case.
type Case int

// The ways to compare letters.
const (
	FoldCase  Case = iota // ASCII letters do not differ in case
	ExactCase             // they do
)

func (c Case) String() string { return [...]string{"fold", "exact"}[c] }

// PathError is the reason why a path is refused.
type PathError struct{ reason string }

func (e *PathError) Error() string { return e.reason }

// Status returns the HTTP status of the answer to a request with the path: 400, or 414 for one
// that is too long.
func (e *PathError) Status() int {
	if e == ErrPathLong {
		return http.StatusRequestURITooLong
	}
	return http.StatusBadRequest
}

// The reasons why a path is refused.
var (
	ErrPathLong     = &PathError{"the path is longer than 8192 bytes"}
	errPathControl  = &PathError{"the path has a control character"}
	errPathEscape   = &PathError{"the path has a % that is not followed by two hexadecimal digits"}
	errPathDots     = &PathError{"the path has a dot segment that is not written as plain . or .. between slashes"}
	errPathClimbs   = &PathError{"the path has .. above the root"}
	errPathSegments = &PathError{"the path has more than 256 segments"}
	errPathRelative = &PathError{"the path does not begin with a slash"}
)

// CheckPath returns why Find refuses an escaped path by default, or nil. Find takes an empty path and
// "*" for "/", and CheckPath does not.
func CheckPath(path string) *PathError {
	if plain(path, false) {
		return nil
	}
	var s spelling
	return s.take(path, false, false)
}

// CleanPath returns the form of a path in which entries have it: percent-decoded once, without
// empty and dot segments, without a trailing slash. Letter case is kept. In a clean path "%" is
// written %25 and a slash within a segment %2F, so that cleaning it again changes nothing.
func CleanPath(path string) string {
	var b []byte
	for raw := range strings.SplitSeq(path, "/") {
		segment := unescaped(nil, raw)
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

// strange are the bytes that keep a path from being plain.
var strange = func() (strange [256]bool) {
	for c := range strange {
		strange[c] = c == ' ' || c != '/' && kinds[c] != 0
	}
	return strange
}()

// plain reports whether a path has one reading, in which it is written. With fold a letter
// that is not small keeps it from that.
func plain(path string, fold bool) bool {
	if path == "" || path[0] != '/' || len(path) > MaxPath {
		return false
	}
	segments, last := 0, byte(0)
	for i := range len(path) {
		c := path[i]
		if strange[c] || fold && 'A' <= c && c <= 'Z' {
			return false
		}
		if c == '/' {
			if last == '/' || last == '.' {
				return false
			}
			segments++
		}
		last = c
	}
	return last != '.' && segments <= MaxSegments
}

// unescaped appends a percent-decoded text to b. A % that begins no escape stays.
func unescaped(b []byte, text string) []byte {
	for i := 0; i < len(text); i++ {
		c := text[i]
		if c == '%' && i+2 < len(text) {
			if decoded, ok := escaped(text[i+1], text[i+2]); ok {
				c = decoded
				i += 2
			}
		}
		b = append(b, c)
	}
	return b
}

// escaped returns the byte that two hexadecimal digits stand for, and reports whether they are some.
func escaped(high, low byte) (c byte, ok bool) {
	h, l := hexDigit[high], hexDigit[low]
	return (h-1)<<4 | (l - 1), h > 0 && l > 0
}

// hexDigit has the value of each hexadecimal digit, and 1 more; 0 for what is none.
var hexDigit = func() (value [256]byte) {
	for i := range byte(16) {
		value["0123456789abcdef"[i]], value["0123456789ABCDEF"[i]] = i+1, i+1
	}
	return value
}()
