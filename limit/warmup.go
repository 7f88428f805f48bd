// SPDX-License-Identifier: MIT

package limit

import (
	"math"
	"time"
)

// A warmth is the arithmetic of a limit that grows cold while it is not used. The
// protected service must fill its caches again, and needs time for that. A request to a cold
// limit costs up to three steps instead of one. So under full use the rate climbs from a
// third to the whole over the Warmup, W:
//
//	cost of a request, in steps
//	3 |              .'     The area under the line is time. Use moves from right to left:
//	  |            .' |     a request moves cold one step to the left, and costs the area
//	2 |          .'   |     above that step. From W to W/2 the area is W, which is the
//	  |        .'     |     warm-up. Below W/2 each request costs one step.
//	1 |-------'       |
//	  |               |     Unused time moves cold to the right, up to W. There the limit is
//	0 +-------+-------+     fully cold, as a limit that was never used.
//	  0      W/2      W  cold
//
// Example: 5 a second (a step of 200 ms), warm-up 1 s. One after another the requests cost
// 520, 360, 220, 200, 200 ms.
//
// The line is 1 step up to W/2, and then climbs to 3. So its area up to cold is cold plus
//
//	extra(cold) = 2 max(0, cold - W/2)^2 / W
//
// The cost of n requests is n steps plus the loss of extra between the two points. Only
// differences of extra are charged, so extra may be rounded to whole microseconds. Rounding
// errors do not add up: over a sequence of requests all points but the first and the last
// cancel out. A step is never rounded, see [pace]. Because extra is never below 0, a
// warm-up only ever allows less.
//
// State: the moment next, from which the next request conforms, and how cold the limit is
// at that moment. Under constant use cold falls below 0, so that a refund finds the point
// again from which the request was charged. Head is the moment. One cell has the two
// fractions, the other one cold. A state that was never used has been idle since 1970.
// Expiry: when the limit is fully cold again. When the limit changes, next and cold stay as
// moment and time. If only the rate changes, the warm-up stays as far advanced in
// proportion.
//
// Source: Guava's SmoothWarmingUp with its cold factor of 3, which counts stored permits
// (cold/step) in doubles.
type warmth struct {
	pace
	warmup int64
}

// chill is the state of a warmth.
type chill struct{ next, cold point }

func newWarmth(p pace, warmup time.Duration) warmth { return warmth{p, warmup.Microseconds()} }

func (w *warmth) StateVersion() string   { return "warm" }
func (w *warmth) Cells(State, int64) int { return 2 }

func (w *warmth) load(s State) chill {
	c := chill{next: point{int64(s.Head), 0}}
	if len(s.Cells) > 0 {
		c.next.frac, c.cold = int64(s.Cells[0]&math.MaxUint32), point{int64(s.Cells[1]), int64(s.Cells[0] >> 32)}
	}
	if c.next.frac >= w.den { // another limit wrote it
		c.next = point{c.next.at + 1, 0}
	}
	if c.cold.frac >= w.den {
		c.cold.frac = 0
	}
	c.cold = w.within(c.cold)
	return c
}

// within bounds cold by the warm-up, and by a hundred years of use.
func (w *warmth) within(cold point) point {
	if cold.at >= w.warmup {
		return point{w.warmup, 0}
	}
	if cold.at < -maxFill {
		return point{-maxFill, 0}
	}
	return cold
}

// at returns the state at now, or at next if that is later.
func (w *warmth) at(s State, now int64) chill {
	c := w.load(s)
	if c.next.at < now {
		if c.cold.at < 0 {
			c.cold = point{}
		}
		c.cold.at += now
		c.cold = w.within(w.minus(c.cold, c.next))
		c.next = point{now, 0}
	}
	return c
}

// extra returns the cost of a limit that is that cold, beyond its steps.
func (w *warmth) extra(cold point) int64 {
	x := 2*cold.at - w.warmup // twice as much, to be a whole number
	if x <= 0 {
		return 0
	}
	return x * x / (2 * w.warmup) // below 2^59
}

