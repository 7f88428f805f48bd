// SPDX-License-Identifier: MIT

package paths

import (
	"bytes"
	"slices"
	"strings"

	"github.com/diana-limiter/diana/internal/httptext"
	"github.com/diana-limiter/diana/rule"
)

// Spelling is a path in parts, with everything in which its readings differ. Read reuses its memory.
// The zero value is ready to use.
type Spelling struct {
	text     []byte // of all elements, one after another
	Elements []Element
	Literal  []Element // with dot segments as ordinary segments; nil for a path without them

	least    int  // segments of the reading with the fewest, not counting a host
	solid    int  // elements that do not vanish
	hosted   bool // some reading takes an element for a host
	segments int  // of the reading with the most, before dot segments are resolved

	literal []Element // memory for Literal
}

// Element is the part of a path between two slashes. Its text is percent-decoded once. If decoding
// it again changes the text, the element has that second text too.
type Element struct {
	start, end, deep int // in Spelling.text; the second text lies between end and deep

	// Up marks a ".." behind an element with several readings. Nobody knows how many segments of
	// that element remain. Every other ".." is resolved.
	Up bool

	Simple   bool // one segment in every reading
	Vanishes bool // no segment in a reading that drops empty segments
	host     bool // a slash and a host in some reading
	counts   bool // whether Spelling.least includes it
}

// Empty reports whether an element is an empty segment.
func (e *Element) Empty() bool { return e.start == e.deep }

// Texts returns the text of an element after one decoding, and its text after all decodings if
// that is different.
func (s *Spelling) Texts(e *Element) (once, again []byte) {
	return s.text[e.start:e.end], s.text[e.end:e.deep]
}

// The kinds of bytes that give an element several readings.
const (
	control = 1 << iota
	divider // a slash or a backslash
	semicolon
	percent
)

var kinds = func() (kinds [256]uint8) {
	for c := range ' ' {
		kinds[c] = control
	}
	kinds[0x7F], kinds['/'], kinds['\\'], kinds[';'], kinds['%'] = control, divider, divider, semicolon, percent
	return kinds
}()

// letters has every byte as a spelling keeps it: unchanged, or with ASCII letters in lower case.
type letters [256]byte

var unfolded, folded = func() (unfolded, folded letters) {
	for c := range unfolded {
		unfolded[c], folded[c] = byte(c), byte(c)
	}
	Lower(folded[:])
	return unfolded, folded
}()

// Read takes a path apart. With fold it turns ASCII letters into lower case. With slashes it takes a
// plain backslash for a slash. The error is the reason to refuse the path.
func (s *Spelling) Read(path string, fold, slashes bool) *rule.PathError {
	switch {
	case len(path) > MaxLength:
		return ErrLong
	case path == "" || path[0] != '/': // such as "http://host/admin"
		return ErrRelative
	}
	*s = Spelling{text: s.text[:0], Elements: s.Elements[:0], literal: s.literal[:0]}
	kept := &unfolded
	if fold {
		kept = &folded
	}
	rest, more := path[1:], true
	for more {
		var raw string
		if slashes {
			raw, rest, more = cutAnySlash(rest)
		} else {
			raw, rest, more = strings.Cut(rest, "/")
		}
		if raw == "" && !more {
			break // a trailing slash changes nothing
		}
		var err *rule.PathError
		if raw == "." || raw == ".." {
			s.addLiteral(raw)
			err = s.resolve(raw)
		} else {
			err = s.add(raw, kept)
		}
		if err != nil {
			return err
		}
		if s.segments > MaxSegments {
			return ErrSegments
		}
	}
	return nil
}

// addLiteral adds a plain dot segment to Literal. Up to the first one, Literal is the same as Elements.
func (s *Spelling) addLiteral(raw string) {
	if s.Literal == nil {
		s.Literal = append(s.literal, s.Elements...)
	}
	start := len(s.text)
	s.text = append(s.text, raw...)
	s.Literal = append(s.Literal, Element{start: start, end: len(s.text), deep: len(s.text), Simple: true})
	s.literal = s.Literal[:0]
}

// keep adds an element that is not a plain dot segment.
func (s *Spelling) keep(e Element) {
	s.Elements = append(s.Elements, e)
	if s.Literal != nil {
		s.Literal = append(s.Literal, e)
		s.literal = s.Literal[:0]
	}
}

// resolve resolves a plain dot segment, or adds an Up if the element before it has several readings.
func (s *Spelling) resolve(raw string) *rule.PathError {
	s.segments++
	if raw == "." {
		return nil
	}
	if s.least--; s.least < 0 {
		return ErrClimbs
	}
	n := len(s.Elements)
	if n > 0 && s.Elements[n-1].Simple && s.Elements[n-1].counts {
		s.Elements = s.Elements[:n-1]
		s.solid--
	} else {
		s.Elements = append(s.Elements, Element{Up: true})
		s.solid++
	}
	return nil
}

