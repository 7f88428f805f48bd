// SPDX-License-Identifier: MIT

package diana_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/config"
	"github.com/diana-limiter/diana/internal/decide"
	"github.com/diana-limiter/diana/internal/redistest"
	"github.com/diana-limiter/diana/internal/testproc"
)

// An event is the decision about a request, and its time.
type event struct {
	name    string
	at      time.Duration
	allowed bool
}

func (e event) String() string {
	if e.allowed {
		return fmt.Sprintf("%s %v", e.name, e.at)
	}
	return fmt.Sprintf("%s refused %v", e.name, e.at)
}

// timeline sends the requests of a test one after another, in fake time.
type timeline struct {
	t     *testing.T
	l     *diana.Limiter
	start time.Time

	mu     sync.Mutex
	events []event
	wg     sync.WaitGroup
}

func newTimeline(t *testing.T, yaml string) *timeline {
	return &timeline{t: t, l: limiter(t, yaml), start: time.Now()}
}

// send sends a request now, and returns when the request waits or is decided.
func (s *timeline) send(ctx context.Context, name string, r diana.Request) {
	s.wg.Go(func() {
		sent := time.Now()
		d, err := s.l.Take(ctx, r)
		if err != nil && !errors.Is(err, ctx.Err()) {
			s.t.Error(err)
		}
		if waited := time.Since(sent); d.Allowed && d.Delayed != waited {
			s.t.Errorf("%s: delayed %v after %v", name, d.Delayed, waited)
		}
		s.mu.Lock()
		s.events = append(s.events, event{name, time.Since(s.start), d.Allowed})
		s.mu.Unlock()
		d.Done()
	})
	synctest.Wait()
}

// want waits until all requests are decided, and compares their events.
func (s *timeline) want(want ...string) {
	s.t.Helper()
	s.wg.Wait()
	var got []string
	for _, e := range s.events {
		got = append(got, e.String())
	}
	slices.Sort(got) // requests of the same moment are recorded in any order
	slices.Sort(want)
	if !slices.Equal(got, want) {
		s.t.Errorf("got  %s\nwant %s", strings.Join(got, ", "), strings.Join(want, ", "))
	}
	s.events = nil
}

// Requests that arrive at once proceed at moments that depend on the algorithm.
func TestWaitProceedsAtItsTime(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ rule, want string }{
		// One proceeds each 100 ms. The seventh would have to wait for 600 ms.
		{"rpu: 10, burst: 1, wait: 500ms", "1 0s, 7 refused 0s, 8 refused 0s, 2 100ms, 3 200ms, 4 300ms, 5 400ms, 6 500ms"},
		{"rpu: 10, burst: 3, wait: 250ms", "1 0s, 2 0s, 3 0s, 6 refused 0s, 7 refused 0s, 8 refused 0s, 4 100ms, 5 200ms"},
		{"rpu: 10, burst: 1, wait: 99ms", "1 0s, 2 refused 0s, 3 refused 0s, 4 refused 0s, 5 refused 0s, 6 refused 0s, 7 refused 0s, 8 refused 0s"},
		// The clock of synctest starts at the beginning of a second.
		{"rpu: 2, algo: W, wait: 2s", "1 0s, 2 0s, 7 refused 0s, 8 refused 0s, 3 1s, 4 1s, 5 2s, 6 2s"},
		{"rpu: 2, algo: SL, wait: 2s", "1 0s, 2 0s, 7 refused 0s, 8 refused 0s, 3 1s, 4 1s, 5 2s, 6 2s"},
		{"rpu: 3, algo: SW, slices: 2, wait: 1500ms", "1 0s, 2 0s, 3 0s, 7 refused 0s, 8 refused 0s, 4 1.5s, 5 1.5s, 6 1.5s"},
		{"rpu: 0, wait: 10s", "1 refused 0s, 2 refused 0s, 3 refused 0s, 4 refused 0s, 5 refused 0s, 6 refused 0s, 7 refused 0s, 8 refused 0s"},
		{"rpu: 1, wait: 10s, mode: shadow", "1 0s, 2 0s, 3 0s, 4 0s, 5 0s, 6 0s, 7 0s, 8 0s"},
		{"rpu: 1, scope: global, on_error: closed, wait: 10s", "1 refused 0s, 2 refused 0s, 3 refused 0s, 4 refused 0s, 5 refused 0s, 6 refused 0s, 7 refused 0s, 8 refused 0s"},
		{"rpu: 10, burst: 1, scope: global, wait: 100ms", "1 0s, 3 refused 0s, 4 refused 0s, 5 refused 0s, 6 refused 0s, 7 refused 0s, 8 refused 0s, 2 100ms"},
	} {
		t.Run(tc.rule, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newTimeline(t, "{url: /, rules: [{"+tc.rule+"}]}")
				for i := range 8 {
					s.send(t.Context(), fmt.Sprint(i+1), diana.Request{})
				}
				s.want(strings.Split(tc.want, ", ")...)
			})
		})
	}
}