// after returns the state after n requests.
func (w *warmth) after(c chill, n int64) chill {
	next, cold := w.add(c.next, n), w.within(w.minus(c.cold, point{n * w.whole, n * w.frac}))
	next.at += w.extra(c.cold) - w.extra(cold)
	return chill{next, cold}
}

// before returns the state from which n requests lead to c.
func (w *warmth) before(c chill, n int64) chill {
	next, cold := w.sub(c.next, n), w.within(w.add(c.cold, n))
	next.at = max(next.at-w.extra(cold)+w.extra(c.cold), 0)
	return chill{next, cold}
}

func (w *warmth) store(s State, c chill) uint64 {
	s.Cells[0], s.Cells[1] = uint64(c.next.frac|c.cold.frac<<32), uint64(c.cold.at)
	return uint64(c.next.at)
}

func (w *warmth) Take(s State, now, n int64) uint64 { return w.store(s, w.after(w.at(s, now), n)) }

// Debit implements Debtor.
func (w *warmth) Debit(s State, now, n int64) (head uint64, cut int64) {
	most := min(n, w.costs())
	c := w.after(w.at(s, now), most)
	cut = n - most
	if last := (point{now + maxFill, 0}); c.next.after(last) {
		cut += min(w.ceilSteps(w.minus(c.next, last)), most)
		c.next = last
	}
	return w.store(s, c), cut
}

// Used implements Debtor. It counts what is not paid for yet at the price of a warm limit.
func (w *warmth) Used(s State, now int64) int64 {
	return w.ceilSteps(w.minus(w.at(s, now).next, point{now, 0}))
}

// end returns the moment at which a limit is fully cold.
func (w *warmth) end(c chill) int64 { return c.next.until(0) + w.warmup - max(c.cold.at, 0) }

func (w *warmth) Expiry(s State) int64 { return w.end(w.load(s)) }

// warmBucket is a TokenBucket with a Warmup: a request of cost n is allowed if
//
//	next + n steps  <=  now + Burst steps
//
// as without a Warmup. Later requests pay what it costs beyond its steps. Remaining counts
// requests of cost 1. In a cold bucket one request of that total cost may be allowed where
// that many single requests are not.
type warmBucket struct {
	warmth
	capacity int64
	fill     point // capacity steps
}

func (b *warmBucket) Peek(s State, now, n int64) Outcome {
	c := b.at(s, now)
	horizon := b.plus(point{now, 0}, b.fill)
	var out Outcome
	if n <= b.capacity {
		conforms := b.add(c.next, n)
		out.Allowed = !conforms.after(horizon)
		if !out.Allowed {
			out.Wait = conforms.less(b.fill).until(now)
		}
	} else {
		out.Wait = b.end(c) - now
	}
	if out.Allowed || n > 1 {
		out.Remaining = b.remaining(c, horizon)
	}
	out.Reset = b.add(point{now, 0}, max(out.Remaining, 1)).until(now)
	return out
}

// remaining returns how many requests of cost 1 are allowed one after another: the largest k
// for which the last of k requests conforms.
func (b *warmBucket) remaining(c chill, horizon point) int64 {
	if c.next.after(horizon) {
		return 0
	}
	most := b.steps(c.next, horizon) // if it were warm
	if b.extra(c.cold) == 0 {
		return most
	}
	least := min(most, 1)
	for least < most {
		k := (least + most + 1) / 2
		last := b.after(c, k-1)
		if b.add(last.next, 1).after(horizon) {
			most = k - 1
		} else {
			least = k
		}
	}
	return least
}

func (b *warmBucket) Refund(s State, _, n int64) uint64 {
	if len(s.Cells) == 0 {
		return s.Head
	}
	return b.store(s, b.before(b.load(s), n))
}
