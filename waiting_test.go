// SPDX-License-Identifier: MIT

package diana_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/internal/decide"
	"github.com/diana-limiter/diana/internal/redistest"
	"github.com/diana-limiter/diana/internal/testproc"
)

// queueing sends requests that wait until they are cancelled.
type queueing struct {
	t       *testing.T
	l       *diana.Limiter
	ctx     context.Context
	leave   context.CancelFunc
	wg      sync.WaitGroup
	refused atomic.Int64
}

func newQueueing(t *testing.T, l *diana.Limiter) *queueing {
	ctx, leave := context.WithCancel(t.Context())
	return &queueing{t: t, l: l, ctx: ctx, leave: leave}
}

// send sends so many requests of each of so many devices to a path.
func (c *queueing) send(path string, devices, each int) {
	for i := range devices * each {
		c.wg.Go(func() {
			d, err := c.l.Take(c.ctx, device(path, fmt.Sprint(i%devices)))
			if err == nil && !d.Allowed {
				if c.refused.Add(1); d.RetryAfter <= 0 {
					c.t.Error("a refusal without a RetryAfter")
				}
			}
			d.Done()
		})
	}
	synctest.Wait()
}

// cancelAll cancels all requests.
func (c *queueing) cancelAll() {
	c.t.Helper()
	c.leave()
	c.wg.Wait()
	if n := c.l.Waiting(); n != 0 || !c.l.Idle() {
		c.t.Errorf("%d requests wait after all were cancelled", n)
	}
}

// A flood of waiting requests under one rule leaves room for the requests of another rule. It does not
// matter whether they wait for a leaky bucket or by a wait. Both rules together have one bound.
func TestWaitingHasOneBound(t *testing.T) {
	t.Parallel()
	const waits, leaky = "/waits", "/leaky"
	for _, tc := range []struct {
		first, second string
		each          int // requests that wait for a device
	}{{waits, leaky, 8}, {leaky, waits, 8}} {
		t.Run(tc.first, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := limiter(t, `
- {url: /waits, rules: [{actor: device, rpu: 1, unit: minute, algo: W, align: first, wait: 10m}]}
- {url: /leaky, rules: [{actor: device, rpu: 1, algo: LB, queue: 8}]}
`)
				const own = decide.MaxWaiting / 8
				c := newQueueing(t, l)
				c.send(tc.first, 1500, tc.each+1)
				if got, want := l.Waiting(), decide.MaxWaiting-own; got != want {
					t.Errorf("%d requests wait under one rule, want %d", got, want)
				}
				c.send(tc.second, 300, tc.each+1)
				if got := l.Waiting(); got != decide.MaxWaiting {
					t.Errorf("%d requests wait under both rules, want %d", got, decide.MaxWaiting)
				}
				if got, want := c.refused.Load(), int64(1800*tc.each-decide.MaxWaiting); got != want {
					t.Errorf("%d are refused, want %d", got, want)
				}
				c.cancelAll()
				c = newQueueing(t, l) // with the same room as before
				c.send(tc.second, 100, tc.each)
				if got := c.refused.Load(); got > 100 {
					t.Errorf("%d are refused after others were cancelled", got)
				}
				c.cancelAll()
			})
		})
	}
}

// A request that is refused because too many wait is refunded under all other rules.
func TestWaitingRefusalChargesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, `
- {url: /, rules: [{name: all, rpu: 1000000, unit: hour}]}
- {url: /leaky, rules: [{actor: device, rpu: 1, algo: LB, queue: 9}]}
`)
		c := newQueueing(t, l)
		c.send("/leaky", 1200, 10)
		if got := c.refused.Load(); got == 0 || l.Waiting() != decide.MaxWaiting {
			t.Errorf("%d are refused, %d wait", got, l.Waiting())
		}
		d, err := l.Take(t.Context(), diana.Request{Path: "/"})
		if err != nil {
			t.Fatal(err)
		}
		if got, want := d.Verdicts[0].Remaining, int64(1_000_000-1200-decide.MaxWaiting-1); got != want {
			t.Errorf("%d remain, want %d: the allowed ones, the waiting ones, and this one", got, want)
		}
		d.Done()
		c.cancelAll()
	})
}

// Requests that wait for a leaky bucket in Redis count as well.
func TestWaitingInRedis(t *testing.T) {
	t.Parallel()
	l := gateways(t, 1, redistest.Start(t).URL(), "5s", "- {url: /, rules: [{rpu: 1, unit: 5s, algo: LB, queue: 5, scope: global}]}")[0]
	ctx, leave := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			d, _ := l.Take(ctx, diana.Request{})
			d.Done()
		})
	}
	testproc.Eventually(t, func() bool { return l.Waiting() == 2 })
	leave()
	wg.Wait()
	if n := l.Waiting(); n != 0 {
		t.Errorf("%d requests wait after all were cancelled", n)
	}
}

// Reloads that add and remove rules while requests wait under them keep the count of waiting requests.
func TestWaitingAcrossReloads(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFolder(t)
		l := open(t, quiet, f.write("diana.yaml", "{url: /, rules: [{actor: device, rpu: 1, algo: LB, queue: 9}]}"))
		c := newQueueing(t, l)
		for i := range 20 {
			c.send("/", 7, 3)
			f.write("diana.yaml", fmt.Sprintf("{url: /, rules: [{actor: device, rpu: %d, algo: LB, queue: 9}, {actor: device, name: n%d, unit: %ds, rpu: 1, wait: 5s}]}", 1+i%2, i%3, 1+i%4))
			if err := l.Reload(); err != nil {
				t.Fatal(err)
			}
		}
		if l.Waiting() == 0 {
			t.Error("no request waits")
		}
		c.cancelAll()
	})
}
