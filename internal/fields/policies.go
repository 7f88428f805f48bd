// SPDX-License-Identifier: MIT

// Package fields writes and reads the HTTP fields that tell a client about its limits:
// RateLimit and RateLimit-Policy (draft-ietf-httpapi-ratelimit-headers-11) and Retry-After. It
// also reads their older spellings, which other servers send.
//
// The package works on plain values: a policy's name and limit, what remains, and when more is
// available. It knows neither rules nor decisions.
package fields

import (
	"encoding/binary"
	"maps"
	"math/bits"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// The names of the fields, in the spelling of the keys of an http.Header.
const (
	policyField = "Ratelimit-Policy"
	limitField  = "Ratelimit"
	retryField  = "Retry-After"
)

// Policy is the description of one limit in RateLimit-Policy.
type Policy struct {
	Name       string
	Limit      int64         // requests per Unit
	Burst      int64         // requests at once, if these are more than Limit
	Unit       time.Duration // the limit's window; 0: it has none
	Slices     int64         // a request counts for up to Unit/Slices longer than Unit; 0: for the Unit
	Concurrent bool          // Limit counts concurrent requests, and Unit has no meaning
}

// quota returns the parameters q and w of the policy; a w of 0 is left out. The field has whole seconds only, and
// q/w is never above the rate of the limit. A burst is the quota of the time that it takes to become available
// again. For a time below a second, the quota is that of a second.
func (p Policy) quota() (q, w int64) {
	if p.Concurrent || p.Unit == 0 {
		return p.Limit, 0
	}
	q, span := p.Limit, p.Unit
	if p.Burst > p.Limit && p.Limit > 0 {
		_, nanoseconds := mulDiv(p.Burst, int64(p.Unit), p.Limit)
		q, span = p.Burst, time.Duration(nanoseconds)
	}
	if span < time.Second {
		q, _ = mulDiv(p.Limit, int64(time.Second), int64(p.Unit))
		q = min(q, MaxNumber)
		if q == 0 {
			return 0, 0
		}
	}
	return q, roundUp(span)
}

// mulDiv returns a*b/c, rounded down and up, and at most 1<<62.
func mulDiv(a, b, c int64) (down, up int64) {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	if hi >= uint64(c) {
		return 1 << 62, 1 << 62
	}
	q, rest := bits.Div64(hi, lo, uint64(c))
	down = int64(min(q, 1<<62))
	if up = down; rest > 0 {
		up++
	}
	return down, up
}

// written returns the policy as the fields have it. Its texts share their memory.
func (p Policy) written() written {
	text, parameters := encode(p.Name), ""
	q, w := p.quota()
	switch {
	case p.Concurrent:
		parameters = `;qu="concurrent-requests"`
	case w > 0:
		parameters = ";w=" + strconv.FormatInt(w, 10)
	}
	name := quote(text)
	member := name + ";q=" + strconv.FormatInt(q, 10) + parameters
	if !strings.ContainsAny(text, `"\`) {
		text = member[1 : len(name)-1]
	}
	longest := w
	if w > 0 && p.Slices > 0 {
		longest = roundUp(p.Unit + p.Unit/time.Duration(p.Slices))
	}
	return written{member, member[:len(name)], text, q, longest, p.Limit == 0}
}

// Policies are the policies of one configuration. They keep the values of RateLimit-Policy that have been sent, because
// many requests are evaluated under the same policies. A response is the first to need the texts of a policy, because a
// configuration can have 100,000 policies that few requests reach. They are safe for concurrent use.
type Policies struct {
	policy func(number int) Policy
	list   []atomic.Pointer[written] // by number; nil: no response has needed it

	mu    sync.Mutex // held to add a value to known
	known atomic.Pointer[map[string][]string]
}

// NewPolicies returns n policies, numbered from 0. policy returns the one with a number, always the same.
func NewPolicies(n int, policy func(number int) Policy) *Policies {
	return &Policies{policy: policy, list: make([]atomic.Pointer[written], n)}
}

// written is a policy as the fields have it.
type written struct {
	member  string // of RateLimit-Policy
	name    string // as a String of structured fields
	text    string // of that String
	quota   int64  // the largest r
	longest int64  // the largest t; 0: any
	none    bool   // the limit is 0, so more is never available
}

// maxKnown bounds how many values of RateLimit-Policy are kept. Only a configuration with very
// many rules, or with limits in overrides, needs more.
const maxKnown = 4096

// at returns the policy with this number as the fields have it.
func (p *Policies) at(number int) *written {
	if w := p.list[number].Load(); w != nil {
		return w
	}
	w := p.policy(number).written()
	p.list[number].Store(&w) // as another response may have done
	return &w
}

// Name returns the name of the policy with this number, as clients read it in the fields.
func (p *Policies) Name(number int) string { return p.at(number).text }

// value returns the value of RateLimit-Policy for the policies with these numbers. Responses share
// the value; it has no spare capacity, so appending to it copies it.
func (p *Policies) value(numbers []int) []string {
	var room [32]byte
	key := room[:0]
	for _, n := range numbers {
		key = binary.AppendUvarint(key, uint64(n))
	}
	known := p.known.Load()
	if known != nil {
		if v, ok := (*known)[string(key)]; ok {
			return v
		}
	}
	var members []string
	for _, n := range numbers {
		members = append(members, p.at(n).member)
	}
	value := []string{strings.Join(members, ", ")}
	if known != nil && len(*known) >= maxKnown {
		return value
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	more := map[string][]string{string(key): value}
	if known = p.known.Load(); known != nil {
		if len(*known) >= maxKnown {
			return value
		}
		maps.Copy(more, *known)
	}
	p.known.Store(&more)
	return value
}

// Seconds returns d in whole seconds, rounded up, and at least 1. Retry-After and the fields
// have whole seconds only.
func Seconds(d time.Duration) int64 { return max(roundUp(d), 1) }

func roundUp(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }
