// SPDX-License-Identifier: MIT

package yamltext

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// Decode returns the text of data without a byte order mark and with line feeds as line ends, or the
// first error. A larger text than most bytes is an error.
//
// Decode accepts the characters of YAML except the line separators of YAML 1.1. YAML 1.2 reads
// those as ordinary characters, and all readers must agree on where a line ends.
func Decode(data []byte, most int) (string, *Mistake) {
	if len(data) > most {
		return "", &Mistake{Line: 1, Column: 1, Message: fmt.Sprintf("the configuration is too large, expected at most %d KiB, found %d bytes or more", most>>10, len(data))}
	}
	text := strings.TrimPrefix(string(data), "\uFEFF")
	text = strings.ReplaceAll(text, "\r\n", "\n")
	text = strings.ReplaceAll(text, "\r", "\n")
	if isASCII(text) {
		return text, nil
	}
	line, column := 1, 1
	for i, c := range text {
		switch {
		case c == '\n':
			line, column = line+1, 0
		case c == utf8.RuneError && !strings.HasPrefix(text[i:], string(utf8.RuneError)):
			return "", &Mistake{Line: line, Column: column, Message: fmt.Sprintf("the byte 0x%02X is not UTF-8, expected a text in UTF-8", text[i])}
		case !allowed(c):
			return "", &Mistake{Line: line, Column: column, Message: fmt.Sprintf("the character %U is not allowed in YAML, expected it escaped in double quotes", c)}
		}
		column++
	}
	return text, nil
}

// isASCII reports whether a text has only line feeds and printable ASCII, as nearly every configuration
// has.
func isASCII(text string) bool {
	for i := range len(text) {
		if c := text[i]; (c < ' ' || c > '~') && c != '\n' {
			return false
		}
	}
	return true
}

func allowed(c rune) bool {
	switch c {
	case '\t':
		return true
	case '\u2028', '\u2029', '\uFEFF', '\uFFFE', '\uFFFF':
		return false
	}
	return ' ' <= c && c <= '~' || c >= '\u00A0'
}
