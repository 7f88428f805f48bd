// SPDX-License-Identifier: MIT

package convert

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/config"
)

// bucket is limit_req of nginx: the excess of one key, in thousandths of a request or finer.
type bucket struct {
	rate, div, one int64 // the excess falls by rate * ms / div, and a request is one
	burst, delay   int64 // requests
	excess, last   int64
	used           bool
}

// take decides a request at a time in milliseconds. wait is in milliseconds, rounded down.
func (b *bucket) take(now int64) (allowed bool, wait int64) {
	excess := int64(0)
	if b.used {
		excess = max(b.excess-b.rate*(now-b.last)/b.div+b.one, 0)
	}
	if excess > b.burst*b.one {
		return false, 0
	}
	b.excess, b.last, b.used = excess, now, true
	if over := excess - b.delay*b.one; over > 0 {
		wait = over * b.div / b.rate
	}
	return true, wait
}

// A converted limit_req decides random requests as nginx does, with the same waits to the millisecond. nginx
// computes with whole thousandths of requests, and rounds down the rate and what each request has waited for. Where
// that loses something, the rule decides as nginx would with exact numbers.
func TestArithmetic(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		rate, params string
		n, unit      int64 // the rate; unit in milliseconds
		burst, delay int64
		step         int64 // of times in milliseconds, so that nginx loses nothing
		loses        bool
		edge         bool // a leaky bucket rounds its scheduled times up to microseconds, so it can refuse the last in the queue
	}{
		{rate: "10r/s", n: 10, unit: 1000, step: 1},
		{rate: "1000r/s", n: 1000, unit: 1000, step: 1},
		{rate: "3r/s", params: "burst=5 nodelay", n: 3, unit: 1000, burst: 5, delay: 5, step: 1},
		{rate: "10r/s", params: "burst=20", n: 10, unit: 1000, burst: 20, step: 1},
		{rate: "3r/s", params: "burst=7", n: 3, unit: 1000, burst: 7, step: 1, edge: true},
		{rate: "7r/s", params: "burst=12 delay=8", n: 7, unit: 1000, burst: 12, delay: 8, step: 1},
		{rate: "10r/s", params: "burst=5 delay=3", n: 10, unit: 1000, burst: 5, delay: 3, step: 1},
		{rate: "1r/s", params: "burst=3 delay=9", n: 1, unit: 1000, burst: 3, delay: 3, step: 1},
		{rate: "30r/m", params: "burst=2", n: 30, unit: 60_000, burst: 2, step: 2},
		{rate: "30r/m", params: "burst=9", n: 30, unit: 60_000, burst: 9, step: 2}, // for up to 18 s: no leaky bucket
		{rate: "120r/m", params: "burst=0", n: 120, unit: 60_000, step: 1},
		{rate: "100r/m", n: 100, unit: 60_000, step: 1, loses: true},
		{rate: "1r/m", params: "burst=5 nodelay", n: 1, unit: 60_000, burst: 5, delay: 5, step: 1, loses: true},
		{rate: "30r/m", params: "burst=4", n: 30, unit: 60_000, burst: 4, step: 1, loses: true},
	} {
		t.Run(row.rate+" "+row.params, func(t *testing.T) {
			t.Parallel()
			result, err := Nginx("nginx.conf", fmt.Sprintf(`
				limit_req_zone $binary_remote_addr zone=z:1m rate=%s;
				server { location / { limit_req zone=z %s; } }`, row.rate, row.params), "")
			if err != nil || len(result.Remarks) > 0 {
				t.Fatal(err, result.Remarks)
			}
			c, err := config.Parse("rules", []byte(result.YAML))
			if err != nil {
				t.Fatal(err, result.YAML)
			}
			differ := 0
			for seed := range uint64(20) {
				times := arrivals(rand.New(rand.NewPCG(seed, 1)), row.unit/row.n, row.step)
				own := bucket{rate: row.n * 1000 * 1000 / row.unit, div: 1000, one: 1000, burst: row.burst, delay: row.delay}
				exact := bucket{rate: row.n, div: 1, one: row.unit, burst: row.burst, delay: row.delay}
				synctest.Test(t, func(t *testing.T) {
					for i, got := range decide(t, c, times) {
						before := own
						allowed, wait := own.take(times[i])
						if row.edge && !got.allowed && own.excess == own.burst*own.one {
							own, allowed = before, false
						}
						if row.loses {
							exactly, _ := exact.take(times[i])
							if exactly != allowed {
								differ++
							}
							allowed, wait = exactly, -1
						}
						if got.allowed != allowed || allowed && wait >= 0 && got.wait.Milliseconds() != wait && (got.wait-time.Microsecond).Milliseconds() != wait {
							t.Fatalf("seed %d, request %d at %d ms: %v, expected %v and %d ms, %s", seed, i, times[i], got, allowed, wait, result.YAML)
						}
					}
				})
			}
			if row.loses != (differ > 0) {
				t.Errorf("the numbers of nginx decide %d requests otherwise than exact ones", differ)
			}
		})
	}
}

// arrivals returns random times in milliseconds, in bursts and with gaps around an interval.
func arrivals(r *rand.Rand, interval, step int64) (times []int64) {
	now := int64(0)
	for range 200 {
		switch r.IntN(4) {
		case 0: // the same moment
		case 1:
			now += r.Int64N(interval+1) * 2
		case 2:
			now += interval
		case 3:
			now += r.Int64N(interval/4 + 2)
		}
		now -= now % step
		times = append(times, now)
	}
	return times
}

// decided is the decision about a request.
type decided struct {
	allowed bool
	wait    time.Duration
}

// decide sends requests of one client to a limiter at their times.
func decide(t *testing.T, c *config.Config, times []int64) []decided {
	t.Helper()
	l, err := diana.Options{}.New(c)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	list := make([]decided, len(times))
	var wg sync.WaitGroup
	start := time.Now()
	for i, at := range times {
		time.Sleep(time.Until(start.Add(time.Duration(at) * time.Millisecond)))
		synctest.Wait()
		wg.Go(func() {
			d, err := l.Take(t.Context(), diana.Request{Method: "GET", Path: "/x", Actors: map[string]string{"ip": "192.0.2.1"}})
			if err != nil {
				t.Error(err)
			}
			list[i] = decided{d.Allowed, d.Delayed}
			d.Done()
		})
		synctest.Wait()
	}
	wg.Wait()
	return slices.Clip(list)
}
