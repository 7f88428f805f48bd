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
	"slices"
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
	Limit      int64
	Unit       time.Duration // the limit's window; below a second the field leaves it out
	Concurrent bool          // Limit counts concurrent requests, and Unit has no meaning
}

// written returns the policy as the fields have it. Its texts share their memory, because a
// configuration can have 100,000 policies.
func (p Policy) written() written {
	name, parameters := quote(p.Name), ""
	switch {
	case p.Concurrent:
		parameters = `;qu="concurrent-requests"`
	case p.Unit >= time.Second: // the field has whole seconds only
		parameters = ";w=" + strconv.FormatInt(roundUp(p.Unit), 10)
	}
	member := name + ";q=" + strconv.FormatInt(p.Limit, 10) + parameters
	return written{member, member[:len(name)], p.Limit == 0}
}

// Policies are the policies of one configuration, numbered from 0 in the order of Add. They keep
// the values of RateLimit-Policy that have been sent, because many requests are evaluated under
// the same policies. The zero value is empty. Add must not run concurrently with other methods; a
// Writer uses Policies concurrently with other Writers.
type Policies struct {
	list []written

	mu    sync.Mutex // held to add a value to known
	known atomic.Pointer[map[string][]string]
}

// written is a policy as the fields have it.
type written struct {
	member string // of RateLimit-Policy
	name   string // as a String of structured fields
	none   bool   // the limit is 0, so more is never available
}

// maxKnown bounds how many values of RateLimit-Policy are kept. Only a configuration with very
// many rules, or with limits in overrides, needs more.
const maxKnown = 4096

// Grow makes room for n more policies, so that Add need not copy those before.
func (p *Policies) Grow(n int) { p.list = slices.Grow(p.list, n) }

// Add adds a policy.
func (p *Policies) Add(q Policy) {
	p.list = append(p.list, q.written())
}

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
		members = append(members, p.list[n].member)
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
