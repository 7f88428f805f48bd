// SPDX-License-Identifier: MIT

package decide

import (
	"math/bits"
	"runtime"
	"sync/atomic"

	"github.com/diana-limiter/diana/internal/bounds"
	"github.com/diana-limiter/diana/internal/minutes"
	"github.com/diana-limiter/diana/internal/refusals"
)

// record is the memory of a rule's decisions. A rule keeps it across configurations, so that
// metrics never fall.
type record struct {
	tally    tally
	refused  refusals.Rule
	shed     [bounds.MaxPriorities]atomic.Int64 // refusals of an adaptive rule, by priority; in shadow mode too
	shedAt   atomic.Int64                       // moment of the last of them
	cost     atomic.Int64                       // charged by what responses have cost
	reserved atomic.Int64                       // by requests in flight
	fullest  fullest
	warned   atomic.Int64 // when the log last said that actors share the overflow counter
}

func newRecord(name string) *record {
	r := new(record)
	r.refused = refusals.Rule{Name: name, Total: r.tally.refusals}
	return r
}

// Counts are the decisions of a rule by kind. A request that one rule refuses counts as refused
// under that rule and under no other.
type Counts struct {
	Allowed, Refused, ShadowRefused, Delayed int64

	Saturated int64 // debits of which the state could not hold all
	Unsettled int64 // responses without a cost that could be read
	Reserved  int64 // refusals because of what requests in flight have reserved
}

// tally holds the counts of a rule in parts of one cache line each; otherwise cores would contend
// for one line. An Evaluation, which mostly stays on one core, counts in one of the parts. The first
// request makes the parts, because a configuration can have 100,000 rules that few requests reach. The
// zero value has counted nothing.
type tally struct{ parts atomic.Pointer[[]part] }

type part struct {
	allowed, refused, shadowRefused, delayed, overflow, saturated, unsettled, reserved atomic.Int64
}

// part returns the nth part; n may be any number.
func (t *tally) part(n uint32) *part {
	parts := t.parts.Load()
	if parts == nil {
		parts = t.divide()
	}
	return &(*parts)[n&uint32(len(*parts)-1)]
}

// divide makes more parts than cores, because evaluations get their parts by chance. The number is a
// power of two. All callers get the same parts.
func (t *tally) divide() *[]part {
	made := make([]part, 1<<bits.Len(uint(min(runtime.GOMAXPROCS(0), 32))))
	t.parts.CompareAndSwap(nil, &made)
	return t.parts.Load()
}

// all returns the parts, or none if nothing has been counted.
func (t *tally) all() []part {
	if parts := t.parts.Load(); parts != nil {
		return *parts
	}
	return nil
}

func (t *tally) counts() (c Counts) {
	for i, parts := 0, t.all(); i < len(parts); i++ {
		p := &parts[i]
		c.Allowed += p.allowed.Load()
		c.Refused += p.refused.Load()
		c.ShadowRefused += p.shadowRefused.Load()
		c.Delayed += p.delayed.Load()
		c.Saturated += p.saturated.Load()
		c.Unsettled += p.unsettled.Load()
		c.Reserved += p.reserved.Load()
	}
	return c
}

// decisions returns the counts that are decisions.
func (t *tally) decisions() minutes.Counts {
	c := t.counts()
	return minutes.Counts{Allowed: c.Allowed, Refused: c.Refused, ShadowRefused: c.ShadowRefused, Delayed: c.Delayed}
}

func (t *tally) overflow() (n int64) {
	for i, parts := 0, t.all(); i < len(parts); i++ {
		n += parts[i].overflow.Load()
	}
	return n
}

// refusals returns how many requests were refused, in shadow mode too.
func (t *tally) refusals() int64 {
	c := t.counts()
	return c.Refused + c.ShadowRefused
}
