// SPDX-License-Identifier: MIT

package compat

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// asker makes random requests. No other asker has its domains.
type asker struct {
	*rand.Rand
	domains []*domain
	asked   int
	fresh   int // values that were used once
}

// request returns the next request.
func (a *asker) request() *rls.RateLimitRequest {
	a.asked++
	d := one(a.Rand, a.domains)
	q := &rls.RateLimitRequest{Domain: d.name}
	switch a.IntN(500) {
	case 0:
		q.Domain = ""
	case 1:
		q.Domain = "unknown"
	case 2:
		return q
	}
	switch a.IntN(20) {
	case 0, 1, 2:
		q.HitsAddend = uint32(1 + a.IntN(5))
	case 3:
		if a.IntN(20) == 0 {
			q.HitsAddend = math.MaxUint32
		}
	}
	n := 1
	if a.IntN(3) == 0 {
		n += a.IntN(4)
	}
	if a.IntN(5000) == 0 {
		n = 1025
	}
	for range n {
		q.Descriptors = append(q.Descriptors, a.descriptor(d))
	}
	if n > 1 && a.IntN(20) == 0 {
		q.Descriptors[n-1] = q.Descriptors[0]
	}
	return q
}

// value returns a value of which there are few at a time, so that counters are used up. Later there are
// others, so that not all counters are.
func (a *asker) value() string {
	return fmt.Sprintf("%d%c", a.asked/500, 'a'+a.IntN(4))
}

// descriptor returns a random descriptor that has a limit in most cases.
func (a *asker) descriptor(d *domain) *common.RateLimitDescriptor {
	text := one(a.Rand, d.near)
	r := &common.RateLimitDescriptor{}
	if strings.HasSuffix(text, "?") && a.IntN(300) == 0 { // a counter of its own, because a refund makes it differ
		a.fresh++
		text = strings.TrimSuffix(text, "?") + fmt.Sprintf("refund%d", a.fresh)
		r.HitsAddend, r.IsNegativeHits = wrapperspb.UInt64(uint64(a.IntN(3))), true
	}
	for _, e := range entries(text) {
		value := strings.Replace(e.Value, "?", a.value(), 1)
		if a.IntN(50) == 0 {
			value = a.value()
		}
		r.Entries = append(r.Entries, &common.RateLimitDescriptor_Entry{Key: e.Key, Value: value})
	}
	switch a.IntN(100) {
	case 0:
		r.Entries = r.Entries[:len(r.Entries)-1]
	case 1:
		r.Entries = append(r.Entries, &common.RateLimitDescriptor_Entry{Key: "b", Value: "c"})
	case 2:
		if a.IntN(50) == 0 {
			for range 64 {
				r.Entries = append(r.Entries, &common.RateLimitDescriptor_Entry{Key: "b", Value: "c"})
			}
		}
	}
	if a.IntN(30) == 0 {
		r.Limit = a.override()
	}
	if r.GetHitsAddend() == nil && a.IntN(10) == 0 {
		r.HitsAddend = wrapperspb.UInt64(a.hits())
	}
	return r
}

func (a *asker) hits() uint64 {
	switch n := a.IntN(100); n {
	case 0:
		return math.MaxUint32
	case 1:
		return math.MaxUint32 + 1 + uint64(a.IntN(1000))
	default:
		return uint64(n % 4)
	}
}

// override returns a limit in place of that of the files. envoyproxy/ratelimit ends at one without a
// unit, so there is always one.
func (a *asker) override() *common.RateLimitDescriptor_RateLimitOverride {
	o := &common.RateLimitDescriptor_RateLimitOverride{
		RequestsPerUnit: one(a.Rand, []uint32{0, 1, 3, 10, math.MaxUint32}),
		Unit:            one(a.Rand, []typev3.RateLimitUnit{typev3.RateLimitUnit_SECOND, typev3.RateLimitUnit_MINUTE, typev3.RateLimitUnit_DAY, typev3.RateLimitUnit_YEAR}),
	}
	if a.IntN(100) == 0 {
		o.UnitMultiplier = wrapperspb.UInt32(2)
	}
	return o
}
