// SPDX-License-Identifier: MIT

package limit

import (
	"fmt"
	"math/big"
	"testing"
	"time"

	"github.com/diana-limiter/diana/internal/bounds"
	"pgregory.net/rapid"
)

// permits is the model of a limit with a Warmup: Guava's description, in fractions. Stored
// permits are taken from the top of a trapezoid.
type permits struct {
	step, warmup     *big.Rat // µs
	stored, most     *big.Rat
	threshold, slope *big.Rat
	next             *big.Rat // moment of the next free ticket
	burst            int64    // of a bucket; 0: reservations
	idle             int64    // how often it was idle
	free             bool     // stored permits cost nothing
	history
	steady bool // the clock never went back, and nothing was refunded
	before []snapshot
	count  int // of takes
}

// snapshot is the state that a take found, with the next free ticket at that moment.
type snapshot struct {
	i                   int // of the take
	next, stored, after *big.Rat
}

func rat(n int64) *big.Rat { return big.NewRat(n, 1) }

func newPermits(l Limit) *permits {
	m := &permits{
		step:   big.NewRat(l.Unit.Microseconds(), l.N),
		warmup: rat(l.Warmup.Microseconds()),
		burst:  l.Burst,
		next:   rat(0),
		steady: true,
	}
	half := new(big.Rat).Mul(big.NewRat(1, 2), m.warmup)
	m.threshold = new(big.Rat).Quo(half, m.step)
	// most = threshold + 2 warmup / (stable interval + cold interval), which is 3 times as long
	m.most = new(big.Rat).Add(m.threshold, new(big.Rat).Quo(half, m.step))
	m.slope = new(big.Rat).Mul(rat(2), m.step) // cold interval - stable interval
	m.slope.Quo(m.slope, new(big.Rat).Sub(m.most, m.threshold))
	m.stored = m.most
	return m
}

// resync stores permits for the time since the next free ticket.
func (m *permits) resync(now int64) (next, stored *big.Rat) {
	if m.next.Sign() == 0 {
		return rat(now), m.most
	}
	idle := new(big.Rat).Sub(rat(now), m.next)
	stored = new(big.Rat).Quo(idle, m.step)
	stored.Add(stored, m.stored)
	switch {
	case m.free && stored.Sign() < 0: // the clock may have gone back before permits were stored
		return idle.Sub(rat(now), stored.Mul(stored, m.step)), rat(0)
	case !m.free && idle.Sign() <= 0:
		return m.next, m.stored
	case stored.Cmp(m.most) > 0:
		stored = m.most
	}
	return rat(now), stored
}

// price returns how long n permits take to pay for, if that many are stored.
func (m *permits) price(stored *big.Rat, n int64) *big.Rat {
	take := rat(n)
	if take.Cmp(stored) > 0 {
		take = stored
	}
	fresh := new(big.Rat).Sub(rat(n), take)
	sum := fresh.Mul(fresh, m.step)
	if m.free {
		return sum
	}
	above := new(big.Rat).Sub(stored, m.threshold)
	flat := new(big.Rat).Set(take)
	if above.Sign() > 0 {
		part := take
		if part.Cmp(above) > 0 {
			part = above
		}
		height := func(p *big.Rat) *big.Rat {
			h := new(big.Rat).Mul(p, m.slope)
			return h.Add(h, m.step)
		}
		both := new(big.Rat).Add(height(above), height(new(big.Rat).Sub(above, part)))
		both.Mul(both, part).Quo(both, rat(2))
		sum.Add(sum, both)
		flat.Sub(flat, part)
	}
	return sum.Add(sum, flat.Mul(flat, m.step))
}

// until returns the whole microseconds from now until t, at least 0.
func until(t *big.Rat, now int64) int64 {
	d := new(big.Rat).Sub(t, rat(now))
	if d.Sign() <= 0 {
		return 0
	}
	q, r := new(big.Int).QuoRem(d.Num(), d.Denom(), new(big.Int))
	if r.Sign() > 0 {
		q.Add(q, big.NewInt(1))
	}
	return q.Int64()
}

