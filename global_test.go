// SPDX-License-Identifier: MIT

package diana_test

import (
	"context"
	"fmt"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/internal/redistest"
	"github.com/diana-limiter/diana/internal/testproc"
)

// gateways returns Limiters that share a Redis, as soon as all of them use it.
func gateways(t *testing.T, n int, url, timeout, limits string) []*diana.Limiter {
	t.Helper()
	return sharing(t, n, fmt.Sprintf("redis: {url: %q, timeout: %s}\nlimits:\n%s", url, timeout, limits))
}

// sharing returns Limiters of one configuration, as soon as all of them use its Redis.
func sharing(t *testing.T, n int, yaml string) (all []*diana.Limiter) {
	t.Helper()
	for range n {
		all = append(all, limiter(t, yaml))
	}
	for _, l := range all {
		testproc.Eventually(t, func() bool { s := l.Status(); return !s.Degraded && s.Gateways == n })
	}
	return all
}

// crowd sends requests to each gateway, many at a time, and returns how many each gateway allows.
func crowd(t *testing.T, all []*diana.Limiter, callers, each int, r diana.Request) (allowed []int) {
	t.Helper()
	counts := make([]atomic.Int64, len(all))
	var wg sync.WaitGroup
	for i, l := range all {
		for range callers {
			wg.Go(func() {
				for range each {
					d, err := l.Take(context.Background(), r)
					if err != nil {
						t.Error(err)
					}
					if d.Allowed {
						counts[i].Add(1)
					}
					d.Done()
				}
			})
		}
	}
	wg.Wait()
	for i := range counts {
		allowed = append(allowed, int(counts[i].Load()))
	}
	return allowed
}

func sum(list []int) (n int) {
	for _, v := range list {
		n += v
	}
	return n
}

func TestGatewaysShareGlobalLimits(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t)
	all := gateways(t, 3, r.URL(), "10s", `
- url: /
  rules: [{name: local, unit: hour, rpu: 100000}]
- url: /tb
  rules: [{unit: day, rpu: 500, algo: TB, scope: global, actor: device}]
- url: /sl
  rules: [{unit: day, rpu: 500, algo: SL, scope: global}]
- url: /mixed
  rules:
    - {name: wide, unit: hour, rpu: 1000, algo: SL}
    - {name: narrow, unit: day, rpu: 5, algo: SW, scope: global}
- url: /places
  rules: [{name: places, rpu: 2, algo: C, scope: global}]
`)
	for _, path := range []string{"/tb", "/sl"} {
		if got := sum(crowd(t, all, 32, 20, device(path, "x"))); got != 500 {
			t.Errorf("%s: three gateways let %d pass, want 500", path, got)
		}
	}

	// If Redis refuses a request, the local limits are refunded.
	if got := crowd(t, all[:1], 8, 50, diana.Request{Path: "/mixed"}); got[0] != 5 {
		t.Errorf("/mixed: %d passed, want 5", got[0])
	}
	d, err := all[0].Take(context.Background(), diana.Request{Path: "/mixed"})
	if err != nil || d.Allowed {
		t.Fatal(d, err)
	}
	for _, v := range d.Verdicts {
		if v.Rule.Name == "wide" && v.Remaining != 995 {
			t.Errorf("the wide limit has %d left, want 995", v.Remaining)
		}
	}
	d.Done()

	// All gateways share the slots, which are free again after Done.
	var inside []diana.Decision
	for i, l := range all {
		d, err := l.Take(context.Background(), diana.Request{Path: "/places"})
		if err != nil || d.Allowed != (i < 2) {
			t.Errorf("place %d: %v %v", i, d.Allowed, err)
		}
		inside = append(inside, d)
	}
	for i := range inside {
		inside[i].Done()
	}
	testproc.Eventually(t, func() bool { return ask(t, all[2], diana.Request{Path: "/places"}).Allowed })
}

