// SPDX-License-Identifier: MIT

package diana_test

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/internal/redistest"
	"github.com/diana-limiter/diana/internal/testproc"
)

// by takes a request of an account.
func by(t *testing.T, l *diana.Limiter, account string) diana.Decision {
	t.Helper()
	d, err := l.Take(t.Context(), diana.Request{Path: "/", Actors: map[string]string{"account": account}})
	if err != nil || !d.Allowed {
		t.Fatalf("%s: %v, %+v", account, err, d.Verdicts)
	}
	return d
}

func wantSpent(t *testing.T, l *diana.Limiter, cost, reserved int64, ratio float64) {
	t.Helper()
	r := l.Status().Rules[0]
	if d := r.SpentRatio - ratio; r.Cost != cost || r.Reserved != reserved || d < -1e-9 || d > 1e-9 {
		t.Errorf("cost %d, reserved %d, spent %v, want %d, %d and %v", r.Cost, r.Reserved, r.SpentRatio, cost, reserved, ratio)
	}
}

// A rule knows what it was charged, what is reserved, and the fullest of its actors, whoever comes last.
func TestSpent(t *testing.T) {
	t.Parallel()
	for _, algo := range settling {
		synctest.Test(t, func(t *testing.T) {
			l := limiter(t, "{url: /, rules: [{actor: account, unit: hour, rpu: 1000, algo: "+algo+", cost: {answer: /n, reserve: 100}}]}")
			time.Sleep(time.Hour) // windows begin with the clock
			wantSpent(t, l, 0, 0, 0)
			a, b := by(t, l, "a"), by(t, l, "b")
			wantSpent(t, l, 0, 200, 0)
			a.Settle(300)
			wantSpent(t, l, 0, 100, 0.3)
			a.Done()
			wantSpent(t, l, 300, 100, 0.3)
			b.Settle(50)
			b.Done()
			wantSpent(t, l, 350, 0, 0.3)
			c := by(t, l, "b")
			c.Done() // it keeps its reservation
			wantSpent(t, l, 450, 0, 0.3)
			again := by(t, l, "b")
			again.Settle(10)
			again.Settle(350) // a later one replaces it
			again.Done()
			wantSpent(t, l, 800, 0, 0.5)
			over := by(t, l, "b")
			over.Settle(5000)
			over.Done()
			wantSpent(t, l, 5800, 0, 1)
			explained, _, err := l.PeekActor(t.Context(), l.Status().Rules[0].Name, "a")
			held := by(t, l, "a")
			now, _, err2 := l.PeekActor(t.Context(), l.Status().Rules[0].Name, "a")
			if held.Done(); err != nil || err2 != nil || explained[0].Reserved != 0 || now[0].Reserved != 100 {
				t.Errorf("reserved by a: %d and then %d, want 0 and 100; %v %v", explained[0].Reserved, now[0].Reserved, err, err2)
			}
			if err := l.Reset(t.Context(), l.Status().Rules[0].Name, "b"); err != nil {
				t.Fatal(err)
			}
			wantSpent(t, l, 5900, 0, 0)
			by2 := by(t, l, "a")
			wantSpent(t, l, 5900, 100, 0.4)
			by2.Settle(0)
			by2.Done()
			time.Sleep(6 * time.Hour)
			wantSpent(t, l, 5900, 0, 0)
		})
	}
}

// A response that is free costs nothing.
func TestSpentByStatus(t *testing.T) {
	t.Parallel()
	l := limiter(t, "{url: /, rules: [{unit: hour, rpu: 1000, algo: W, charge: [200], cost: {answer: /n, reserve: 100}}]}")
	d := take(t, l)
	d.SetStatus(500)
	d.Done()
	wantSpent(t, l, 0, 0, 0)
}

// In Redis other gateways spend too. Each gateway knows what its decisions say, and forgets it with the window.
func TestSpentInRedis(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	yaml := "redis: {url: " + redis.URL() + ", timeout: 1s}\nlimits: [{url: /, rules: [{actor: account, unit: hour, rpu: 1000, algo: W, scope: global, align: first, cost: {answer: /n, reserve: 100}}]}]"
	one, other := limiter(t, yaml), limiter(t, yaml)
	testproc.Eventually(t, func() bool { return !one.Status().Degraded && !other.Status().Degraded })
	redis.Freeze()
	d, err := one.Take(t.Context(), diana.Request{Path: "/", Actors: map[string]string{"account": "b"}})
	if d.Done(); err != nil || !d.Degraded {
		t.Fatalf("%v, %+v", err, d)
	}
	testproc.Eventually(t, func() bool { return one.Status().Degraded && other.Status().Degraded })
	redis.Thaw()
	testproc.Eventually(t, func() bool { return !one.Status().Degraded && !other.Status().Degraded })
	wantSpent(t, one, 100, 0, 0) // a share says nothing of the whole limit
	a, b := by(t, one, "a"), by(t, other, "a")
	wantSpent(t, one, 100, 100, 0)
	a.Settle(10)
	a.Settle(400)
	a.Done()
	wantSpent(t, one, 500, 0, 0.4)
	b.Settle(200)
	b.Done()
	c := by(t, one, "a")
	c.Settle(50)
	c.Done()
	wantSpent(t, one, 550, 0, 0.65)
	if err := other.Reset(t.Context(), other.Status().Rules[0].Name, "a"); err != nil {
		t.Fatal(err)
	}
	testproc.Eventually(t, func() bool { return one.Status().Rules[0].SpentRatio == 0 })
}

// The sum of what many requests at the same time cost is exact, and nothing stays reserved.
func TestSpentIsExact(t *testing.T) {
	t.Parallel()
	l := limiter(t, "{url: /, rules: [{actor: account, unit: total, rpu: 1000000, algo: W, cost: {answer: /n, reserve: 10}}]}")
	var clients sync.WaitGroup
	for c := range 8 {
		clients.Go(func() {
			for i := range 250 {
				d := by(t, l, fmt.Sprint(i%5))
				if (c+i)%4 > 0 {
					d.Settle(int64(i % 4 * 10))
				}
				d.Done()
			}
		})
	}
	clients.Wait()
	want, most := int64(0), int64(0)
	of := map[int]int64{}
	for c := range 8 {
		for i := range 250 {
			n := int64(10)
			if (c+i)%4 > 0 {
				n = int64(i % 4 * 10)
			}
			want += n
			of[i%5] += n
			most = max(most, of[i%5])
		}
	}
	r := l.Status().Rules[0]
	if r.Cost != want || r.Reserved != 0 || r.SpentRatio > float64(most)/1e6 {
		t.Errorf("cost %d, reserved %d, spent %v, want %d, 0 and at most %v", r.Cost, r.Reserved, r.SpentRatio, want, float64(most)/1e6)
	}
}
