// SPDX-License-Identifier: MIT

// Package paths reads the path of a request in all the ways that servers read it, and refuses
// paths that no honest client sends.
package paths

import "github.com/diana-limiter/diana/rule"

// Servers read one path in different ways. A client can bypass a limiter that reads a path in
// another way than the server behind it. So Diana refuses paths that no honest client sends, and
// evaluates every reading of the other paths.
//
// Diana refuses, with a [rule.PathError]:
//
//   - a control byte (00 to 1F, 7F), plain or percent-encoded;
//   - malformed percent-encoding;
//   - a dot segment that is not written as plain "." or ".." between plain slashes;
//   - ".." above the root;
//   - more than MaxSegments segments, or more than MaxLength bytes;
//   - a path that does not begin with a slash.
//
// The readings of the other paths differ in these points:
//
//   - parameters (";v=1") are kept or dropped;
//   - an encoded slash (%2F), a backslash and an encoded backslash (%5C) divide a segment or not;
//   - text that is still percent-encoded after one decoding is decoded again or not;
//   - an empty segment counts or not, and the text after two slashes at the front is a host or not;
//   - dots and spaces at the end of a segment are kept or dropped;
//   - ASCII letters match in either case or not, see [rule.Paths].
//
// Since dot segments are plain, a reading either keeps them as ordinary segments, as routers of
// frameworks do, or resolves them: ".." removes the segment before it. The result depends on the
// server only if that segment has several readings.
//
// There are too many readings to enumerate. Instead a Spelling takes the path apart once. Package
// plan then walks its tree of URLs with the set of all nodes that some reading reaches. So each
// segment can be read in its own way, which covers a chain of servers that differ.
//
// Rejected: a setting that chooses one reading. It is wrong as soon as one gateway has two
// servers behind it, and nobody notices. Also rejected: evaluating the paths that Diana refuses now. That
// took 144 readings and 7 to 17 ms for a path of 8,000 bytes, and some spellings still escaped.

// MaxLength is the longest accepted path, in bytes as the client sent it. It is the default of
// nginx and Apache too.
const MaxLength = 8 << 10

// MaxSegments is the largest accepted number of segments in a path.
const MaxSegments = 256

// The reasons to refuse a path.
var (
	ErrLong     = &rule.PathError{Reason: "the path is longer than 8192 bytes", TooLong: true}
	ErrControl  = &rule.PathError{Reason: "the path has a control character"}
	ErrEscape   = &rule.PathError{Reason: "the path has a % that is not followed by two hexadecimal digits"}
	ErrDots     = &rule.PathError{Reason: "the path has a dot segment that is not written as plain . or .. between slashes"}
	ErrClimbs   = &rule.PathError{Reason: "the path has .. above the root"}
	ErrSegments = &rule.PathError{Reason: "the path has more than 256 segments"}
	ErrRelative = &rule.PathError{Reason: "the path does not begin with a slash"}
)

// Check returns the reason why Diana refuses an escaped path by default, or nil. It refuses an
// empty path and "*", which stand for "/" in a request.
func Check(path string) *rule.PathError {
	if IsPlain(path, false) {
		return nil
	}
	var s Spelling
	return s.Read(path, false, false)
}

// strange has the bytes that a plain path cannot contain.
var strange = func() (strange [256]bool) {
	for c := range strange {
		strange[c] = c == ' ' || c != '/' && kinds[c] != 0
	}
	return strange
}()

// IsPlain reports whether a path has only one reading and is written exactly so. With fold, a path
// with a capital letter is not plain.
func IsPlain(path string, fold bool) bool {
	if path == "" || path[0] != '/' || len(path) > MaxLength {
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
