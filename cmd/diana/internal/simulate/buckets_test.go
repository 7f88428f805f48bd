// SPDX-License-Identifier: MIT

package simulate

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/diana-limiter/diana/cmd/diana/internal/weblog"
)

// The outcomes of a token bucket show what is refunded to a request from before the first entry. The state is exact in
// the end, also if the first outcome after the refund seems to agree with those before it.
func TestUnknownRefund(t *testing.T) {
	t.Parallel()
	of := newCount(t, "limits: [{url: /, rules: [{name: a, rpu: 20, unit: minute, charge: [401]}]}]").set.Rules[0]
	const capacity, step = 20, 3_000_000.0
	for seed := range uint64(2000) {
		random := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // a test repeats its numbers
		after := 1 + random.IntN(5)
		start := capacity*step - random.Float64()*8*step
		full, refunded, corrected := start, int64(random.IntN(3)), int64(0)
		d, now := &dripping{}, 0.0
		for entry := range 300 {
			if entry == after {
				full -= float64(refunded) * step
			}
			now = math.Floor(now + random.Float64()*step)
			tokens := capacity - (full-now)/step
			m := meeting{entry: entry, at: int64(now), of: of, cost: 1, charged: tokens >= 1, Met: weblog.Met{Allowed: tokens >= 1, Remaining: int64(tokens)}}
			if m.Allowed {
				m.Remaining--
			} else {
				m.Wait = int64(math.Ceil(full - (capacity-1)*step - now))
			}
			corrected += d.meet(&m).n
			if m.charged {
				d.add(m.at, of, 1)
				full += step
			}
		}
		if found := float64(d.first+d.finish().n) + float64(corrected)*step; math.Abs(found-start+float64(refunded)*step) > rounding {
			t.Errorf("seed %d: the bucket was full at %.0f and %d were refunded; found %d refunded and %.0f in the end", seed, start, refunded, -corrected, found)
		}
	}
}

// A full bucket loses the tokens that drip in. So the entries after the first one that finds it full need no correction.
func TestFullForTheFirstTime(t *testing.T) {
	t.Parallel()
	of := newCount(t, "limits: [{url: /, rules: [{name: a, rpu: 20, unit: minute, charge: [401]}]}]").set.Rules[0]
	d := &dripping{}
	for entry, m := range []meeting{
		{at: 0, Met: weblog.Met{Wait: 1_000_000}}, // full in 58 s
		{at: 61_000_000, charged: true, Met: weblog.Met{Allowed: true, Remaining: 19}},
		{at: 61_100_000, charged: true, Met: weblog.Met{Allowed: true, Remaining: 18}},
		{at: 61_200_000, charged: true, Met: weblog.Met{Allowed: true, Remaining: 17}},
		{at: 62_000_000, charged: true, Met: weblog.Met{Allowed: true, Remaining: 16}},
	} {
		m.entry, m.of, m.cost = entry, of, 1
		if c := d.meet(&m); c.n != 0 {
			t.Errorf("entry %d corrects the bucket by %d tokens", entry, c.n)
		}
		if m.charged {
			d.add(m.at, of, 1)
		}
	}
	if full := d.finish().n; full != 58_000_000 {
		t.Errorf("the bucket was full at %d, expected 58 s after the first entry", full)
	}
}
