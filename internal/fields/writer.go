// SPDX-License-Identifier: MIT

package fields

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// A Writer writes the fields of one response after another. The zero value is ready to use. It is
// not safe for concurrent use.
//
// Most responses cost no allocation: the values of about 16 fields share one.
type Writer struct {
	numbers []int  // of the policies of this response
	text    []byte // the value of RateLimit for them
	values  values
}

// Add adds the policy with this number to the response's fields: how much of it remains, and
// after which time more is available. A reset of 0 or less is left out. What the policy does not have is cut
// off: requests that a leaky bucket would hold beyond its limit, and a time that debt takes beyond the window.
func (w *Writer) Add(p *Policies, number int, remaining int64, reset time.Duration) {
	if len(w.numbers) > 0 {
		w.text = append(w.text, ", "...)
	}
	w.numbers = append(w.numbers, number)
	q := p.at(number)
	w.text = append(append(w.text, q.name...), ";r="...)
	w.text = strconv.AppendInt(w.text, min(remaining, q.quota), 10)
	if reset > 0 && !q.none {
		t := Seconds(reset)
		if q.longest > 0 {
			t = min(t, q.longest)
		}
		w.text = strconv.AppendInt(append(w.text, ";t="...), t, 10)
	}
}

// Set sets RateLimit and RateLimit-Policy to the policies added since the last call. Without any
// it sets nothing.
func (w *Writer) Set(h http.Header, p *Policies) {
	if len(w.numbers) > 0 {
		h[policyField] = p.value(w.numbers)
		h[limitField] = w.values.value(w.text)
	}
	w.numbers, w.text = w.numbers[:0], w.text[:0]
}

// SetRetryAfter sets Retry-After to a time in whole seconds, see Seconds.
func (w *Writer) SetRetryAfter(h http.Header, d time.Duration) {
	w.text = strconv.AppendInt(w.text[:0], Seconds(d), 10)
	h[retryField] = w.values.value(w.text)
	w.text = w.text[:0]
}

// values makes the values of header fields: lists of one string each. Several lists share one
// allocation, and so do several strings. A shared allocation lives as long as the last value in
// it, so it holds few of them.
type values struct {
	lists []string
	texts strings.Builder
}

func (v *values) value(text []byte) []string {
	if len(v.lists) == 0 {
		v.lists = make([]string, 16)
	}
	if v.texts.Cap()-v.texts.Len() < len(text) { // growing would copy the strings before it
		v.texts.Reset()
		v.texts.Grow(max(1024, len(text)))
	}
	from := v.texts.Len()
	v.texts.Write(text)
	one := v.lists[:1:1]
	one[0], v.lists = v.texts.String()[from:], v.lists[1:]
	return one
}
