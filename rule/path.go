// SPDX-License-Identifier: MIT

package rule

import (
	"bytes"
	"strings"
)

// A path can be spelled in many ways, and a limiter that reads it differently from
// the server behind it can be walked around. So rules are matched on a clean path:
// percent-decoded once, without empty and dot segments, without a trailing slash.
// Letter case is kept. In a clean path a "%" is written %25 and a slash within a
// segment %2F, so cleaning it again changes nothing.
//
// Where servers differ, a path has several readings, and the rules of all of them
// judge the request:
//
//   - an encoded slash (%2F, also %5C and "\") may divide segments or be part of one;
//   - matrix parameters (";v=1") may belong to a segment or be dropped;
//   - what is still encoded after decoding once may be decoded again;
//   - a dot segment may take back an empty segment in front of it, or an empty one may
//     be no segment at all;
//   - matrix parameters may be dropped, and dot segments resolved, before anything is
//     decoded: what an encoded slash divides is then one segment, or all of it a parameter;
//   - what stands behind two slashes at the front may be a host, as in a URL.
//
// Rejected: choosing one reading by a setting. It is wrong as soon as two servers
// stand behind one gateway, and nobody notices.

// reading is one way to read a path.
type reading struct {
	split bool // encoded slashes divide
	strip bool // matrix parameters are dropped
	again bool // decode until nothing is left to decode
	empty bool // empty segments count when dot segments are resolved
	early bool // matrix parameters are dropped before decoding
}

// readings are all combinations, but for those without effect: it is where encoded slashes
// divide that it matters what is early. The first is the one that CleanPath returns.
var readings = func() (all []reading) {
	for i := range 32 {
		if r := (reading{i&1 > 0, i&2 > 0, i&4 > 0, i&8 > 0, i&16 > 0}); r.split || !r.early {
			all = append(all, r)
		}
	}
	return all
}()

// CleanPath returns the clean form of an escaped path. It is what rules are matched
// on when a path has one reading only.
func CleanPath(path string) string {
	return string(appendClean(nil, path, reading{}))
}

// plain reports whether path is clean as it is.
func plain(path string) bool {
	if path == "" || path[0] != '/' {
		return false
	}
	for i := range len(path) {
		switch path[i] {
		case '%', ';', '\\':
			return false
		case '/':
			if i == len(path)-1 {
				return i == 0
			}
			next := path[i+1:]
			if next[0] == '/' || next[0] == '.' && dots(next) {
				return false
			}
		}
	}
	return true
}

// dots reports whether s begins with a segment of one or two dots.
func dots(s string) bool {
	s, _, _ = strings.Cut(s, "/")
	return dotted(s, false) > 0
}

// resolved returns path without its dot segments, as what has not decoded it resolves them:
// those that are written as dots, or, with escaped, as %2e too.
func resolved(path string, escaped bool) string {
	var kept []string
	found := false
	rest := strings.TrimPrefix(path, "/")
	for segment := range strings.SplitSeq(rest, "/") {
		if dotted(segment, escaped) > 0 {
			found = true
			break
		}
	}
	if !found {
		return path
	}
	for segment := range strings.SplitSeq(rest, "/") {
		switch dotted(segment, escaped) {
		case 0:
			kept = append(kept, segment)
		case 2:
			kept = kept[:max(len(kept)-1, 0)]
		}
	}
	return "/" + strings.Join(kept, "/")
}

// dotted returns how many dots a segment is, if it is one or two and nothing else, else 0.
func dotted(segment string, escaped bool) (n int) {
	for segment != "" {
		switch {
		case n == 2:
			return 0
		case segment[0] == '.':
			segment = segment[1:]
		case escaped && len(segment) >= 3 && (segment[:3] == "%2e" || segment[:3] == "%2E"):
			segment = segment[3:]
		default:
			return 0
		}
		n++
	}
	return n
}

// appendClean appends path, as the reading r has it, to b.
func appendClean(b []byte, path string, r reading) []byte {
	start := len(b)
	path = strings.TrimPrefix(path, "/")
	for path != "" {
		var raw string
		raw, path, _ = strings.Cut(path, "/")
		b = r.appendSegment(b, start, raw)
	}
	if r.empty {
		b = withoutEmpty(b, start)
	}
	if len(b) == start {
		b = append(b, '/')
	}
	return b
}

// withoutEmpty removes the empty segments of the path that begins at start in b.
func withoutEmpty(b []byte, start int) []byte {
	end := start
	for i := start; i < len(b); i++ {
		if b[i] == '/' && (i+1 == len(b) || b[i+1] == '/') {
			continue
		}
		b[end] = b[i]
		end++
	}
	return b[:end]
}

// appendSegment appends what lies between two slashes of the path that begins at
// start in b: decoded, and perhaps more than one segment.
func (r reading) appendSegment(b []byte, start int, raw string) []byte {
	// Decode to behind the end of b, then move the parts into place. Parts only
	// get longer by the escapes, so they are taken from a copy.
	if r.early {
		raw, _, _ = strings.Cut(raw, ";")
	}
	var room [128]byte
	decoded := r.decode(room[:0], raw)
	for {
		part, rest, more := decoded, []byte(nil), false
		if r.split {
			if i := bytes.IndexAny(decoded, `/\`); i >= 0 {
				part, rest, more = decoded[:i], decoded[i+1:], true
			}
		}
		if r.strip {
			part, _, _ = bytes.Cut(part, []byte{';'})
		}
		switch string(part) {
		case "":
			if r.empty {
				b = append(b, '/')
			}
		case ".":
		case "..":
			b = b[:max(bytes.LastIndexByte(b[start:], '/'), 0)+start]
		default:
			b = appendEscaped(append(b, '/'), part)
		}
		if !more {
			return b
		}
		decoded = rest
	}
}

// decode appends raw to b, percent-decoded. An escape that is none stays as it is.
func (r reading) decode(b []byte, raw string) []byte {
	for i := 0; i < len(raw); i++ {
		if c, ok := unescape(raw[i:]); ok && !r.again {
			b = append(b, c)
			i += 2
			continue
		}
		b = append(b, raw[i])
		for r.again && len(b) >= 3 { // what this byte completes may complete another
			c, ok := unescape(string(b[len(b)-3:]))
			if !ok {
				break
			}
			b = append(b[:len(b)-3], c)
		}
	}
	return b
}

func unescape(s string) (byte, bool) {
	if len(s) < 3 || s[0] != '%' {
		return 0, false
	}
	hi, lo := unhex(s[1]), unhex(s[2])
	return byte(hi<<4 | lo), hi >= 0 && lo >= 0
}

func unhex(c byte) int {
	switch {
	case '0' <= c && c <= '9':
		return int(c - '0')
	case 'a' <= c && c <= 'f':
		return int(c-'a') + 10
	case 'A' <= c && c <= 'F':
		return int(c-'A') + 10
	}
	return -1
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
