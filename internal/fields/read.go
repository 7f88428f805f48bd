// SPDX-License-Identifier: MIT

package fields

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/diana-limiter/diana/internal/bounds"
)

// Limit is the state of one limit in the header of a response.
type Limit struct {
	Name      string        // of the policy; one that no policy can have, for the older fields
	Remaining int64         // requests, 0 to MaxNumber
	Reset     time.Duration // after which more may be available, 0 to MaxReset
	NoReset   bool          // the response does not have the time; Reset is a second
}

// Bounds of the values that are read.
const (
	MaxNumber = bounds.MaxInteger
	MaxReset  = 31 * 24 * time.Hour
)

// The margin added to a moment and assumed for an unknown time. Servers round moments down to
// whole seconds.
const margin = time.Second

// Read returns the limits in the header of a response. now is the client's time. Read skips what
// it cannot parse. RateLimit has priority; without it, Read uses RateLimit-Remaining and
// RateLimit-Reset of older drafts, or the same with the prefix X-.
func Read(h http.Header, now time.Time) []Limit {
	if list := readLimits(h); len(list) > 0 {
		return list
	}
	for _, prefix := range []string{"Ratelimit-", "X-Ratelimit-"} {
		remaining, _, ok := number(h.Get(prefix + "Remaining"))
		if !ok {
			continue
		}
		l := Limit{"\x00" + prefix, remaining, margin, true} // no policy has such a name
		if n, fraction, ok := number(h.Get(prefix + "Reset")); ok {
			if fraction {
				n++
			}
			l.Reset, l.NoReset = fromReset(n, serverTime(h, now)), false
		}
		return []Limit{l}
	}
	return nil
}

// readLimits reads RateLimit together with RateLimit-Policy.
func readLimits(h http.Header) []Limit {
	items := list(strings.Join(h[limitField], ", "))
	if len(items) == 0 {
		return nil
	}
	policies := list(strings.Join(h[policyField], ", "))
	var limits []Limit
	for _, it := range items {
		remaining, ok := it.number("r")
		if !ok {
			continue
		}
		l := Limit{it.name, remaining, margin, true}
		t, ok := it.number("t")
		for _, p := range policies {
			if p.name != it.name {
				continue
			}
			if w, known := p.number("w"); known && !ok {
				t, ok = w, true
			}
			if p.params["qu"] == "content-bytes" && remaining > 0 {
				l.Remaining = MaxNumber // nobody knows how many bytes a request takes
			}
		}
		if ok {
			l.Reset, l.NoReset = duration(t), false
		}
		limits = merge(limits, l)
	}
	return limits
}

// merge adds a limit to others. A name can occur once for each of several partitions; then the
// strictest values count.
func merge(limits []Limit, l Limit) []Limit {
	for i := range limits {
		if k := &limits[i]; k.Name == l.Name {
			k.Remaining, k.Reset, k.NoReset = min(k.Remaining, l.Remaining), max(k.Reset, l.Reset), k.NoReset || l.NoReset
			return limits
		}
	}
	return append(limits, l)
}

// ReadRetryAfter returns whether a response refuses the request because of a limit, and for how
// long the server wants no other request.
func ReadRetryAfter(r *http.Response, now time.Time) (pause time.Duration, refused bool) {
	if r.StatusCode != http.StatusTooManyRequests && r.StatusCode != http.StatusServiceUnavailable {
		return 0, false
	}
	text := r.Header.Get(retryField)
	if n, fraction, ok := number(text); ok {
		if fraction {
			n++
		}
		return duration(n), true
	}
	if then, err := http.ParseTime(text); err == nil {
		return until(then, serverTime(r.Header, now)), true
	}
	return margin, r.StatusCode == http.StatusTooManyRequests
}

// duration returns n seconds, at most MaxReset.
func duration(n int64) time.Duration {
	return time.Duration(min(n, int64(MaxReset/time.Second))) * time.Second
}

// number parses the whole number at the beginning of a text, because older fields can have more
// than one. It also reports whether a fraction follows. A negative number is 0.
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

// fromReset returns the time until an older Reset field's moment. Some servers send the seconds
// until then, others the seconds or milliseconds since 1970.
func fromReset(n int64, now time.Time) time.Duration {
	switch {
	case n < 100_000_000:
		return duration(n)
	case n < 100_000_000_000:
		return until(time.Unix(n, 0), now)
	}
	return until(time.UnixMilli(n), now)
}

// until returns the time from now to a moment, with the margin.
func until(then, now time.Time) time.Duration {
	return min(max(then.Sub(now), 0), MaxReset-margin) + margin
}

// serverTime returns the server's time by Date, or now.
func serverTime(h http.Header, now time.Time) time.Time {
	if t, err := http.ParseTime(h.Get("Date")); err == nil {
		return t
	}
	return now
}
