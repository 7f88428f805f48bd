// SPDX-License-Identifier: MIT

package jsonscan

import (
	"encoding/binary"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// scanString scans the plain text of a string and the byte behind it.
func (s *Scanner) scanString(p []byte) int {
	i := plainWords(p)
	for i < len(p) && p[i] != '"' && p[i] != '\\' && p[i] >= ' ' {
		i++
	}
	s.text.add(p[:i]...)
	switch {
	case i == len(p):
		return i
	case p[i] == '\\':
		s.state += keyEscape - inKey
	case p[i] < ' ':
		s.state = broken
		return i
	case s.state == inKey:
		s.endKey()
	case s.state == inString:
		s.set(String)
		s.endValue()
	default:
		s.state = deepLevel
	}
	return i + 1
}

// plainWords returns the number of bytes at the beginning of p, a multiple of 8, that are plain text of a string. Most of
// a document about language is such text.
func plainWords(p []byte) (n int) {
	const ones = 0x0101010101010101
	for ; n+8 <= len(p); n += 8 {
		w := binary.LittleEndian.Uint64(p[n:])
		// A byte below 0x80 gets its high bit by the subtraction if it is below 0x20, or equal to the other ones.
		if ((w-' '*ones)|((w^'"'*ones)-ones)|((w^'\\'*ones)-ones))&^w&(0x80*ones) != 0 {
			break
		}
	}
	return n
}

// scanEscape scans the byte after a backslash.
func (s *Scanner) scanEscape(c byte) int {
	const names, bytes = `"\/bfnrt`, "\"\\/\b\f\n\r\t"
	for i := range len(names) {
		if names[i] == c {
			s.text.add(bytes[i])
			s.state -= keyEscape - inKey
			return 1
		}
	}
	if c != 'u' {
		s.state = broken
		return 0
	}
	s.text.unit, s.text.digits = 0, 0
	s.state += keyHex - keyEscape
	return 1
}

// scanHex scans one of the four digits after \u.
func (s *Scanner) scanHex(c byte) int {
	switch {
	case '0' <= c && c <= '9':
		c -= '0'
	case 'a' <= c|0x20 && c|0x20 <= 'f':
		c = c | 0x20 - 'a' + 10
	default:
		s.state = broken
		return 0
	}
	s.text.unit = s.text.unit<<4 | rune(c)
	if s.text.digits++; s.text.digits == 4 {
		s.text.addUnit()
		s.state -= keyHex - inKey
	}
	return 1
}

// scanWord scans a byte of true, false or null.
func (s *Scanner) scanWord(c byte) int {
	if c != s.word[0] {
		s.state = broken
		return 0
	}
	s.text.add(c)
	if s.word = s.word[1:]; s.word == "" {
		kind := Bool
		if c == 'l' { // the last byte of null, and of no other
			kind = Null
		}
		s.set(kind)
		s.endValue()
	}
	return 1
}

// scanNumber scans a byte of a number, or ends the number before the byte.
func (s *Scanner) scanNumber(c byte) int {
	isDigit := '0' <= c && c <= '9'
	switch after := s.state; {
	case isDigit && after == minus && c == '0':
		s.state = zero
	case isDigit && (after == minus || after == digit):
		s.state = digit
	case isDigit && (after == point || after == fraction):
		s.state = fraction
	case isDigit && (after == exponent || after == sign || after == power):
		s.state = power
	case c == '.' && (after == zero || after == digit):
		s.state = point
	case c|0x20 == 'e' && (after == zero || after == digit || after == fraction):
		s.state = exponent
	case (c == '+' || c == '-') && after == exponent:
		s.state = sign
	case s.numberIsComplete():
		s.endNumber()
		return 0
	default:
		s.state = broken
		return 0
	}
	s.text.add(c)
	return 1
}

func (s *Scanner) numberIsComplete() bool {
	return s.state == zero || s.state == digit || s.state == fraction || s.state == power
}

func (s *Scanner) endNumber() {
	s.set(Number)
	s.endValue()
}

// scanDeep scans what is deeper than MaxDepth, up to a string or the end of the deep containers.
func (s *Scanner) scanDeep(p []byte) int {
	for i, c := range p {
		switch c {
		case '{', '[':
			s.depth++
		case '}', ']':
			if s.depth--; s.depth == MaxDepth {
				s.endValue()
				return i + 1
			}
		case '"':
			s.state = inDeepString
			s.text.begin(false, 0)
			return i + 1
		}
	}
	return len(p)
}

// text collects the text of a key or a value.
type text struct {
	limit int // bytes of a value
	bytes []byte
	most  int // bytes to keep of this text
	keep  bool
	cut   bool

	unit   rune // of UTF-16, of the escape that is read
	digits int  // of the escape that have been read
	high   rune // the first half of a surrogate pair, until the next escape; 0: none
}

// begin begins a text. Unless keep is set, the other methods do nothing.
func (t *text) begin(keep bool, most int) {
	t.bytes, t.keep, t.most, t.cut, t.high = t.bytes[:0], keep, most, false, 0
}

func (t *text) add(p ...byte) {
	if !t.keep || t.cut || len(p) == 0 {
		return
	}
	t.endPair()
	if len(t.bytes)+len(p) > t.most {
		t.cut = true
		return
	}
	t.bytes = append(t.bytes, p...)
}

// addUnit adds the unit of UTF-16 of an escape. Half a surrogate pair becomes U+FFFD.
func (t *text) addUnit() {
	if !t.keep || t.cut {
		return
	}
	if pair := utf16.DecodeRune(t.high, t.unit); pair != unicode.ReplacementChar {
		t.high = 0
		t.add(utf8.AppendRune(nil, pair)...)
		return
	}
	t.endPair()
	if utf16.IsSurrogate(t.unit) && t.unit < 0xDC00 {
		t.high = t.unit
		return
	}
	t.add(utf8.AppendRune(nil, t.unit)...)
}

// endPair replaces the first half of a surrogate pair that has no second half.
func (t *text) endPair() {
	if t.high > 0 {
		t.high = 0
		t.add(utf8.AppendRune(nil, unicode.ReplacementChar)...)
	}
}

// end returns the text, and whether it is too long. Bytes that are not UTF-8 become U+FFFD.
func (t *text) end() (b []byte, cut bool) {
	t.endPair()
	if !utf8.Valid(t.bytes) {
		t.bytes = []byte(string([]rune(string(t.bytes))))
	}
	return t.bytes, t.cut
}
