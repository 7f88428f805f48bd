// SPDX-License-Identifier: MIT

// Package httptext reads the smallest parts of HTTP and of URIs: tokens, white space, whole
// numbers and percent-encoding. No function in it allocates, except Unescape.
package httptext

import (
	"strconv"
	"strings"
)

// IsToken reports whether s is a token of RFC 9110, such as the name of a header or a method.
func IsToken(s string) bool {
	for i := range len(s) {
		c := s[i]
		if c <= ' ' || c > '~' || strings.IndexByte("\"(),/:;<=>?@[\\]{}", c) >= 0 {
			return false
		}
	}
	return s != ""
}

// Trim returns s without the spaces and tabs around it.
func Trim(s string) string {
	for s != "" && (s[0] == ' ' || s[0] == '\t') {
		s = s[1:]
	}
	for s != "" && (s[len(s)-1] == ' ' || s[len(s)-1] == '\t') {
		s = s[:len(s)-1]
	}
	return s
}

// Whole returns the whole number that s writes in digits alone. A number that is too large for
// an int64 becomes the largest int64.
func Whole(s string) (n int64, ok bool) {
	if s == "" || strings.Trim(s, "0123456789") != "" {
		return 0, false
	}
	n, _ = strconv.ParseInt(s, 10, 64) // the largest with its error
	return n, true
}

// Unescape appends text to b and percent-decodes it once. A % that begins no escape stays.
func Unescape(b []byte, text string) []byte {
	for i := 0; i < len(text); i++ {
		c := text[i]
		if c == '%' && i+2 < len(text) {
			if decoded, ok := Escaped(text[i+1], text[i+2]); ok {
				c = decoded
				i += 2
			}
		}
		b = append(b, c)
	}
	return b
}

// Escaped returns the byte that two hexadecimal digits encode. It reports whether both are
// hexadecimal digits.
func Escaped(high, low byte) (c byte, ok bool) {
	h, l := hexDigit[high], hexDigit[low]
	return (h-1)<<4 | (l - 1), h > 0 && l > 0
}

// hexDigit has the value of each hexadecimal digit plus 1, and 0 for every other byte.
var hexDigit = func() (value [256]byte) {
	for i := range byte(16) {
		value["0123456789abcdef"[i]], value["0123456789ABCDEF"[i]] = i+1, i+1
	}
	return value
}()