// A request that arrives while others wait goes to the end of the queue, even at the moment at which
// the head proceeds. Other actors do not wait.
func TestWaitKeepsOrderOfArrival(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newTimeline(t, "{url: /, rules: [{actor: device, rpu: 2, algo: W, wait: 2s}]}")
		time.Sleep(500 * time.Millisecond)
		s.start = time.Now()
		for i := range 4 {
			s.send(t.Context(), fmt.Sprint("x", i+1), device("/", "x"))
		}
		s.send(t.Context(), "y1", device("/", "y"))
		time.Sleep(500 * time.Millisecond) // the window of x3 and x4 begins
		s.send(t.Context(), "x5", device("/", "x"))
		s.send(t.Context(), "y2", device("/", "y"))
		s.want("x1 0s", "x2 0s", "y1 0s", "x3 500ms", "x4 500ms", "y2 500ms", "x5 1.5s")
	})
}

// Requests wait for a slot of a concurrency limit in order of arrival. The head proceeds as soon as a
// slot is released, and is refused when its wait is over.
func TestWaitForSlot(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, "{url: /, rules: [{rpu: 2, algo: C, wait: 1s}]}")
		s := &timeline{t: t, l: l, start: time.Now()}
		for i := range 10 {
			s.wg.Go(func() {
				d, err := l.Take(t.Context(), diana.Request{})
				if err != nil {
					t.Error(err)
				}
				s.mu.Lock()
				s.events = append(s.events, event{fmt.Sprint(i + 1), time.Since(s.start), d.Allowed})
				s.mu.Unlock()
				if d.Allowed {
					time.Sleep(300 * time.Millisecond)
				}
				d.Done()
			})
			synctest.Wait()
		}
		s.want("1 0s", "2 0s", "3 300ms", "4 300ms", "5 600ms", "6 600ms", "7 900ms", "8 900ms", "9 refused 1s", "10 refused 1s")
		if got := ask(t, l, diana.Request{}); !got.Allowed {
			t.Errorf("a slot was not released: %+v", got)
		}
	})
}

// A request of one gateway waits for a slot that a request of another gateway releases in Redis. There
// are never more requests in flight than the limit allows.
func TestWaitForSlotOfAnotherGateway(t *testing.T) {
	t.Parallel()
	all := gateways(t, 2, redistest.Start(t).URL(), "5s", "- {url: /, rules: [{rpu: 3, algo: C, wait: 60s, scope: global}]}")
	var inside, most, done atomic.Int64
	var wg sync.WaitGroup
	for i := range 40 {
		wg.Go(func() {
			d, err := all[i%2].Take(context.Background(), diana.Request{})
			if err != nil || !d.Allowed {
				t.Errorf("request %d: %v, %v", i, d.Allowed, err)
				return
			}
			now := inside.Add(1)
			for m := most.Load(); now > m && !most.CompareAndSwap(m, now); m = most.Load() {
			}
			testproc.Becomes(func() bool { return most.Load() >= 3 }) // the second gateway asks a while later
			time.Sleep(5 * time.Millisecond)
			inside.Add(-1)
			done.Add(1)
			d.Done()
		})
	}
	wg.Wait()
	if most.Load() != 3 || done.Load() != 40 {
		t.Errorf("%d were inside at once and %d of 40 proceeded, want 3 and all", most.Load(), done.Load())
	}
}

