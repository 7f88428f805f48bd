// SPDX-License-Identifier: MIT

package simulate

import (
	"github.com/diana-limiter/diana/cmd/diana/internal/weblog"
	"github.com/diana-limiter/diana/internal/plan"
	"github.com/diana-limiter/diana/limit"
)

// scheduled follows a leaky bucket, whose state is the next scheduled time. Each outcome says that time. It differs
// from what the entries alone would make of it, because timers are late, clients disconnect while they wait,
// and earlier requests wait too.
type scheduled struct {
	seen bool
	next int64
}

func (s *scheduled) meets(n int, at int64, r *plan.Rule, _ int64, _ bool, met weblog.Met) ([]correction, bool) {
	next := at + met.Wait
	if !met.Allowed {
		next += longestWait(r, at)
	}
	expected := max(s.next, at)
	seen := s.seen
	s.seen, s.next = true, next
	switch {
	case next == expected:
		return nil, true
	case !seen:
		return []correction{{entry: n, kind: fill, at: next}}, true
	}
	return []correction{{entry: n, kind: delay, at: at, n: next - expected}}, true
}

func (s *scheduled) add(at int64, r *plan.Rule, cost int64) {
	s.next = max(s.next, at) + cost*r.Meter.Peek(limit.State{}, at, 1).Reset
}

func (s *scheduled) finish() []correction { return nil }

// longestWait returns how long a request waits at most for a leaky bucket.
func longestWait(r *plan.Rule, at int64) int64 {
	unused := r.Meter.Peek(limit.State{}, at, 1)
	return (unused.Remaining - 1) * unused.Reset
}
