// SPDX-License-Identifier: MIT

// Package jsonscan reads the values at some JSON pointers from a JSON document that arrives in
// pieces. Its memory depends on the pointers, and not on the document.
//
// Libraries for JSON need the whole document, or pull it from an io.Reader and keep whole strings.
// None accepts pieces in constant memory, so the package has a scanner of its own. It accepts
// exactly what encoding/json accepts, except for the depth.
package jsonscan

import (
	"bytes"
	"errors"
)

// MaxDepth is the number of arrays and objects inside each other that a Scanner checks. It is also
// what encoding/json accepts. Of deeper levels a Scanner only counts the brackets.
const MaxDepth = 10_000

// Mistakes of a document.
var (
	ErrSyntax    = errors.New("the text is not JSON")
	ErrTruncated = errors.New("the JSON text is not complete")
	ErrDepth     = errors.New("the JSON text has more than 10000 arrays and objects inside each other")
)

// Scanner reads one document at a time. It is not safe for concurrent use. Make one with New.
type Scanner struct {
	tree
	state state
	text  text
	word  string // rest of true, false or null
	at    int32  // node of the value that is read or comes next, or -1

	depth   int      // containers that are open
	objects []uint64 // a bit for each of them, up to MaxDepth: it is an object
	path    []place  // the outermost of them that are on the way to a pointer
	deep    bool     // the document is deeper than MaxDepth
	twice   bool
}

// place is an open container on the way to a pointer.
type place struct {
	node  int32
	index int64 // of the next element, if it is an array
}

// state is what a Scanner expects next.
type state uint8

const (
	value        state = iota
	valueOrClose       // after [
	keyOrClose         // after {
	key                // after a comma in an object
	colon
	commaOrClose
	inKey
	inString
	inDeepString
	keyEscape // an escape's state is that of its string and 3
	stringEscape
	deepEscape
	keyHex // the state of hexadecimal digits is that of the string and 6
	stringHex
	deepHex
	inWord
	minus // the states of a number are named after its last byte
	zero
	digit
	point
	fraction
	exponent
	sign
	power
	deepLevel // below MaxDepth, outside strings
	complete
	broken
)

// New returns a Scanner for the values at some pointers, which CheckPointer must accept. A value
// whose text has more than limit bytes is cut.
func New(limit int, pointers ...string) *Scanner { return newScanner(limit, newTree(pointers, false)) }

// NewFolding is like New, but keys match in any letter case. Many servers read JSON like this, such as
// those that use encoding/json. Then an object has a key twice also if the cases differ.
func NewFolding(limit int, pointers ...string) *Scanner {
	return newScanner(limit, newTree(pointers, true))
}

func newScanner(limit int, t tree) *Scanner {
	s := &Scanner{tree: t, objects: make([]uint64, 0, 2)}
	s.text.limit = limit
	s.path = make([]place, 0, s.levels)
	s.Reset()
	return s
}

// Reset forgets all values and begins a new document.
func (s *Scanner) Reset() {
	s.clear(0)
	s.state, s.at, s.depth, s.path = value, 0, 0, s.path[:0]
	s.deep, s.twice = false, false
}

// Value returns the value at a pointer, by the pointer's number in the call of New. If an object
// has a key twice, the last value counts. A value is known as soon as its text is complete, even if
// the document breaks later. Its bytes are valid until the next call of Write or Reset.
func (s *Scanner) Value(i int) Value { return s.nodes[s.asked[i]].value }

// Twice reports whether an object has a key twice that is on the way to a pointer.
func (s *Scanner) Twice() bool { return s.twice }

// Broken reports whether the document is not JSON.
func (s *Scanner) Broken() bool { return s.state == broken }

// ScanAll scans a whole document. The error is ErrSyntax, ErrTruncated or ErrDepth.
func (s *Scanner) ScanAll(document []byte) error {
	s.Reset()
	n, _ := s.Write(document)
	if number := minus <= s.state && s.state <= power; number && s.depth == 0 && s.numberIsComplete() {
		s.endNumber()
	}
	switch {
	case s.state == broken || len(bytes.Trim(document[n:], " \t\r\n")) > 0:
		return ErrSyntax
	case s.state != complete:
		return ErrTruncated
	case s.deep:
		return ErrDepth
	}
	return nil
}

// Write scans the next bytes of the document. If the document ends or breaks within p, it returns
// the number of bytes before this place and true, and later calls do nothing. A number outside of
// arrays and objects ends at the byte behind it. Write allocates only while values get longer.
func (s *Scanner) Write(p []byte) (n int, ended bool) {
	for n < len(p) && s.state < complete {
		switch s.state {
		case inKey, inString, inDeepString:
			n += s.scanString(p[n:])
		case deepLevel:
			n += s.scanDeep(p[n:])
		default:
			n += s.scanByte(p[n])
		}
	}
	return n, s.state >= complete
}