// When a client disconnects, its request leaves the queue, and the requests behind move up.
func TestWaitOfDisconnectedClient(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newTimeline(t, "{url: /, rules: [{name: r, rpu: 10, burst: 1, wait: 300ms}]}")
		ctx, leave := context.WithCancel(t.Context())
		s.send(t.Context(), "1", diana.Request{})
		s.send(ctx, "2", diana.Request{})
		s.send(t.Context(), "3", diana.Request{})
		s.send(t.Context(), "4", diana.Request{})
		s.send(t.Context(), "5", diana.Request{})
		time.Sleep(50 * time.Millisecond)
		leave()
		synctest.Wait()
		s.send(t.Context(), "6", diana.Request{})
		s.want("1 0s", "5 refused 0s", "2 refused 50ms", "3 100ms", "4 200ms", "6 300ms")
		if c := countsOf(s.l.Status().Rules[0]); c != (ruleCounts{Allowed: 1, Refused: 1, Delayed: 3}) {
			t.Errorf("counts %+v", c)
		}
	})
}

// A refused request gets the time after which it would be allowed.
func TestWaitRefusalHasRetryAfter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newTimeline(t, `
- url: /
  rules: [{name: wide, unit: minute, rpu: 3, burst: 1, wait: 45s}, {name: all, rpu: 100}]
`)
		for i := range 3 {
			s.send(t.Context(), fmt.Sprint(i+1), diana.Request{})
		}
		d, err := s.l.Take(t.Context(), diana.Request{})
		if err != nil || d.Allowed || d.RetryAfter != time.Minute {
			t.Errorf("%v %+v, want a refusal for a minute", err, d)
		}
		if v := d.Verdicts; !v[0].Refused() || v[1].Refused() {
			t.Errorf("verdicts %+v", v)
		}
		d.Done()
		s.want("1 0s", "2 20s", "3 40s")
	})
}

// Under several rules a request waits for all that refuse it, and is charged to all at once.
func TestWaitSeveralRules(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newTimeline(t, `
- url: /
  rules:
    - {name: all, rpu: 10, burst: 1, wait: 1s}
    - {name: own, actor: device, rpu: 1, wait: 1s}
    - {name: hard, actor: "header:X-Hard", unit: hour, rpu: 2}
`)
		request := func(device, hard string) diana.Request {
			return diana.Request{Actors: map[string]string{"device": device, "header:X-Hard": hard}}
		}
		s.send(t.Context(), "x1", request("x", "a"))
		s.send(t.Context(), "x2", request("x", "a")) // in the queue of own, for a second
		s.send(t.Context(), "y1", request("y", "b")) // does not wait for x2
		s.send(t.Context(), "z1", request("z", "b"))
		s.send(t.Context(), "x3", request("x", "c")) // would be allowed in two seconds
		s.send(t.Context(), "v1", request("v", "b")) // is in the queue of all, because b is not used up yet
		s.send(t.Context(), "w1", request("w", "d"))
		time.Sleep(250 * time.Millisecond)
		s.send(t.Context(), "u1", request("u", "b")) // b is used up: it joins no queue
		s.want("x1 0s", "x3 refused 0s", "y1 100ms", "z1 200ms", "v1 refused 200ms", "u1 refused 250ms", "w1 300ms", "x2 1s")
		var got []string
		for _, r := range s.l.Status().Rules {
			got = append(got, fmt.Sprintf("%s %+v", r.Name, countsOf(r)))
		}
		want := "all {Allowed:2 Refused:3 ShadowRefused:0 Delayed:3}, own {Allowed:4 Refused:1 ShadowRefused:0 Delayed:1}, hard {Allowed:5 Refused:2 ShadowRefused:0 Delayed:0}"
		if s := strings.Join(got, ", "); s != want {
			t.Errorf("counts %s\nwant   %s", s, want)
		}
	})
}

