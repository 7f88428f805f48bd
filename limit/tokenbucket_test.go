// SPDX-License-Identifier: MIT

package limit

import (
	"math/big"
	"testing"
	"time"

	"github.com/diana-limiter/diana/internal/bounds"
	"pgregory.net/rapid"
)

// tokens is the model of TokenBucket: a fraction of tokens at the moment of the last charge,
// and all charges.
type tokens struct {
	n, unit, burst *big.Rat
	level          *big.Rat
	at             int64
	history
	steady bool // the clock never went back, and nothing was refunded
}

func newTokens(l Limit) *tokens {
	m := &tokens{
		n:      big.NewRat(l.N, 1),
		unit:   big.NewRat(l.Unit.Microseconds(), 1),
		burst:  big.NewRat(l.Burst, 1),
		steady: true,
	}
	m.level = m.burst
	return m
}

// rate returns how many tokens drip in within a span.
func (m *tokens) rate(span int64) *big.Rat {
	r := new(big.Rat).Mul(big.NewRat(span, 1), m.n)
	return r.Quo(r, m.unit)
}

// now returns the tokens in the bucket, extrapolated from the last known level.
func (m *tokens) now(now int64) *big.Rat {
	if len(m.history) == 0 {
		return m.burst
	}
	level := m.rate(now - m.at)
	if level.Add(level, m.level); level.Cmp(m.burst) > 0 {
		return m.burst
	}
	return level
}

func (m *tokens) check(now, n int64, out Outcome) string {
	level, left := m.now(now), int64(0)
	if level.Sign() > 0 {
		left = new(big.Int).Quo(level.Num(), level.Denom()).Int64()
	}
	if wrong := compare(n, left, out); wrong != "" {
		return wrong
	}
	if !out.Allowed || !m.steady {
		return ""
	}
	// The contract's promise: in any interval of length t at most burst + n*t/u.
	sum := n
	for i := len(m.history) - 1; i >= 0; i-- {
		sum += m.history[i].n
		most := m.rate(now - m.history[i].at)
		if most.Add(most, m.burst).Cmp(big.NewRat(sum, 1)) < 0 {
			return "more than that were taken in an interval"
		}
	}
	return ""
}

func (m *tokens) take(now, n int64) {
	m.steady = m.steady && now >= m.at
	m.level = new(big.Rat).Sub(m.now(now), big.NewRat(n, 1))
	m.at = now
	m.history = append(m.history, moment{now, n})
}

// refund puts tokens back whenever they were taken, and drops those that do not fit.
func (m *tokens) refund(_ int, _, n int64) {
	m.steady = false
	m.level = new(big.Rat).Add(m.level, big.NewRat(n, 1))
}

func TestTokenBucketRandom(t *testing.T) {
	t.Parallel()
	oneGoroutine(t)
	check(t, func(t *rapid.T) {
		l := drawLimit(t)
		l.Burst = rapid.OneOf(
			rapid.SampledFrom([]int64{1, 2, l.N, bounds.MaxN}),
			rapid.Int64Range(1, bounds.MaxN),
		).Draw(t, "Burst")
		if longest := maxFill / l.Unit.Microseconds(); l.Burst/l.N >= longest {
			l.Burst = l.N * longest
		}
		s := &sequence{meter: newMeter(t, TokenBucket(), l), model: newTokens(l)}
		s.play(t, l)
	})
}

// Used requests count against a lowered limit, and after it is raised again.
func TestTokenBucketChanged(t *testing.T) {
	t.Parallel()
	testChanged(t, TokenBucket(), Limit{Unit: time.Minute}, []changed{
		{n: 60, cost: 30, allowed: true, remaining: 60}, // full again in 30 s
		{n: 120, cost: 1, allowed: true, remaining: 60}, // in 30.5 s
		{n: 6, cost: 1, remaining: 2, allowed: true},    // in 40.5 s
		{n: 2, cost: 1, remaining: 0},
	})
	// Full only later than the lowered limit's empty bucket would be.
	testChanged(t, TokenBucket(), Limit{Unit: time.Minute, Burst: 20}, []changed{
		{n: 10, cost: 20, allowed: true, remaining: 20}, // in 120 s
		{n: 40, cost: 1, remaining: 0},                  // 20 tokens in 30 s
	})
}

// A fraction of a microsecond that a lowered limit cannot express is rounded up.
func TestTokenBucketFraction(t *testing.T) {
	t.Parallel()
	l := Limit{N: 7, Unit: time.Second, Burst: 10}
	s := State{}
	s.Head = newMeter(t, TokenBucket(), l).Take(s, epoch2026, 6) // full in 6/7 s
	l.N = 1
	if out := newMeter(t, TokenBucket(), l).Peek(s, epoch2026, 10); out.Wait != 857_143 {
		t.Errorf("%+v, want a wait of 857143 µs", out)
	}
}

