// SPDX-License-Identifier: MIT

package limit

import (
	"fmt"
	"math"
	"math/bits"
	"time"
)

// A pace is the even spacing of a limit, u/n, without rounding: whole + frac/den
// microseconds. A point in time that is reached in such steps is kept the same way, as a
// moment and a fraction in den-ths of a microsecond.
//
// Token bucket and leaky bucket are both one such point in time: the moment from which the next
// request conforms. GCRA, the generic cell rate algorithm of ITU-T I.371, calls it the theoretical
// arrival time. Before that moment a token bucket refuses, and a leaky bucket waits.
//
// Rejected: a count of tokens and the moment of the last refill, which needs two words and
// rounds at every refill. Fixed point with a power of two, which is never exact for 3 a
// second. Doubles, which drift.
type pace struct {
	whole, frac, den int64 // 0 <= frac < den
	unit             int64 // whole*den + frac: the spacing in den-ths of a microsecond
	oneWord          bool  // a point fits in the Head

	inverse uint64 // 2 to the 64th / whole, rounded down, or one less: see steps
}

// point is a moment and a fraction of a microsecond in den-ths.
type point struct{ at, frac int64 }

// fracBits is the number of bits for the fraction in a state of one word. The moment takes
// the other 53 of 63 bits. 1023 steps within a microsecond are enough for every limit whose
// n divided by gcd(n, unit) is below 1024, and so for all round numbers.
const fracBits = 10

func newPace(n int64, unit time.Duration) pace {
	u := unit.Microseconds()
	g := gcd(u, n)
	p := pace{den: n / g, unit: u / g}
	p.whole, p.frac = p.unit/p.den, p.unit%p.den
	p.oneWord = p.den < 1<<fracBits
	p.inverse = math.MaxUint64 / uint64(max(p.whole, 1))
	return p
}

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// maxFill is the longest time that n steps may take. With this bound, moments fit 53 bits
// until the year 2155.
const maxFill = 100 * 365 * 24 * int64(time.Hour/time.Microsecond)

// span returns n steps, or an error if they take over a hundred years.
func (p *pace) span(n int64) (point, error) {
	hi, lo := bits.Mul64(uint64(n), uint64(p.unit))
	if hi >= uint64(p.den) {
		return point{}, errTooSlow
	}
	q, r := bits.Div64(hi, lo, uint64(p.den))
	if q > uint64(maxFill) {
		return point{}, errTooSlow
	}
	return point{int64(q), int64(r)}, nil
}

var errTooSlow = fmt.Errorf("it takes over a hundred years to fill")

// add returns t + n steps. n steps must be a valid span.
func (p *pace) add(t point, n int64) point {
	switch {
	case p.den == 1: // the usual case needs no division
		return point{t.at + n*p.whole, 0}
	case n == 1:
		return p.plus(t, point{p.whole, p.frac})
	}
	f := t.frac + n*p.frac // below 2e18
	return point{t.at + n*p.whole + f/p.den, f % p.den}
}

// debit returns the moment n steps after t, and not more than maxFill after now, and how many steps it
// has cut off.
func (p *pace) debit(t point, now, n int64) (_ point, cut int64) {
	most := min(n, p.costs())
	t = p.add(t, most)
	if last := (point{now + maxFill, 0}); t.after(last) {
		return last, n - most + p.ceilSteps(p.minus(t, last))
	}
	return t, n - most
}

// ceilSteps returns how many steps a span takes, rounded up.
func (p *pace) ceilSteps(span point) int64 {
	n := p.steps(point{}, span)
	if span.after(p.add(point{}, n)) {
		n++
	}
	return n
}

// sub returns t - n steps, or the zero point if that is before the epoch.
func (p *pace) sub(t point, n int64) point {
	if t = p.minus(t, point{n * p.whole, n * p.frac}); t.at < 0 {
		return point{}
	}
	return t
}

// minus returns t - d, fractions included. The fraction of d may be more than a microsecond.
func (p *pace) minus(t, d point) point {
	t.at -= d.at + d.frac/p.den
	t.frac -= d.frac % p.den
	if t.frac < 0 {
		t.frac += p.den
		t.at--
	}
	return t
}

// plus returns t + d, fractions included.
func (p *pace) plus(t, d point) point {
	t.at += d.at
	t.frac += d.frac
	if t.frac >= p.den {
		t.frac -= p.den
		t.at++
	}
	return t
}

func (t point) after(u point) bool {
	return t.at > u.at || t.at == u.at && t.frac > u.frac
}

// less returns t - d, rounded up to a whole microsecond.
func (t point) less(d point) point {
	t.at -= d.at
	if t.frac > d.frac {
		t.at++
	}
	return point{t.at, 0}
}

// until returns the whole microseconds from now until t, rounded up, at least 0.
func (t point) until(now int64) int64 {
	if t.frac > 0 {
		t.at++
	}
	return max(t.at-now, 0)
}

// steps returns how many whole steps lie between a and b, where a is not after b
// and the number is at most bounds.MaxN.
func (p *pace) steps(a, b point) int64 {
	if p.den == 1 {
		return p.wholeSteps(b.at - a.at)
	}
	hi, lo := bits.Mul64(uint64(b.at-a.at), uint64(p.den))
	lo, carry := bits.Add64(lo, uint64(b.frac), 0)
	hi += carry
	lo, borrow := bits.Sub64(lo, uint64(a.frac), 0)
	hi -= borrow
	q, _ := bits.Div64(hi, lo, uint64(p.unit))
	return int64(q)
}

// wholeSteps returns how many whole steps are in a span, if den is 1. It multiplies, because a division
// takes several times as long.
func (p *pace) wholeSteps(span int64) int64 {
	n, _ := bits.Mul64(uint64(span), p.inverse) // the number, or one less
	if uint64(span)-n*uint64(p.whole) >= uint64(p.whole) {
		n++
	}
	return int64(n)
}

func (p *pace) stateVersion() string {
	if p.oneWord {
		return "1"
	}
	return "2"
}

func (p *pace) cells() int {
	if p.oneWord {
		return 0
	}
	return 1
}

// load reads a point from a state. If another limit wrote the fraction, it may not be below
// den. Then load rounds it up, by less than a microsecond.
func (p *pace) load(s State) point {
	if p.oneWord {
		return p.loadWord(s.Head)
	}
	t := point{int64(s.Head), 0}
	if len(s.Cells) > 0 {
		t.frac = int64(s.Cells[0])
	}
	if t.frac >= p.den {
		t = point{t.at + 1, 0}
	}
	return t
}

// loadWord is load for a state of one word.
func (p *pace) loadWord(head uint64) point {
	t := point{int64(head >> fracBits), int64(head & (1<<fracBits - 1))}
	if t.frac >= p.den {
		t = point{t.at + 1, 0}
	}
	return t
}

// word returns the Head of a state of one word.
func word(t point) uint64 { return uint64(t.at)<<fracBits | uint64(t.frac) }

// store writes a point into a state and returns its Head.
func (p *pace) store(s State, t point) uint64 {
	if p.oneWord {
		return word(t)
	}
	s.Cells[0] = uint64(t.frac)
	return uint64(t.at)
}
