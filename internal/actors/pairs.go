// SPDX-License-Identifier: MIT

package actors

import (
	"strings"

	"github.com/diana-limiter/diana/internal/httptext"
)

// pairs searches a text such as "a=b&name=value" for the pairs with one name. It builds no table of
// the other pairs and does not allocate.
//
// pairs compares names like the most lenient server. Otherwise a pair that an upstream finds and
// Diana overlooks would be a second identity. These spellings of a name are equal:
//
//   - percent-encoded or not;
//   - in any letter case (ASP.NET);
//   - with a dot, space, plus or opening bracket for an underscore, with spaces in front, and with
//     anything after a zero byte (PHP);
//   - with bytes around it that are spaces in Latin-1 or UTF-8 (Flask, Django);
//   - with brackets around it, or behind it, where they make a list of values (qs, Rack, PHP).
type pairs struct {
	name string

	value   string // of the pairs found, as the client sent it
	found   bool
	unclear bool // the values differ, or the text is too long
	number  int  // of pairs read so far
}

// search reads the pairs of a text. Any of the separators divides two pairs.
func (p *pairs) search(text, separators string) {
	for more := true; more && !p.unclear; {
		pair := text
		end := strings.IndexAny(text, separators)
		if more = end >= 0; more {
			pair, text = text[:end], text[end+1:]
		}
		if p.number++; p.number > MostPairs {
			p.unclear = true
			return
		}
		if value, ok := p.named(pair); ok {
			p.add(httptext.Trim(value))
		}
	}
}

func (p *pairs) add(value string) {
	p.unclear = len(value) > MostValue || p.found && value != p.value
	p.found, p.value = true, value
}

// named returns the value of a pair if its name is p.name.
func (p *pairs) named(pair string) (value string, ok bool) {
	for pair != "" && (pair[0] == ' ' || pair[0] == '+') {
		pair = pair[1:]
	}
	n := 0 // bytes of p.name that match so far
	for i := 0; i < len(pair); {
		c, width := pair[i], 1
		switch {
		case c == '=':
			return pair[i+1:], n == len(p.name)
		case c == '%' && i+2 < len(pair):
			if decoded, ok := httptext.Escaped(pair[i+1], pair[i+2]); ok {
				c, width = decoded, 3
			}
		}
		i += width
		space := c == ' ' || c == '+' || c == '\t'
		switch {
		case space && (n == 0 || n == len(p.name)): // around the name
		case n < len(p.name) && sameInNames[c] == sameInNames[p.name[n]]:
			n++
		case n == 0 && c == '[', (n == 0 || n == len(p.name)) && c > '~':
		case n == len(p.name) && (c == 0 || c == '[' || c == ']'):
			_, value, _ = strings.Cut(pair[i:], "=")
			return value, true
		default:
			return "", false
		}
	}
	return "", n == len(p.name)
}

// sameInNames maps each byte of a name to the byte that it is compared as.
var sameInNames = func() (same [256]byte) {
	for c := range 256 {
		same[c] = byte(c)
	}
	for c := byte('A'); c <= 'Z'; c++ {
		same[c] = c + 'a' - 'A'
	}
	for _, c := range []byte(" +.[\t") {
		same[c] = '_'
	}
	return same
}()
