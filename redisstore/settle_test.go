// SPDX-License-Identifier: MIT

package redisstore

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/diana-limiter/diana/internal/redistest"
	"github.com/diana-limiter/diana/internal/testproc"
	"github.com/diana-limiter/diana/limit"
)

// When Settle returns, another gateway sees what it has debited and refunded.
func TestSettleIsSeen(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t)
	a, b := watch(t, Options{URL: r.URL(), Timeout: time.Second}), watch(t, Options{URL: r.URL(), Timeout: time.Second})
	for _, algorithm := range []limit.Algorithm{limit.TokenBucket(), limit.FixedWindow(), limit.SlidingWindow(), limit.SlidingLog()} {
		l := limit.Limit{N: 100, Unit: 24 * time.Hour}
		in := map[*watched]any{a: a.at(t, algorithm, l), b: b.at(t, algorithm, l)}
		charge := func(w *watched, key string, n int64) []limit.Charge {
			return []limit.Charge{{Counters: in[w], Key: []byte(key), Cost: n}}
		}
		for range 20 {
			more, less := charge(a, "more", 1), charge(a, "less", 4)
			for _, ch := range [][]limit.Charge{more, less} {
				if ok, err := a.Take(context.Background(), 0, ch); !ok || err != nil {
					t.Fatal(ok, err)
				}
			}
			less[0].Cost = 3
			a.Settle(0, charge(a, "more", 3), less)
			for _, key := range []string{"more", "less"} {
				before, after := charge(a, key, 1), charge(b, key, 1)
				if err := b.Peek(context.Background(), 0, after); err != nil {
					t.Fatal(err)
				}
				if err := a.Peek(context.Background(), 0, before); err != nil {
					t.Fatal(err)
				}
				if before[0].Outcome.Remaining != after[0].Outcome.Remaining {
					t.Fatalf("%s: %s: %d remaining, and %d for another gateway", algorithm.Name(), key, before[0].Outcome.Remaining, after[0].Outcome.Remaining)
				}
			}
		}
		for key, want := range map[string]int64{"more": 100 - 20*4, "less": 100 - 20} {
			ch := charge(b, key, 1)
			if err := b.Peek(context.Background(), 0, ch); err != nil || ch[0].Outcome.Remaining != want {
				t.Errorf("%s: %s: %d remaining, %v, want %d", algorithm.Name(), key, ch[0].Outcome.Remaining, err, want)
			}
		}
	}
}

// Close tells what Redis has not received, as far as it still counts.
func TestCloseTellsWhatIsLost(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t)
	var actors, sum atomic.Int64
	w := watch(t, Options{URL: r.URL(), Lost: func(n int, debits int64) {
		actors.Store(int64(n))
		sum.Store(debits)
	}})
	c := w.at(t, limit.FixedWindow(), limit.Limit{N: 10, Unit: 24 * time.Hour})
	charge := func(key string, n int64) []limit.Charge {
		return []limit.Charge{{Counters: c, Key: []byte(key), Cost: n}}
	}
	if ok, err := w.Take(context.Background(), 0, charge("x", 1)); !ok || err != nil {
		t.Fatal(ok, err)
	}
	r.Kill()
	w.Settle(0, charge("x", 30), nil) // fails, if the store has not noticed yet
	testproc.Eventually(t, func() bool { return !w.Up() })
	refunded := charge("z", 5)
	w.Debit(0, refunded)
	w.Refund(refunded)
	w.Settle(0, charge("y", 3), nil)
	w.Close()
	if actors.Load() != 2 || sum.Load() != 33 {
		t.Errorf("%d actors, %d in sum, want 2 and 33", actors.Load(), sum.Load())
	}
}
