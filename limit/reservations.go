// SPDX-License-Identifier: MIT

package limit

import (
	"errors"
	"fmt"
	"math/bits"
	"time"

	"github.com/diana-limiter/diana/internal/bounds"
)

// Reservations gives each request a scheduled time of its own, N per Unit. It is for programs
// that pace their own work and can wait. A request proceeds as soon as all earlier requests
// are paid for. The next request pays for its cost, as in Guava's RateLimiter: if a large
// request paid for itself, the time before it would be wasted.
//
// The state is one moment, next, at which the next request may proceed. A request moves it
// by as many steps (Unit/N) as it costs. Unused time is stored, for up to Burst steps: next
// never lies further back than that.
//
// Example: 2 a second (a step of 0.5 s), a burst of 2, nothing stored.
//
//	        A       B C D      E            A of cost 1 proceeds at once. So do B, C, D 5 s
//	        |       |||        |            later: stored time pays for B and C, and D
//	--------+--//---+----------+---> s      proceeds before it is paid for. E waits for that.
//	        0       5         5.5
//
// With a Warmup nothing is stored. Instead the limit grows cold while it is not used, and a
// request to a cold limit costs up to three steps.
//
// In any interval of length t at most Burst + N*t/Unit and one more request proceed. The
// Meter is a [Reserver].
//
// A Limit.Burst of 0 stores what accrues in a second, which can be less than one request.
// Rules cannot use this algorithm; package rate does.
//
// State: next, in Head and a cell with the fraction; with a Warmup also how cold the limit is. In a
// state that was never used, the most is stored, or the limit is fully cold. Expiry: when
// that is true again. When the limit changes, the moment stays: debt and stored time remain
// the same amount of time. Cost: one addition. Source: Guava's SmoothBursty.
func Reservations() Algorithm {
	return Algorithm{
		Names: []string{"reservations"},
		Keys:  []string{"unit", "burst", "warmup"},
		New:   newReservations,
	}
}

func newReservations(l Limit) (Meter, error) {
	if err := l.Check(); err != nil {
		return nil, err
	}
	if l.N == 0 {
		return closed(l.Unit.Microseconds()), nil
	}
	if l.Burst > 0 && l.Warmup > 0 {
		return nil, errors.New("limit: burst and warmup are given, expected one of them for reservations")
	}
	r := reservations{pace: newPace(l.N, l.Unit)}
	r.most = r.costs()
	if l.Warmup > 0 {
		return &warmReservations{newWarmth(r.pace, l.Warmup), r.most}, nil
	}
	var err error
	if r.stored, err = r.span(max(l.Burst, 1)); err != nil {
		return nil, fmt.Errorf("limit: a burst of %d at %d per %v: %w", l.Burst, l.N, l.Unit, err)
	}
	if l.Burst == 0 {
		if all, err := r.span(bounds.MaxN); err == nil && all.at < time.Second.Microseconds() {
			r.stored = all
		} else {
			r.stored = point{time.Second.Microseconds(), 0}
		}
	}
	return &r, nil
}

// costs returns the largest cost: what takes a hundred years to pay for, and at most bounds.MaxN.
func (p *pace) costs() int64 {
	hi, lo := bits.Mul64(uint64(maxFill), uint64(p.den))
	if hi >= uint64(p.unit) {
		return bounds.MaxN
	}
	n, _ := bits.Div64(hi, lo, uint64(p.unit))
	return int64(min(n, bounds.MaxN))
}

type reservations struct {
	pace
	stored point // the longest time that is stored
	most   int64 // the largest cost
}

func (r *reservations) StateVersion() string   { return "2" }
func (r *reservations) Cells(State, int64) int { return 1 }

func (r *reservations) load(s State) point {
	next := point{at: int64(s.Head)}
	if len(s.Cells) > 0 {
		next.frac = int64(s.Cells[0])
	}
	if next.frac >= r.den { // another limit wrote it
		next = point{next.at + 1, 0}
	}
	return next
}

func (r *reservations) store(s State, next point) uint64 {
	s.Cells[0] = uint64(next.frac)
	return uint64(next.at)
}

// next returns when a request that arrives now would proceed.
func (r *reservations) next(s State, now int64) point {
	next := r.load(s)
	if full := r.minus(point{now, 0}, r.stored); full.after(next) {
		return full
	}
	return next
}

func (r *reservations) Peek(s State, now, n int64) Outcome { return r.PeekWithin(s, now, n, 0) }

func (r *reservations) PeekWithin(s State, now, n, longest int64) Outcome {
	next := r.next(s, now)
	out := reserve(next.until(now), longest, n <= r.most, r.plus(next, r.stored).until(now))
	if today := (point{now, 0}); !next.after(today) {
		out.Remaining = r.steps(next, today) + 1
	}
	out.Reset = r.add(point{now, 0}, max(out.Remaining, 1)).until(now)
	return out
}

// reserve returns the outcome of a request whose scheduled time is after wait. whole is the
// time until the limit is unused again, which is the Wait of a cost that is never allowed.
func reserve(wait, longest int64, allowed bool, whole int64) Outcome {
	longest = min(longest, maxFill)
	switch {
	case !allowed:
		return Outcome{Wait: whole}
	case wait > longest:
		return Outcome{Wait: wait - longest}
	}
	return Outcome{Allowed: true, Wait: wait}
}

func (r *reservations) Take(s State, now, n int64) uint64 {
	return r.store(s, r.add(r.next(s, now), n))
}

// Debit implements Debtor.
func (r *reservations) Debit(s State, now, n int64) (head uint64, cut int64) {
	next, cut := r.debit(r.next(s, now), now, n)
	return r.store(s, next), cut
}

// Used implements Debtor.
func (r *reservations) Used(s State, now int64) int64 {
	return r.ceilSteps(r.minus(r.next(s, now), r.minus(point{now, 0}, r.stored)))
}

func (r *reservations) Refund(s State, scheduled, n int64) uint64 {
	if next := r.sub(r.load(s), n); next.until(0) <= scheduled && len(s.Cells) > 0 {
		return r.store(s, next)
	}
	return s.Head
}

func (r *reservations) Expiry(s State) int64 { return r.plus(r.load(s), r.stored).until(0) }

// warmReservations are Reservations with a Warmup.
type warmReservations struct {
	warmth
	most int64 // the largest cost
}

func (r *warmReservations) Peek(s State, now, n int64) Outcome { return r.PeekWithin(s, now, n, 0) }

func (r *warmReservations) PeekWithin(s State, now, n, longest int64) Outcome {
	c := r.at(s, now)
	wait := c.next.until(now)
	out := reserve(wait, longest, n <= r.most, r.end(c)-now)
	if wait == 0 {
		out.Remaining = 1
	}
	out.Reset = r.add(point{now, 0}, 1).until(now)
	return out
}

func (r *warmReservations) Refund(s State, scheduled, n int64) uint64 {
	if c := r.before(r.load(s), n); c.next.until(0) <= scheduled && len(s.Cells) > 0 {
		return r.store(s, c)
	}
	return s.Head
}