// A request that waits for its own rule, and then for the rule of all, keeps its order of arrival.
func TestWaitMovesToAnotherQueue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newTimeline(t, `
- url: /
  rules:
    - {name: all, rpu: 1, algo: W, unit: 2s, wait: 10s}
    - {name: own, actor: device, rpu: 1, algo: W, unit: 1s, wait: 10s}
`)
		s.send(t.Context(), "x1", device("/", "x"))
		time.Sleep(1500 * time.Millisecond)
		s.send(t.Context(), "x2", device("/", "x"))
		s.send(t.Context(), "y1", device("/", "y"))
		s.send(t.Context(), "x3", device("/", "x"))
		time.Sleep(400 * time.Millisecond)
		s.send(t.Context(), "y2", device("/", "y"))
		s.want("x1 0s", "x2 2s", "y1 4s", "x3 6s", "y2 8s")
	})
}

// With a leaky bucket a request first waits for the other rule, and then for its scheduled time.
func TestWaitAndLeakyBucket(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newTimeline(t, `
- url: /
  rules:
    - {rpu: 3, algo: W, wait: 1s}
    - {rpu: 10, algo: LB}
`)
		for i := range 5 {
			s.send(t.Context(), fmt.Sprint(i+1), diana.Request{})
		}
		s.want("1 0s", "2 100ms", "3 200ms", "4 1s", "5 1.1s")
	})
}

// A request that leaves the queue of a leaky bucket refunds its charges, and a waiter can use them.
func TestWaitForRefundOfLeakyBucket(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newTimeline(t, `
- url: /
  rules:
    - {rpu: 2, unit: 5m, algo: SL, wait: 10m}
    - {rpu: 1, unit: 4s, algo: LB, queue: 2}
`)
		ctx, leave := context.WithCancel(t.Context())
		s.send(t.Context(), "1", diana.Request{})
		s.send(ctx, "2", diana.Request{})
		s.send(t.Context(), "3", diana.Request{})
		time.Sleep(2 * time.Second)
		leave()
		s.want("1 0s", "2 refused 2s", "3 4s")
	})
}

// When the configuration changes, waiting requests are decided by the new one.
func TestWaitAcrossReload(t *testing.T) {
	t.Parallel()
	const before = "{url: /, rules: [{name: r, unit: hour, rpu: 3, algo: W, wait: 10m}]}"
	for _, tc := range []struct{ name, after, want string }{
		{"more", "{url: /, rules: [{name: r, unit: hour, rpu: 5, algo: W, wait: 10m}]}", "4 1m0s, 5 1m0s, 6 5m0s"},
		{"no rule", "{url: /other, rules: [{rpu: 1}]}", "4 1m0s, 5 1m0s, 6 1m0s"},
		{"no wait", "{url: /, rules: [{name: r, unit: hour, rpu: 4, algo: W}]}", "4 1m0s, 5 refused 1m0s, 6 refused 1m0s"},
		{"another rule", "{url: /, rules: [{name: s, unit: minute, rpu: 1, algo: SL, wait: 5m}]}", "4 1m0s, 5 2m0s, 6 3m0s"},
		{"the same", before, "4 5m0s, 5 5m0s, 6 5m0s"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := newFolder(t)
				s := &timeline{t: t, l: open(t, quiet, f.write("diana.yaml", before))}
				time.Sleep(55 * time.Minute)
				s.start = time.Now()
				for i := range 6 {
					s.send(t.Context(), fmt.Sprint(i+1), diana.Request{Path: "/"})
				}
				time.Sleep(time.Minute)
				f.write("diana.yaml", tc.after)
				if err := s.l.Reload(); err != nil {
					t.Fatal(err)
				}
				s.want(strings.Split("1 0s, 2 0s, 3 0s, "+tc.want, ", ")...)
			})
		})
	}
}