// check compares. While the limit is in use, rounding a cost adds less than 3 µs. If idle time
// begins that much too early or too late, the limit is colder by as much. The next cost is
// higher than that by twice as much.
func (m *permits) check(now, n int64, out Outcome) string {
	next, _ := m.resync(now)
	slack := 3 + 9*m.idle
	never := new(big.Rat).Mul(m.step, rat(n)).Cmp(rat(maxFill)) > 0
	if m.burst > 0 {
		never = n > m.burst
	}
	if never {
		if out.Allowed {
			return "that is too much"
		}
		return ""
	}
	if m.burst > 0 {
		conforms := new(big.Rat).Mul(m.step, rat(n-m.burst))
		next = conforms.Add(conforms, next)
	}
	wait := until(next, now)
	if out.Allowed && wait > slack || !out.Allowed && (out.Wait < wait-slack || out.Wait > wait+slack) {
		return fmt.Sprintf("it conforms in %d", wait)
	}
	if !out.Allowed || !m.steady {
		return ""
	}
	// In any interval of length t at most burst + n*t/u, or one request more than that.
	sum, burst := n, rat(m.burst)
	if m.burst == 0 {
		sum = 0
	}
	if m.free {
		burst = m.most
	}
	for i := len(m.history) - 1; i >= 0; i-- {
		sum += m.history[i].n
		most := new(big.Rat).Quo(rat(now-m.history[i].at), m.step)
		if most.Add(most, burst).Cmp(rat(sum)) < 0 {
			return "more than that were taken in an interval"
		}
	}
	return ""
}

func (m *permits) take(now, n int64) {
	next, stored := m.resync(now)
	if next != m.next {
		m.idle++
	}
	if m.idle > 0 && stored == m.most {
		m.idle = 1
	}
	after := new(big.Rat).Add(next, m.price(stored, n))
	m.before = append(m.before, snapshot{m.count, next, stored, after})
	m.count++
	m.next = after
	if m.stored = new(big.Rat).Sub(stored, rat(n)); m.stored.Sign() < 0 {
		m.stored = rat(0)
	}
	m.steady = m.steady && (len(m.history) == 0 || now >= m.history[len(m.history)-1].at)
	m.history = append(m.history, moment{now, n})
}

// mayRefund allows the last take that is left, if the limit was not idle since.
func (m *permits) mayRefund(i int) bool {
	last := len(m.before) - 1
	return last >= 0 && m.before[last].i == i && m.before[last].after.Cmp(m.next) == 0
}

func (m *permits) refund(int, int64, int64) {
	last := len(m.before) - 1
	m.next, m.stored, m.before = m.before[last].next, m.before[last].stored, m.before[:last]
	m.steady = false
}

func drawWarmup(t *rapid.T) time.Duration {
	return time.Duration(rapid.OneOf(
		rapid.SampledFrom([]int64{1, 2, 3, 1e6, 1e6 + 1, 6e8}),
		rapid.Int64Range(1, 1e7),
		rapid.Int64Range(1, 6e8),
	).Draw(t, "Warmup")) * time.Microsecond
}

func TestWarmupRandom(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) { // 100 sequences: fractions are slow
		l := drawLimit(t)
		l.Warmup = drawWarmup(t)
		l.Burst = rapid.OneOf(rapid.SampledFrom([]int64{1, 2, l.N}), rapid.Int64Range(1, 100), rapid.Int64Range(1, bounds.MaxN)).Draw(t, "Burst")
		if longest := maxFill / l.Unit.Microseconds(); l.Burst/l.N >= longest {
			l.Burst = l.N * longest
		}
		m := newPermits(l)
		s := &sequence{meter: newMeter(t, TokenBucket(), l), model: m, mayRefund: m.mayRefund}
		s.play(t, l)
	})
}