// add adds an element that is not a plain dot segment.
func (s *Spelling) add(raw string, kept *letters) *rule.PathError {
	if raw == "" {
		n := len(s.text)
		s.keep(Element{start: n, end: n, deep: n, Vanishes: true})
		s.segments++
		return nil
	}
	e := Element{start: len(s.text)}
	text, kind := slices.Grow(s.text, len(raw)), uint8(0)
	for i := 0; i < len(raw); i++ {
		c := raw[i]
		if c == '%' {
			ok := i+2 < len(raw)
			if ok {
				c, ok = httptext.Escaped(raw[i+1], raw[i+2])
			}
			if !ok {
				return ErrEscape
			}
			i += 2
		}
		c = kept[c]
		kind |= kinds[c]
		text = append(text, c)
	}
	e.end = len(text)
	if kind&percent != 0 {
		text = decodedAgain(text, e.start, kept)
	}
	s.text, e.deep = text, len(text)

	segments := 1
	last := text[e.end-1]
	if kind&^percent == 0 && e.deep == e.end && last != ' ' && last != '.' {
		e.Simple = true
	} else {
		var err *rule.PathError
		segments, err = e.read(text[e.start:e.end])
		if err == nil && e.deep > e.end {
			var again int
			again, err = e.read(text[e.end:])
			segments = max(segments, again)
		}
		if err != nil {
			return err
		}
	}
	s.segments += segments
	if !e.Vanishes {
		if front := s.solid == 0 && !s.hosted; front && (e.host || len(s.Elements) > 0) {
			s.hosted = true // because of the slashes in it, or of those before it
		} else {
			e.counts = true
			s.least++
		}
		s.solid++
	}
	s.keep(e)
	return nil
}

// read notes the readings of a text of an element that is not simple. It returns the largest number
// of segments in a reading.
func (e *Element) read(text []byte) (segments int, err *rule.PathError) {
	solid, slash := 0, false
	for from, more := 0, true; more; segments++ {
		end, kind := from, uint8(0)
		name := -1 // where the name ends, if that is not the end of the segment
		for ; end < len(text); end++ {
			k := kinds[text[end]]
			if k == 0 {
				continue
			}
			if k == divider {
				break
			}
			if k == semicolon && name < 0 {
				name = end
			}
			kind |= k
		}
		if more = end < len(text); name < 0 {
			name = end
		}
		switch {
		case kind&control != 0:
			return 0, ErrControl
		case dots(text[from:name]): // a segment with parameters is none as a whole
			return 0, ErrDots
		}
		if len(WithoutTail(text[from:name])) > 0 {
			solid++
		} else {
			slash = slash || solid == 0 && more
		}
		from = end + 1
	}
	e.Vanishes = e.Vanishes || solid == 0
	e.host = e.host || slash && solid == 1
	return segments, nil
}

// cutAnySlash cuts a path around the first plain slash or backslash.
func cutAnySlash(path string) (before, after string, found bool) {
	for i := range len(path) {
		if path[i] == '/' || path[i] == '\\' {
			return path[:i], path[i+1:], true
		}
	}
	return path, "", false
}

// CutDivided cuts a text around the first slash or backslash.
func CutDivided(text []byte) (before, after []byte, found bool) {
	for i, c := range text {
		if c == '/' || c == '\\' {
			return text[:i], text[i+1:], true
		}
	}
	return text, nil, false
}

// WithoutParameters returns a segment without the first semicolon and the text after it.
func WithoutParameters(segment []byte) []byte {
	name, _, _ := bytes.Cut(segment, []byte{';'})
	return name
}

// WithoutTail returns a segment without the dots and spaces at its end. Windows drops them.
func WithoutTail(segment []byte) []byte {
	n := len(segment)
	for n > 0 && (segment[n-1] == '.' || segment[n-1] == ' ') {
		n--
	}
	return segment[:n]
}

// dots reports whether some server takes a segment for a dot segment: "." or "..", perhaps with
// spaces.
func dots(segment []byte) bool {
	n, spaces := 0, 0
	for _, c := range segment {
		switch c {
		case '.':
			n++
		case ' ':
			spaces++
		default:
			return false
		}
	}
	return n > 0 && (n <= 2 || spaces > 0)
}

// decodedAgain percent-decodes text[start:] until no escape is left, and appends the result to text.
// It appends nothing if the result is the same. Every escape shortens the result, so the cost is linear.
func decodedAgain(text []byte, start int, kept *letters) []byte {
	end := len(text)
	text = append(text, text[start:]...)
	again, n := text[end:], 0
	for _, c := range again {
		again[n] = c
		n++
		for n >= 3 && again[n-3] == '%' { // a decoded byte may complete another escape
			decoded, ok := httptext.Escaped(again[n-2], again[n-1])
			if !ok {
				break
			}
			n -= 2
			again[n-1] = kept[decoded]
		}
	}
	if n == len(again) {
		return text[:end]
	}
	return text[:end+n]
}

// Lower turns ASCII letters into lower case.
func Lower(text []byte) {
	for i, c := range text {
		if 'A' <= c && c <= 'Z' {
			text[i] = c + 'a' - 'A'
		}
	}
}