// When many requests arrive at once, no interval has more than the rule allows, and no allowed request
// waits for longer than the rule says. The limit is used completely. A busy machine can be too late for that, so each try
// doubles the unit.
func TestWaitKeepsLimitConcurrently(t *testing.T) {
	t.Parallel()
	// The most within a unit. With W two windows meet at an edge.
	for algo, within := range map[string]int{"TB, burst: 25": 75, "SL": 50, "SW": 50, "W": 100} {
		t.Run(algo, func(t *testing.T) {
			t.Parallel()
			unit := 200 * time.Millisecond
			n := keepsLimit(t, algo, within, unit)
			for ; n < 100 && unit < 3*time.Second; n = keepsLimit(t, algo, within, unit) {
				unit *= 2
			}
			if n < 100 {
				t.Errorf("%d passed, want 100 or more", n)
			}
		})
	}
}

// keepsLimit sends 300 requests at once under a rule of 50, and returns how many pass.
func keepsLimit(t *testing.T, algo string, within int, unit time.Duration) int {
	t.Helper()
	l := limiter(t, fmt.Sprintf("{url: /, rules: [{rpu: 50, unit: %v, algo: %s, wait: %v}, {actor: device, rpu: 1000, wait: 100ms}]}", unit, algo, 3*unit))
	var mu sync.Mutex
	began := time.Now()
	type pass struct{ earliest, latest time.Time } // bounds of the moment
	var passed []pass
	var refused atomic.Int64
	var wg sync.WaitGroup
	for i := range 300 {
		wg.Go(func() {
			sent := time.Now()
			d, err := l.Take(context.Background(), device("/", fmt.Sprint(i%3)))
			if err != nil {
				t.Error(err)
			}
			if d.Allowed {
				mu.Lock()
				passed = append(passed, pass{sent.Add(d.Delayed), time.Now()})
				mu.Unlock()
			} else {
				refused.Add(1)
			}
			d.Done()
		})
	}
	wg.Wait()
	// Three units and the stored tokens of the start, less what is lost because waiters wake late.
	n, most := len(passed), 100+50*int(time.Since(began)/unit)
	if n > most || n+int(refused.Load()) != 300 {
		t.Errorf("%d passed, of at most %d, and %d were refused of 300", n, most, refused.Load())
	}
	for _, first := range passed {
		surely := 0 // within the following unit; the limiter's clock has microseconds
		for _, p := range passed {
			if !p.earliest.Before(first.earliest) && p.latest.Before(first.earliest.Add(unit-2*time.Microsecond)) {
				surely++
			}
		}
		if surely > within {
			t.Errorf("%d passed within a unit, want at most %d", surely, within)
		}
	}
	for _, r := range l.Status().Rules {
		if got := r.Allowed + r.Delayed; got != int64(len(passed)) {
			t.Errorf("%s: %d are counted as passed, want %d", r.Name, got, len(passed))
		}
	}
	if !l.Idle() {
		t.Error("a request still waits")
	}
	return n
}

// Clients that disconnect, reloads and several rules leave no request and no charge behind.
func TestWaitLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	f := newFolder(t)
	text := func(n int) string {
		return fmt.Sprintf("{url: /, rules: [{rpu: %d, unit: 100ms, wait: 50ms}, {actor: device, rpu: 20, unit: 100ms, algo: SL, wait: 30ms}]}", n)
	}
	file := f.write("diana.yaml", text(30))
	l := open(t, quiet, file)
	var wg sync.WaitGroup
	var passed atomic.Int64
	began := time.Now()
	for i := range 64 {
		wg.Go(func() {
			for n := range 60 {
				ctx, leave := context.WithTimeout(context.Background(), time.Duration((i*7+n*13)%70)*time.Millisecond)
				d, err := l.Take(ctx, device("/", fmt.Sprint(i%4)))
				if err == nil && d.Allowed {
					passed.Add(1)
				}
				d.Done()
				leave()
			}
		})
	}
	for i := range 10 {
		f.write("diana.yaml", text(30+i%2))
		if err := l.Reload(); err != nil {
			t.Error(err)
		}
	}
	wg.Wait()
	took := time.Since(began)
	if n, most := passed.Load(), 31+31*int64(took/(100*time.Millisecond)+1); n == 0 || n > most {
		t.Errorf("%d passed in %v, want at most %d", n, took, most)
	}
	if !l.Idle() {
		t.Error("a request still waits")
	}
}