// The number of steps in a span is exact where the sum exceeds 64 bits.
func TestPaceSteps(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		den, span        int64
		fracFrom, fracTo int64
		want             int64
	}{
		{1 << 29, 1 << 35, 0, 0, 1 << 29},
		{1 << 29, 1 << 35, 1, 0, 1<<29 - 1},
		{65535, 281479271743489, 0, 0, 1<<29 - 1}, // the product is 2^64 - 1
		{65535, 281479271743489, 0, 1, 1 << 29},
		{65535, 281479271743489, 2, 1, 1<<29 - 1},
	} {
		p := pace{den: tc.den, unit: 1 << 35}
		from, to := point{epoch2026, tc.fracFrom}, point{epoch2026 + tc.span, tc.fracTo}
		if got := p.steps(from, to); got != tc.want {
			t.Errorf("%+v: %d steps", tc, got)
		}
	}
}

// After a refusal, no more tokens drip in within the Reset than the Remaining, or one.
func TestTokenBucketReset(t *testing.T) {
	t.Parallel()
	m := newMeter(t, TokenBucket(), Limit{N: 1, Unit: time.Second, Burst: 10})
	for _, tc := range []struct {
		used, cost, reset int64
	}{
		{0, 11, 10e6},
		{4, 7, 6e6},
		{4, 11, 6e6}, // over the burst: the bucket is full in 4 s
		{8, 11, 2e6}, // in 8 s
		{10, 1, 1e6},
		{10, 11, 1e6},
	} {
		s := State{}
		if tc.used > 0 {
			s.Head = m.Take(s, epoch2026, tc.used)
		}
		if out := m.Peek(s, epoch2026, tc.cost); out.Allowed || out.Reset != tc.reset {
			t.Errorf("%d used, cost %d: %+v, want reset %d", tc.used, tc.cost, out, tc.reset)
		}
	}
}

// A request without a cost takes nothing. It is refused only in debt.
func TestTokenBucketWithoutCost(t *testing.T) {
	m, err := TokenBucket().New(Limit{N: 2, Unit: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	w := m.(Word)
	head, now := uint64(0), int64(1_000_000_000)
	for _, step := range []struct {
		debit   int64
		allowed bool
		wait    int64
	}{{0, true, 0}, {2, true, 0}, {1, false, 500_000}} {
		if step.debit > 0 {
			head, _ = m.(Debtor).Debit(State{Head: head}, now, step.debit)
		}
		next, out := w.Decide(head, now, 0)
		if peeked := m.Peek(State{Head: head}, now, 0); peeked != out {
			t.Errorf("after a debit of %d: Peek says %+v, Decide %+v", step.debit, peeked, out)
		}
		if out.Allowed != step.allowed || out.Wait != step.wait {
			t.Errorf("after a debit of %d: %+v", step.debit, out)
		}
		if full := w.(*tokenBucket); full.full(State{Head: next}, now) != full.full(State{Head: head}, now) {
			t.Errorf("after a debit of %d: a request without a cost changed the bucket", step.debit)
		}
	}
}

func TestTokenBucketTooSlow(t *testing.T) {
	t.Parallel()
	for _, l := range []Limit{
		{N: 1, Unit: bounds.MaxUnit, Burst: 1178},
		{N: 1, Unit: bounds.MaxUnit, Burst: bounds.MaxN},
		{N: 10, Unit: 24 * time.Hour, Burst: 365_001},
	} {
		if _, err := TokenBucket().New(l); err == nil {
			t.Errorf("%+v is allowed, and takes over a hundred years to fill", l)
		}
	}
	newMeter(t, TokenBucket(), Limit{N: 10, Unit: 24 * time.Hour, Burst: 365_000})
}

// From the first charge on, the charges that are not refunded stay within the limit, whenever
// the others are refunded.
func TestTokenBucketGivesLate(t *testing.T) {
	t.Parallel()
	check(t, func(t *rapid.T) {
		l := Limit{
			N:     rapid.OneOf(rapid.Int64Range(1, 20), rapid.Int64Range(1, 100_000)).Draw(t, "N"),
			Unit:  rapid.SampledFrom([]time.Duration{time.Second, time.Minute, 7 * time.Millisecond}).Draw(t, "Unit"),
			Burst: rapid.Int64Range(1, 20).Draw(t, "Burst"),
		}
		m := newMeter(t, TokenBucket(), l)
		s := State{Cells: make([]uint64, m.Cells(State{}, 1))}
		rate, now := newTokens(l).rate, epoch2026
		var taken history
		stay := int64(0)
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			now += rapid.OneOf(rapid.Just(int64(0)), rapid.Int64Range(0, 2*l.Unit.Microseconds()/l.N), rapid.Int64Range(0, l.Unit.Microseconds())).Draw(t, "span")
			if n := rapid.Int64Range(1, 3).Draw(t, "cost"); m.Peek(s, now, n).Allowed {
				s.Head = m.Take(s, now, n)
				taken = append(taken, moment{now, n})
				stay += n
			}
			if i := rapid.IntRange(0, 60).Draw(t, "refund"); i < len(taken) {
				s.Head = m.Refund(s, taken[i].at, taken[i].n)
				stay -= taken[i].n
				taken = append(taken[:i], taken[i+1:]...)
			}
			if most := rate(now - epoch2026); most.Add(most, big.NewRat(l.Burst, 1)).Cmp(big.NewRat(stay, 1)) < 0 {
				t.Fatalf("%d stay taken after %d µs", stay, now-epoch2026)
			}
			if out := m.Peek(s, now, 1); out.Remaining > l.Burst {
				t.Fatalf("%+v of a bucket of %d", out, l.Burst)
			}
		}
	})
}
