// SPDX-License-Identifier: MIT

package convert

import (
	"strings"
	"unicode/utf8"

	"github.com/diana-limiter/diana/config"
	"github.com/diana-limiter/diana/internal/yamltext"
)

// token is a word of a configuration of nginx, or one of ; { }. The end of a file is a token without a kind.
type token struct {
	kind   byte // 'w' is a word
	text   string
	line   int
	column int // in characters, from 1
}

// lexer divides a file into tokens as nginx does.
type lexer struct {
	file, text string
	pos        int
	line       int
	column     int // of the byte at counted, in characters less 1
	counted    int // counting from the beginning of a long line for each token would take too long
}

func (l *lexer) mistake(t token, message string) error {
	return config.Errors{{File: l.file, Line: t.line, Column: t.column, Message: message}}
}

// here returns an empty token at the present place.
func (l *lexer) here() token {
	l.column += utf8.RuneCountInString(l.text[l.counted:l.pos])
	l.counted = l.pos
	return token{line: l.line, column: l.column + 1}
}

// step moves over one byte.
func (l *lexer) step() {
	if l.pos++; l.text[l.pos-1] == '\n' {
		l.line, l.column, l.counted = l.line+1, 0, l.pos
	}
}

// next returns the next token. Comments begin where a word could begin.
func (l *lexer) next() (token, error) {
	for l.pos < len(l.text) {
		switch c := l.text[l.pos]; {
		case isBlank(c):
			l.step()
		case c == '#':
			for l.pos < len(l.text) && l.text[l.pos] != '\n' {
				l.pos++
			}
		case c == ';' || c == '{' || c == '}':
			t := l.here()
			t.kind, t.text = c, string(c)
			l.step()
			return t, nil
		case c == '"' || c == '\'':
			return l.quoted()
		default:
			return l.word(), nil
		}
	}
	return l.here(), nil
}

// word reads a word without quotes. A brace after a dollar sign is part of it, such as in ${name}.
func (l *lexer) word() token {
	t := l.here()
	begin := l.pos
	for ; l.pos < len(l.text); l.step() {
		c := l.text[l.pos]
		if c == '\\' && l.pos+1 < len(l.text) {
			l.step()
			continue
		}
		if isBlank(c) || c == ';' || c == '{' && (l.pos == begin || l.text[l.pos-1] != '$') {
			break
		}
	}
	t.kind, t.text = 'w', unescaped(l.text[begin:l.pos])
	return t
}

// quoted reads a word in quotes, which can have several lines.
func (l *lexer) quoted() (token, error) {
	t := l.here()
	quote := l.text[l.pos]
	l.step()
	begin := l.pos
	for l.pos < len(l.text) && l.text[l.pos] != quote {
		if l.text[l.pos] == '\\' && l.pos+1 < len(l.text) {
			l.step()
		}
		l.step()
	}
	if l.pos == len(l.text) {
		return t, l.mistake(t, "the quotation mark "+string(quote)+" is not closed")
	}
	t.kind, t.text = 'w', unescaped(l.text[begin:l.pos])
	l.step()
	if l.pos < len(l.text) && !isBlank(l.text[l.pos]) && !strings.ContainsRune(";{)", rune(l.text[l.pos])) {
		return t, l.mistake(l.here(), "expected a space, ; or { after the quotation mark")
	}
	return t, nil
}

// lua moves behind the end of a block of Lua, whose beginning is read. Braces in its strings and comments do not
// count.
func (l *lexer) lua() error {
	begin := l.here()
	for depth := 1; l.pos < len(l.text); {
		rest := l.text[l.pos:]
		if level, ok := longBracket(strings.TrimPrefix(rest, "--")); ok {
			end := strings.Index(rest, "]"+level+"]")
			if end < 0 {
				break
			}
			for range end + len(level) + 2 {
				l.step()
			}
			continue
		}
		switch c := rest[0]; {
		case strings.HasPrefix(rest, "--"):
			for l.pos < len(l.text) && l.text[l.pos] != '\n' {
				l.pos++
			}
			continue
		case c == '"' || c == '\'':
			for l.step(); l.pos < len(l.text) && l.text[l.pos] != c && l.text[l.pos] != '\n'; l.step() {
				if l.text[l.pos] == '\\' && l.pos+1 < len(l.text) {
					l.step()
				}
			}
			if l.pos == len(l.text) {
				return l.mistake(begin, "the block of Lua is not closed")
			}
		case c == '{':
			depth++
		case c == '}':
			depth--
		}
		if l.step(); depth == 0 {
			return nil
		}
	}
	return l.mistake(begin, "the block of Lua is not closed")
}

// longBracket returns the equals signs of a long bracket of Lua, such as [==[, at the beginning of a text.
func longBracket(text string) (level string, ok bool) {
	if !strings.HasPrefix(text, "[") {
		return "", false
	}
	rest := strings.TrimLeft(text[1:], "=")
	return text[1 : len(text)-len(rest)], strings.HasPrefix(rest, "[")
}

func isBlank(c byte) bool { return c == ' ' || c == '\t' || c == '\r' || c == '\n' }

// unescaped undoes the escapes of nginx. Other backslashes stay, because regular expressions have them.
func unescaped(text string) string {
	if strings.IndexByte(text, '\\') < 0 {
		return text
	}
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		if text[i] == '\\' && i+1 < len(text) {
			if at := strings.IndexByte(`"'\trn`, text[i+1]); at >= 0 {
				b.WriteByte("\"'\\\t\r\n"[at])
				i++
				continue
			}
		}
		b.WriteByte(text[i])
	}
	return b.String()
}

// shown returns a text of the file as messages show it. Backslashes stay, because regular expressions have many.
func shown(text string) string { return `"` + printable(yamltext.Shorten(text)) + `"` }