// The number of waiting requests is bounded, for all actors together.
func TestWaitIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, "{url: /, rules: [{actor: device, rpu: 1, wait: 10s}]}")
		ctx, leave := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		var refused atomic.Int64
		const actors = 1500
		for i := range actors * 9 {
			wg.Go(func() {
				d, err := l.Take(ctx, device("/", fmt.Sprint(i%actors)))
				if err == nil && !d.Allowed {
					refused.Add(1)
				}
				d.Done()
			})
		}
		synctest.Wait()
		if got := refused.Load(); got != actors*8-decide.MaxWaiting {
			t.Errorf("%d are refused, want all but %d of those that would wait", got, decide.MaxWaiting)
		}
		leave()
		wg.Wait()
		if !l.Idle() {
			t.Error("a request still waits")
		}
	})
}

// A body is read before the request waits, because otherwise a disconnected client is not noticed.
func TestWaitReadsBodyFirst(t *testing.T) {
	t.Parallel()
	l := limiter(t, "{url: /, rules: [{unit: minute, rpu: 1, algo: W, align: first, wait: 10m}]}")
	server := httptest.NewServer(l.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(w, r.Body)
	})))
	defer server.Close()
	ask(t, l, diana.Request{})
	ctx, leave := context.WithCancel(t.Context())
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		r, err := http.NewRequestWithContext(ctx, "POST", server.URL, strings.NewReader("hello"))
		if err != nil {
			t.Error(err)
		}
		if answer, err := http.DefaultClient.Do(r); err == nil {
			answer.Body.Close()
			t.Errorf("answered with %d, want it to wait", answer.StatusCode)
		}
	}()
	testproc.Eventually(t, func() bool { return !l.Idle() })
	leave()
	<-gone
	testproc.Eventually(t, l.Idle)
}

// Waiting requests of all gateways together get what a global limit allows, and not more.
func TestWaitForGlobalLimit(t *testing.T) {
	t.Parallel()
	all := gateways(t, 2, redistest.Start(t).URL(), "10s", `
- url: /
  rules: [{name: r, unit: 200ms, rpu: 20, burst: 20, algo: TB, scope: global, wait: 1m}]
`)
	began := time.Now()
	got := crowd(t, all, 60, 1, diana.Request{Path: "/"})
	took := time.Since(began)
	if sum(got) != 120 {
		t.Errorf("%v passed, want all 120", got)
	}
	// The first 20 proceed at once and the rest at 100 a second, by the clock of Redis.
	if took < 980*time.Millisecond {
		t.Errorf("120 passed within %v, want a second", took)
	}
	delayed := all[0].Status().Rules[0].Delayed + all[1].Status().Rules[0].Delayed
	if delayed < 60 { // a request behind waiting ones waits too, even if something is left
		t.Errorf("%d were delayed, want 100 or more", delayed)
	}
	if !all[0].Idle() || !all[1].Idle() {
		t.Error("a request still waits")
	}
}

// A request that costs more than the limit ever allows is refused at once. It must not hold up the
// requests behind it.
func TestWaitRefusesTooHighCost(t *testing.T) {
	t.Parallel()
	for _, limit := range []string{
		"rpu: 10, burst: 2", "rpu: 10, burst: 2, warmup: 1s", "rpu: 2, algo: W", "rpu: 2, algo: SW", "rpu: 2, algo: SL",
		"rpu: 9, overrides: {x: {rpu: 2}}, algo: W", "rpu: 2, algo: W, scope: global",
	} {
		t.Run(limit, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newTimeline(t, "{url: /, rules: [{actor: device, wait: 10s, cost: 'header:X-Cost', "+limit+"}]}")
				request := func(cost int64) diana.Request {
					r := device("/", "x")
					r.Costs = map[string]int64{"X-Cost": cost}
					return r
				}
				s.send(t.Context(), "1", request(3))
				s.send(t.Context(), "2", request(2))
				s.send(t.Context(), "3", request(4))
				s.want("1 refused 0s", "2 0s", "3 refused 0s")
			})
		})
	}
}

