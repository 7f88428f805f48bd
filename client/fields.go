// SPDX-License-Identifier: MIT

package client

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// field is what an answer tells of a limit.
type field struct {
	name     string
	left     int64         // calls
	resets   time.Duration // after which there may be more
	timeless bool          // nothing tells when there is more
}

// Bounds of what is read, and believed.
const (
	longestField = 8 << 10 // bytes
	longestReset = 31 * 24 * time.Hour

	// What is told in whole seconds, or not at all, may be as much longer.
	second = time.Second
)

// limits returns what an answer tells of limits. What cannot be read is not told.
func limits(h http.Header, now time.Time) []field {
	if list := rateLimit(h); len(list) > 0 {
		return list
	}
	for _, prefix := range []string{"Ratelimit-", "X-Ratelimit-"} {
		left, _, ok := number(h.Get(prefix + "Remaining"))
		if !ok {
			continue
		}
		f := field{"\x00" + prefix, left, second, true} // no policy has such a name
		if n, fraction, ok := number(h.Get(prefix + "Reset")); ok {
			if fraction {
				n++
			}
			f.resets, f.timeless = fromReset(n, date(h, now)), false
		}
		return []field{f}
	}
	return nil
}

// rateLimit reads RateLimit, with RateLimit-Policy.
func rateLimit(h http.Header) []field {
	items := list(strings.Join(h["Ratelimit"], ", "))
	if len(items) == 0 {
		return nil
	}
	policies := list(strings.Join(h["Ratelimit-Policy"], ", "))
	var fields []field
	for _, it := range items {
		left, ok := it.number("r")
		if !ok {
			continue
		}
		f := field{it.name, left, second, true}
		t, ok := it.number("t")
		for _, p := range policies {
			if p.name != it.name {
				continue
			}
			if w, known := p.number("w"); known && !ok {
				t, ok = w, true
			}
			if p.params["qu"] == "content-bytes" && left > 0 {
				f.left = longest // whatever a call takes
			}
		}
		if ok {
			f.resets, f.timeless = seconds(t), false
		}
		fields = merge(fields, f)
	}
	return fields
}

// merge adds a field to others. One that is told twice, for several partitions, is the
// stricter of the two.
func merge(fields []field, f field) []field {
	for i := range fields {
		if g := &fields[i]; g.name == f.name {
			g.left, g.resets, g.timeless = min(g.left, f.left), max(g.resets, f.resets), g.timeless || f.timeless
			return fields
		}
	}
	return append(fields, f)
}

// longest is the largest number that is read: fifteen digits, as in structured fields.
const longest = 999_999_999_999_999

func seconds(n int64) time.Duration {
	return time.Duration(min(n, int64(longestReset/time.Second))) * time.Second
}

// number reads the whole number that a text begins with, of which older fields may have
// more than one, and whether a fraction follows. Less than 0 is 0.
func number(text string) (n int64, fraction, ok bool) {
	text = strings.TrimSpace(text)
	negative := strings.HasPrefix(text, "-")
	digits := strings.TrimPrefix(text, "-")
	end := 0
	for end < len(digits) && '0' <= digits[end] && digits[end] <= '9' {
		end++
	}
	if end == 0 || end > 15 {
		return 0, false, false
	}
	n, err := strconv.ParseInt(digits[:end], 10, 64)
	if negative {
		return 0, false, err == nil
	}
	return n, strings.HasPrefix(digits[end:], "."), err == nil
}

// fromReset reads what some servers mean as seconds from now, and others as seconds or
// milliseconds since 1970; these are not rounded up.
func fromReset(n int64, now time.Time) time.Duration {
	switch {
	case n < 100_000_000:
		return seconds(n)
	case n < 100_000_000_000:
		return between(now, time.Unix(n, 0))
	}
	return between(now, time.UnixMilli(n))
}

// between returns how long after one moment the other is, which is not rounded up.
func between(now, then time.Time) time.Duration {
	return min(max(then.Sub(now), 0), longestReset-second) + second
}

// date returns the server's time.
func date(h http.Header, now time.Time) time.Time {
	if t, err := http.ParseTime(h.Get("Date")); err == nil {
		return t
	}
	return now
}

// retryAfter returns for how long a server wants no call, if an answer is a refusal.
func retryAfter(r *http.Response, now time.Time) (pause time.Duration, refusal bool) {
	if r.StatusCode != http.StatusTooManyRequests && r.StatusCode != http.StatusServiceUnavailable {
		return 0, false
	}
	text := r.Header.Get("Retry-After")
	if n, fraction, ok := number(text); ok {
		if fraction {
			n++
		}
		return seconds(n), true
	}
	if then, err := http.ParseTime(text); err == nil {
		return between(date(r.Header, now), then), true
	}
	return second, r.StatusCode == http.StatusTooManyRequests
}

// item is a member of a list of structured fields (RFC 9651): a String or a Token, with
// parameters. Their values are kept as text; what is neither a number nor a text is empty.
type item struct {
	name   string
	params map[string]string
}

func (it item) number(key string) (int64, bool) {
	n, fraction, ok := number(it.params[key])
	return n, ok && !fraction
}

// list reads a List of structured fields, or nothing if it is none.
func list(text string) []item {
	if len(text) > longestField {
		return nil
	}
	p := parser(strings.Trim(text, " "))
	var items []item
	for p != "" {
		it := item{}
		if it.name = p.bare(); it.name == "" {
			return nil
		}
		for p.skip(";") {
			p.trim(" ")
			key, value := p.while(keyBytes), "1"
			if p.skip("=") {
				value = p.bare()
			}
			if key == "" || value == "" {
				return nil
			}
			if it.params == nil {
				it.params = map[string]string{}
			}
			it.params[key] = value
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

// parser is what is left of a text.
type parser string

func (p *parser) skip(prefix string) bool {
	rest, ok := strings.CutPrefix(string(*p), prefix)
	*p = parser(rest)
	return ok
}

func (p *parser) trim(bytes string) { *p = parser(strings.TrimLeft(string(*p), bytes)) }

// while takes what consists of these bytes.
func (p *parser) while(bytes string) string {
	rest := strings.TrimLeft(string(*p), bytes)
	taken := string(*p)[:len(*p)-len(rest)]
	*p = parser(rest)
	return taken
}

// bare takes a bare item, and returns its text, or nothing if there is none.
func (p *parser) bare() string {
	if !p.skip(`"`) {
		return p.while(otherBytes) // also byte sequences, which mean nothing here
	}
	var b strings.Builder
	for *p != "" {
		c := (*p)[0]
		*p = (*p)[1:]
		switch {
		case c == '"' && b.Len() == 0:
			return "\x00" // an empty text is one
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
