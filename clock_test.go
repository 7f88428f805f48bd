// SPDX-License-Identifier: MIT

package diana_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/config"
)

// clocked returns a Limiter whose clock is *now.
func clocked(t testing.TB, yaml string, now *time.Time) *diana.Limiter {
	t.Helper()
	c, err := config.Parse("test.yaml", []byte(yaml))
	if err != nil {
		t.Fatal(err)
	}
	o := quiet
	o.Now = func() time.Time { return *now }
	l, err := o.New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func TestClock(t *testing.T) {
	t.Parallel()
	now := time.Date(2001, 2, 3, 4, 5, 6, 0, time.UTC)
	l := clocked(t, "{url: /, rules: [{algo: W, rpu: 2, unit: minute}]}", &now)
	if since := l.Status().Config.Since; !since.Equal(now) {
		t.Errorf("in force since %v, want %v", since, now)
	}
	if n := count(t, l, 5, diana.Request{}); n != 2 {
		t.Errorf("%d allowed, want 2", n)
	}
	if d := ask(t, l, diana.Request{}); d.RetryAfter != 54*time.Second {
		t.Errorf("retry after %v, want what is left of the minute, 54s", d.RetryAfter)
	}
	now = now.Add(54 * time.Second)
	if n := count(t, l, 5, diana.Request{}); n != 2 {
		t.Errorf("%d allowed in the next minute, want 2", n)
	}
}

// With a clock of the program no request waits, but the decisions are those of the system's clock. The
// same requests at the same moments, under two leaky buckets and a window, have the same delays and
// refusals.
func TestClockDecidesWithoutWaiting(t *testing.T) {
	t.Parallel()
	const yaml = `
- url: /
  rules: [{name: all, algo: LB, rpu: 10, queue: 5}, {name: shadow, algo: LB, rpu: 1, queue: 1, mode: shadow}]
- url: /x
  rules: [{name: slow, algo: LB, rpu: 4, queue: 2}, {algo: SW, rpu: 11, unit: 3s}]
`
	requests := []struct {
		pause time.Duration // before it
		path  string
	}{}
	for i := range 300 {
		requests = append(requests, struct {
			pause time.Duration
			path  string
		}{time.Duration(i*i*7919%149) * time.Millisecond, []string{"/", "/x", "/x"}[i%3]})
	}
	type answer struct {
		allowed bool
		delayed time.Duration
		retry   time.Duration
	}
	var held, told []answer
	var counts []diana.RuleStatus
	start := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC) // at which synctest begins

	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, yaml)
		held = make([]answer, len(requests))
		for i, r := range requests {
			time.Sleep(r.pause)
			go func() {
				d, err := l.Take(context.Background(), diana.Request{Path: r.path})
				if err != nil {
					t.Error(err)
				}
				held[i] = answer{d.Allowed, d.Delayed, d.RetryAfter}
				d.Done()
			}()
			synctest.Wait()
		}
		time.Sleep(time.Minute)
		counts = l.Status().Rules
	})

	now := start
	l := clocked(t, yaml, &now)
	for _, r := range requests {
		now = now.Add(r.pause)
		d := ask(t, l, diana.Request{Path: r.path})
		told = append(told, answer{d.Allowed, d.Delayed, d.RetryAfter})
	}
	for i := range requests {
		if held[i] != told[i] {
			t.Errorf("request %d: %+v when held, %+v when told", i, held[i], told[i])
		}
	}
	for i, r := range l.Status().Rules {
		if countsOf(r) != countsOf(counts[i]) {
			t.Errorf("%s: %+v when held, %+v when told", r.Name, countsOf(counts[i]), countsOf(r))
		}
		if r.Name == "slow" && (r.Delayed == 0 || r.Refused == 0) {
			t.Errorf("%+v: nothing was delayed or refused, so nothing is shown", countsOf(r))
		}
	}
}

// With a clock of the program a bandwidth slows no response.
func TestClockSlowsNoResponse(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		now := time.Date(2001, 2, 3, 4, 5, 6, 0, time.UTC)
		for _, bandwidth := range []string{"1k", "{rate: 1k, actor: ip}"} {
			l := clocked(t, "{url: /, rules: [{rpu: 10, charge: [404]}], bandwidth: "+bandwidth+"}", &now)
			h := l.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 5000)) }))
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			start, w := time.Now(), httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequestWithContext(ctx, "GET", "/", nil))
			if took := time.Since(start); took > 0 || w.Body.Len() != 5000 {
				t.Errorf("%s: %d bytes after %v, want 5000 at once", bandwidth, w.Body.Len(), took)
			}
		}
	})
}