// When a charge is refunded while requests wait, the head proceeds.
func TestWaitEndsWithRefund(t *testing.T) {
	t.Parallel()
	for _, limit := range []string{"algo: W", "algo: SW", "algo: SL", "burst: 2", "algo: SW, overrides: {x: {rpu: 2}, y: {rpu: 100000}}"} {
		t.Run(limit, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newTimeline(t, "{url: /, rules: [{name: none, rpu: 0, actor: device, except: [x]}, {actor: device, unit: minute, rpu: 2, charge: [401], wait: 5m, "+limit+"}]}")
				var under [2]diana.Decision
				for i := range under {
					var err error
					if under[i], err = s.l.Take(t.Context(), device("/", "x")); err != nil || !under[i].Allowed {
						t.Fatal("the first two are not allowed", err)
					}
				}
				s.send(t.Context(), "1", device("/", "x"))
				s.send(t.Context(), "2", device("/", "x"))
				time.Sleep(time.Second)
				for i, status := range []int{200, 404} {
					time.Sleep(time.Second)
					under[i].SetStatus(status)
					under[i].Done()
					synctest.Wait()
				}
				s.want("1 2s", "2 3s")
			})
		})
	}
}

// A request proceeds as soon as it can if the requests in front leave while its body is read.
func TestWaitBodyBehindDisconnectedClient(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newTimeline(t, "{url: /, rules: [{unit: minute, rpu: 1, burst: 1, wait: 5m}]}")
		ctx, leave := context.WithCancel(t.Context())
		body, rest := io.Pipe()
		slow := httptest.NewRequest("POST", "/", body)
		slow.ContentLength = 4
		s.send(t.Context(), "1", diana.Request{})
		s.send(ctx, "2", diana.Request{})
		s.wg.Go(func() {
			s.l.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
				s.mu.Lock()
				defer s.mu.Unlock()
				s.events = append(s.events, event{"3", time.Since(s.start), true})
			})).ServeHTTP(httptest.NewRecorder(), slow)
		})
		synctest.Wait()
		leave()
		synctest.Wait()
		_, _ = rest.Write([]byte("body"))
		rest.Close()
		s.want("1 0s", "2 refused 0s", "3 1m0s")
	})
}

// If Redis fails while requests wait for it, they are decided without Redis, and none hangs.
func TestWaitWhenRedisFails(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t)
	l := gateways(t, 1, r.URL(), "5s", `
- url: /
  rules: [{unit: minute, rpu: 600, burst: 1, scope: global, on_error: open, wait: 10s}]
`)[0]
	ask(t, l, diana.Request{Path: "/"})
	done := make(chan []int)
	go func() { done <- crowd(t, []*diana.Limiter{l}, 50, 1, diana.Request{Path: "/"}) }()
	testproc.Eventually(t, func() bool { return !l.Idle() })
	r.Kill()
	if got := <-done; got[0] != 50 {
		t.Errorf("%d passed, want all 50", got[0])
	}
}

// When Redis refuses a request, its local charges are refunded, and a local waiter can use them.
func TestWaitForRefundOfRedisRefusal(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t)
	l := gateways(t, 1, r.URL(), "10s", `
- url: /
  rules: [{actor: device, unit: day, rpu: 1, scope: global}]
- url: /x
  rules: [{unit: 10m, rpu: 1, algo: SL, wait: 10m}]
`)[0]
	if !ask(t, l, device("/", "a")).Allowed {
		t.Fatal("the first is refused")
	}
	r.Freeze()
	ctx, leave := context.WithTimeout(t.Context(), 20*time.Second)
	defer leave()
	var wg sync.WaitGroup
	wg.Go(func() {
		d, err := l.Take(ctx, device("/x", "a"))
		if err == nil && d.Allowed {
			t.Error("Redis lets a second pass")
		}
		d.Done()
	})
	testproc.Eventually(t, func() bool { return l.Status().Keys == 2 }) // it has consumed the limit of /x
	wg.Go(func() {
		d, err := l.Take(ctx, device("/x", "b"))
		if err != nil || !d.Allowed {
			t.Errorf("%v, allowed: %v", err, d.Allowed)
		}
		d.Done()
		leave()
	})
	testproc.Eventually(t, func() bool { return !l.Idle() })
	r.Thaw()
	wg.Wait()
}