// Redis fails and comes back. No request fails, and all gateways together allow no more than the limit.
// Requests that were allowed without Redis are debited there. If Redis has kept its memory, nothing is
// left.
func TestRedisFailsAndComesBack(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]struct {
		harm, heal func(*redistest.Server)
		left       int
	}{
		"killed": {(*redistest.Server).Kill, (*redistest.Server).Restart, 120},
		"frozen": {(*redistest.Server).Freeze, (*redistest.Server).Thaw, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := redistest.Start(t)
			all := gateways(t, 3, r.URL(), "500ms", `
- url: /
  rules: [{unit: day, rpu: 300, algo: TB, scope: global}]
- url: /whole
  rules: [{unit: day, rpu: 50, algo: W, scope: global, on_error: local}]
- url: /closed
  rules: [{unit: day, rpu: 50, scope: global, on_error: closed}]
`)
			if got := sum(crowd(t, all, 4, 10, diana.Request{Path: "/"})); got != 120 {
				t.Errorf("%d of 120 passed with Redis", got)
			}
			fault.harm(r)
			for _, l := range all {
				ask(t, l, diana.Request{Path: "/"}) // detects that Redis is down, without an error
			}
			for _, l := range all {
				testproc.Eventually(t, func() bool { return l.Status().Degraded })
			}
			// Each gateway has a share of 100, of which it has used 40, and one more just now.
			alone := crowd(t, all, 16, 20, diana.Request{Path: "/"})
			for i, got := range alone {
				if got < 58 || got > 60 {
					t.Errorf("gateway %d let %d more pass without Redis, want the 59 that are left of its share", i, got)
				}
			}
			if got := crowd(t, all[:1], 4, 50, diana.Request{Path: "/closed"}); got[0] != 0 {
				t.Errorf("/closed: %d passed without Redis", got[0])
			}
			fault.heal(r)
			for _, l := range all {
				testproc.Eventually(t, func() bool { return !l.Status().Degraded })
			}
			// The status changes just before the decisions do. Shares do not hold for a unit of a day.
			testproc.Eventually(t, func() bool { return !ask(t, all[0], diana.Request{Path: "/closed"}).Degraded })
			used := 1 // which also charged / once
			if fault.left == 0 {
				used = 0
			}
			if got := sum(crowd(t, all, 16, 20, diana.Request{Path: "/"})); got < fault.left-used-1 || got > fault.left+1 {
				t.Errorf("%d more passed with Redis again, want %d", got, fault.left)
			}
			if errs := all[0].RedisErrors(); len(errs) == 0 {
				t.Error("no failed call has been counted")
			}
		})
	}
}

// TestShareRefusesForAWhile sends a request that is too much for the share of a gateway, but not for
// the limit. Without Redis it is refused only for a while.
func TestShareRefusesForAWhile(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t)
	all := gateways(t, 2, r.URL(), "500ms", `
- {url: /, rules: [{unit: day, rpu: 4, algo: W, scope: global, cost: "client:Cost"}]}
`)
	asked := func(cost string) diana.Decision {
		h := httptest.NewRequest("GET", "/", nil)
		h.Header.Set("Cost", cost)
		return ask(t, all[0], diana.Request{HTTP: h})
	}
	if d := asked("5"); d.Allowed || d.RetryAfter != 0 {
		t.Errorf("5 of 4, with Redis: allowed %v, RetryAfter %v", d.Allowed, d.RetryAfter)
	}
	r.Kill()
	testproc.Eventually(t, func() bool { return asked("1").Degraded })
	if d := asked("3"); d.Allowed || d.RetryAfter == 0 {
		t.Errorf("3 of a share of 2: allowed %v, RetryAfter %v", d.Allowed, d.RetryAfter)
	}
	if d := asked("5"); d.Allowed || d.RetryAfter != 0 {
		t.Errorf("5 of 4, without Redis: allowed %v, RetryAfter %v", d.Allowed, d.RetryAfter)
	}
}

// TestWaitIsTheLongestAndNotTheSum queues requests under a local and a global rule. Each waits for the longer of
// the two times. The queues have a slot more than requests wait: requests that arrive at once
// read the clock in any order, so the earliest reading can find all the others waiting.
func TestWaitIsTheLongestAndNotTheSum(t *testing.T) {
	t.Parallel()
	l := gateways(t, 1, redistest.Start(t).URL(), "10s", `
- url: /
  rules:
    - {name: here, unit: second, rpu: 1, queue: 4, algo: LB}
    - {name: all, unit: second, rpu: 1, queue: 4, algo: LB, scope: global}
`)[0]
	var wg sync.WaitGroup
	for range 4 { // at 0, 1, 2 and 3 s
		wg.Go(func() {
			d, err := l.Take(context.Background(), diana.Request{Path: "/"})
			if err != nil || !d.Allowed || d.Delayed > 5900*time.Millisecond {
				t.Errorf("allowed %v after %v, %v; want 3 s, and not the sum of both", d.Allowed, d.Delayed, err)
			}
			d.Done()
		})
	}
	wg.Wait()
}