// scanByte scans one byte outside of a string's plain text. It returns the number of bytes that it
// has used: 0 if the byte ends a number or breaks the document.
func (s *Scanner) scanByte(c byte) int {
	switch s.state {
	case keyEscape, stringEscape, deepEscape:
		return s.scanEscape(c)
	case keyHex, stringHex, deepHex:
		return s.scanHex(c)
	case inWord:
		return s.scanWord(c)
	case minus, zero, digit, point, fraction, exponent, sign, power:
		return s.scanNumber(c)
	}
	if c == ' ' || c == '\n' || c == '\r' || c == '\t' {
		return 1
	}
	switch {
	case (s.state == value || s.state == valueOrClose) && c != ']':
		return s.beginValue(c)
	case (s.state == key || s.state == keyOrClose) && c == '"':
		s.state = inKey
		s.text.begin(s.matched(), s.longest)
	case s.state == colon && c == ':':
		s.state = value
	case s.state == commaOrClose && c == ',' && s.inObject():
		s.state = key
	case s.state == commaOrClose && c == ',':
		s.state = value
		s.nextElement()
	case s.state == valueOrClose, s.state == keyOrClose && c == '}', s.state == commaOrClose && s.closes(c):
		s.close()
	default:
		s.state = broken
		return 0
	}
	return 1
}

// beginValue scans the first byte of a value.
func (s *Scanner) beginValue(c byte) int {
	asked := s.at >= 0 && s.nodes[s.at].asked
	switch c {
	case '{', '[':
		s.open(c == '{')
		return 1
	case '"':
		s.state = inString
		s.text.begin(asked, s.text.limit)
		return 1
	case 't':
		s.state, s.word = inWord, "true"
	case 'f':
		s.state, s.word = inWord, "false"
	case 'n':
		s.state, s.word = inWord, "null"
	case '-':
		s.state = minus
		s.text.begin(asked, s.text.limit)
		s.text.add('-')
		return 1
	default:
		s.state = minus
		s.text.begin(asked, s.text.limit)
		return s.scanNumber(c)
	}
	s.text.begin(asked, s.text.limit)
	return s.scanWord(c)
}

// open begins a container.
func (s *Scanner) open(object bool) {
	s.set(Container)
	s.depth++
	if s.depth > MaxDepth {
		s.deep, s.state = true, deepLevel
		return
	}
	word, bit := (s.depth-1)/64, uint64(1)<<((s.depth-1)%64)
	if word == len(s.objects) {
		s.objects = append(s.objects, 0)
	}
	s.objects[word] &^= bit
	s.state = valueOrClose
	if object {
		s.objects[word] |= bit
		s.state = keyOrClose
	}
	if s.at >= 0 && s.nodes[s.at].child > 0 {
		s.path = append(s.path, place{node: s.at})
	}
	s.at = -1
	if !object {
		s.nextElement()
	}
}

// close ends the innermost container.
func (s *Scanner) close() {
	if s.matched() {
		s.path = s.path[:len(s.path)-1]
	}
	s.depth--
	s.endValue()
}

// matched reports whether the innermost container is on the way to a pointer.
func (s *Scanner) matched() bool { return s.depth > 0 && s.depth == len(s.path) }

func (s *Scanner) inObject() bool {
	return s.objects[(s.depth-1)/64]>>((s.depth-1)%64)&1 > 0
}

// closes reports whether a byte closes the innermost container.
func (s *Scanner) closes(c byte) bool { return c == '}' && s.inObject() || c == ']' && !s.inObject() }

// nextElement moves on to the next element of the innermost container, if it is an array.
func (s *Scanner) nextElement() {
	if s.at = -1; s.matched() {
		in := &s.path[len(s.path)-1]
		s.at = s.element(in.node, in.index)
		in.index++
	}
}

// endKey moves on to the value of a key. Earlier values of the same key, and what they contain, no
// longer count.
func (s *Scanner) endKey() {
	s.state = colon
	if s.at = -1; !s.matched() {
		return
	}
	name, cut := s.text.end()
	if cut {
		return // it is longer than every key of a pointer
	}
	if s.at = s.member(s.path[len(s.path)-1].node, name); s.at >= 0 {
		s.twice = s.twice || s.nodes[s.at].seen
		s.clear(s.at)
		n := &s.nodes[s.at]
		n.seen, n.value.Folded = true, n.name != string(name)
	}
}

// set remembers the value that has been read, if a pointer asks for it.
func (s *Scanner) set(kind Kind) {
	if s.at < 0 || !s.nodes[s.at].asked {
		return
	}
	v := &s.nodes[s.at].value
	v.Kind, v.Text = kind, v.Text[:0]
	if kind != Container {
		var b []byte
		if b, v.Cut = s.text.end(); !v.Cut {
			v.Text = append(v.Text, b...)
		}
	}
}

// endValue moves on to what is behind a value.
func (s *Scanner) endValue() {
	switch {
	case s.depth == 0:
		s.state = complete
	case s.depth > MaxDepth:
		s.state = deepLevel
	default:
		s.state = commaOrClose
	}
}