// After Redis has come back, the share of this process decides too. A refusal by the share is reported
// as such.
func TestWaitRefusedByShare(t *testing.T) {
	t.Parallel()
	l := gateways(t, 1, redistest.Start(t).URL(), "10s", `
- url: /
  rules: [{unit: 10s, rpu: 1, algo: SL, scope: global, wait: 10s}]
`)[0]
	ask(t, l, diana.Request{})
	ctx, leave := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		d, _ := l.Take(ctx, diana.Request{})
		d.Done()
	})
	testproc.Eventually(t, func() bool { return !l.Idle() })
	d, err := l.Take(t.Context(), diana.Request{}) // behind the one that waits
	if err != nil || d.Allowed || !d.Verdicts[0].Refused() {
		t.Errorf("%v, %+v", err, d.Verdicts)
	}
	d.Done()
	leave()
	wg.Wait()
	if got := l.Status().Rules[0].Refused; got != 1 {
		t.Errorf("%d are counted as refused, want 1", got)
	}
}

// Waiters wake a little late, and each of them delays those behind. All whose time is soon enough on arrival proceed all
// the same. On a busy machine they can be too late all the same. They may be later if the wait is longer, so each
// round doubles the unit.
func TestWaitersBehindLateOnes(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		rule string
		wait float64 // in units
		want int64
	}{
		{"rpu: 2, burst: 1", 2, 5},
		{"rpu: 7", 2, 21},
		{"rpu: 7, algo: SL", 2, 21},
		{"rpu: 7, algo: W, align: first", 2, 21},
		{"rpu: 7, algo: SW, slices: 10", 2.2, 21},
	} {
		t.Run(tc.rule, func(t *testing.T) {
			t.Parallel()
			got := int64(0)
			for unit := 1; unit <= 16 && got != tc.want; unit *= 2 {
				got = proceed(t, limiter(t, fmt.Sprintf("{url: /, rules: [{%s, unit: %ds, wait: %dms}]}", tc.rule, unit, int(tc.wait*1000)*unit)), 30)
			}
			if got != tc.want {
				t.Errorf("%d of 30 proceed, want %d", got, tc.want)
			}
		})
	}
}

// proceed sends requests at once, and returns how many of them proceed.
func proceed(t *testing.T, l *diana.Limiter, requests int) int64 {
	t.Helper()
	var allowed atomic.Int64
	var all sync.WaitGroup
	for range requests {
		all.Go(func() {
			d, err := l.Take(context.Background(), diana.Request{Path: "/"})
			if err != nil {
				t.Error(err)
			}
			if d.Allowed {
				allowed.Add(1)
			}
			d.Done()
		})
	}
	all.Wait()
	return allowed.Load()
}

// The log can say when a request was scheduled, and when it was decided.
func TestScheduledTimeIsLogged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		c, err := config.Parse("test.yaml", []byte("{url: /, rules: [{name: slow, algo: LB, rpu: 1}]}"))
		if err != nil {
			t.Fatal(err)
		}
		l, err := diana.Options{Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))}.New(c)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = l.Close() }()
		start := time.Now().UTC()
		for range 2 {
			ask(t, l, diana.Request{Path: "/"})
		}
		at := start.Add(time.Second).Format("2006-01-02T15:04:05.000Z")
		if want := fmt.Sprintf(`level=DEBUG msg="a request proceeds at its scheduled time" rule=slow scheduled=%s decided=%s`, at, at); strings.Count(log.String(), want) != 1 {
			t.Errorf("%s, want once %s", log.String(), want)
		}
	})
}

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
