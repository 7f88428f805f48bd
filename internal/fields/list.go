// SPDX-License-Identifier: MIT

package fields

import (
	"fmt"
	"strings"
)

// encode returns text in printable ASCII. It percent-encodes all other bytes and the percent sign, because a
// String of structured fields cannot have them (RFC 9651, section 3.3.3).
func encode(text string) string {
	strange := func(c byte) bool { return c < ' ' || c > '~' || c == '%' }
	var b strings.Builder
	from := 0
	for i := range len(text) {
		if strange(text[i]) {
			fmt.Fprintf(&b, "%s%%%02X", text[from:i], text[i])
			from = i + 1
		}
	}
	if from == 0 {
		return text
	}
	return b.String() + text[from:]
}

var escaped = strings.NewReplacer(`"`, `\"`, `\`, `\\`)

// quote returns printable ASCII as a String of structured fields.
func quote(text string) string { return `"` + escaped.Replace(text) + `"` }

// item is a member of a List of structured fields (RFC 9651): a String or a Token, with
// parameters. The values of the parameters are kept as text. A value that is neither a number nor
// a String or Token has a text without meaning.
type item struct {
	name   string
	params map[string]string
}

// number returns the parameter key, if it is a whole number.
func (it item) number(key string) (int64, bool) {
	n, fraction, ok := number(it.params[key])
	return n, ok && !fraction
}

// maxField is the longest field value that list parses, in bytes.
const maxField = 8 << 10

// list parses a List of structured fields. It returns nil if text is not one.
func list(text string) []item {
	if len(text) > maxField {
		return nil
	}
	p := parser(strings.Trim(text, " "))
	var items []item
	for p != "" {
		it, ok := p.item()
		if !ok {
			return nil
		}
		items = append(items, it)
		p.trim(" \t")
		if p == "" {
			return items
		}
		if !p.skip(",") {
			return nil
		}
		if p.trim(" \t"); p == "" {
			return nil
		}
	}
	return items
}

const (
	keyBytes   = "abcdefghijklmnopqrstuvwxyz0123456789_-.*"
	tokenBytes = keyBytes + "ABCDEFGHIJKLMNOPQRSTUVWXYZ!#$%&'+^`|~:/"
	otherBytes = tokenBytes + "=?@()\""
)

// parser is the rest of a text that is being parsed.
type parser string

func (p *parser) skip(prefix string) bool {
	rest, ok := strings.CutPrefix(string(*p), prefix)
	*p = parser(rest)
	return ok
}

func (p *parser) trim(bytes string) { *p = parser(strings.TrimLeft(string(*p), bytes)) }

// while consumes and returns the longest prefix that consists of these bytes.
func (p *parser) while(bytes string) string {
	rest := strings.TrimLeft(string(*p), bytes)
	taken := string(*p)[:len(*p)-len(rest)]
	*p = parser(rest)
	return taken
}

// item consumes a member with its parameters.
func (p *parser) item() (it item, ok bool) {
	if it.name = p.bare(); it.name == "" {
		return it, false
	}
	for p.skip(";") {
		p.trim(" ")
		key, value := p.while(keyBytes), "1"
		if p.skip("=") {
			value = p.bare()
		}
		if key == "" || value == "" {
			return it, false
		}
		if it.params == nil {
			it.params = map[string]string{}
		}
		it.params[key] = value
	}
	return it, true
}

// bare consumes a bare item and returns its text, or "" if there is none. An empty String is
// returned as "\x00".
func (p *parser) bare() string {
	if !p.skip(`"`) {
		return p.while(otherBytes) // byte sequences too, which the caller ignores
	}
	var b strings.Builder
	for *p != "" {
		c := (*p)[0]
		*p = (*p)[1:]
		switch {
		case c == '"' && b.Len() == 0:
			return "\x00"
		case c == '"':
			return b.String()
		case c == '\\':
			if *p == "" || (*p)[0] != '"' && (*p)[0] != '\\' {
				return ""
			}
			b.WriteByte((*p)[0])
			*p = (*p)[1:]
		case c < ' ' || c > '~':
			return ""
		default:
			b.WriteByte(c)
		}
	}
	return ""
}
