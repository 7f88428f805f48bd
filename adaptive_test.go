// SPDX-License-Identifier: MIT

package diana_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/config"
	"github.com/diana-limiter/diana/limit"
)

// adaptive returns a Limiter with these rules of one entry.
func adaptive(t *testing.T, o diana.Options, rules ...string) *diana.Limiter {
	t.Helper()
	l, err := o.New(adaptiveConfig(t, rules...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func adaptiveConfig(t *testing.T, rules ...string) *config.Config {
	t.Helper()
	text := "- url: /\n  rules:\n"
	for _, r := range rules {
		text += "    - " + r + "\n"
	}
	c, err := config.Parse("test.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// held returns how many slots the rule ac has in use: its limit less what remains.
func held(t *testing.T, l *diana.Limiter) int64 {
	t.Helper()
	_, verdicts, err := l.PeekActor(t.Context(), "ac", "all")
	if err != nil || len(verdicts) != 1 {
		t.Fatal(verdicts, err)
	}
	s, _ := l.RuleStatus("ac")
	return s.Limit - verdicts[0].Remaining
}

func takes(t *testing.T, l *diana.Limiter, r diana.Request) diana.Decision {
	t.Helper()
	d, err := l.Take(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// It is asked last, and its refusal charges no other rule. Every slot comes back.
func TestAdaptiveIsAskedLast(t *testing.T) {
	t.Parallel()
	l := adaptive(t, diana.Options{}, "{name: ac, algo: AC, rpu: 3}", "{name: w, algo: W, unit: hour, rpu: 100}", "{name: c, algo: C, rpu: 50}")
	var all []diana.Decision
	for range 3 {
		all = append(all, takes(t, l, diana.Request{Path: "/"}))
	}
	refused := takes(t, l, diana.Request{Path: "/"})
	if refused.Allowed || refused.RetryAfter < time.Second || refused.RetryAfter > 3*time.Second {
		t.Errorf("%+v, expected a refusal and 1 to 3 s", refused)
	}
	refused.Done()
	for i := range all {
		all[i].Done()
		all[i].Done()
	}
	_, verdicts, err := l.PeekActor(t.Context(), "w", "all")
	if err != nil || verdicts[0].Remaining != 97 {
		t.Errorf("%v, %v, expected three requests to count", verdicts, err)
	}
	if n := held(t, l); n != 0 {
		t.Errorf("%d slots are held after all requests", n)
	}
	s, _ := l.RuleStatus("ac")
	if s.Shed[""] != 1 || s.Refused != 1 || s.Ceiling != 3 {
		t.Errorf("%+v, expected one refusal", s)
	}
}

// The lower limit counts.
func TestAdaptiveWithConcurrency(t *testing.T) {
	t.Parallel()
	l := adaptive(t, diana.Options{}, "{algo: AC, rpu: 100}", "{algo: C, rpu: 2}")
	first, second, third := takes(t, l, diana.Request{Path: "/"}), takes(t, l, diana.Request{Path: "/"}), takes(t, l, diana.Request{Path: "/"})
	if !first.Allowed || !second.Allowed || third.Allowed {
		t.Error("expected two slots")
	}
	first.Done()
	second.Done()
	third.Done()
}

func TestAdaptiveRefusal(t *testing.T) {
	t.Parallel()
	c := adaptiveConfig(t, "{algo: AC, rpu: 1, priority: 'client:X-Priority', priorities: [high, low]}")
	c.Response.Status = http.StatusTooManyRequests
	l, err := diana.Options{}.New(c)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	d := takes(t, l, diana.Request{Path: "/"})
	defer d.Done()
	seen := map[int]bool{}
	for i := range 60 {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set("X-Account-Id", strconv.Itoa(i))
		r.Header.Set("X-Priority", "high")
		w := httptest.NewRecorder()
		l.Handler(http.NotFoundHandler()).ServeHTTP(w, r)
		after, err := strconv.Atoi(w.Header().Get("Retry-After"))
		if w.Code != http.StatusServiceUnavailable || err != nil || after < 1 || after > 3 {
			t.Fatalf("%d, Retry-After %q, expected 503 and 1 to 3", w.Code, w.Header().Get("Retry-After"))
		}
		seen[after] = true
	}
	if len(seen) != 3 {
		t.Errorf("Retry-After is one of %v, expected 1, 2 and 3", seen)
	}
	if s := l.Status().Rules[0]; s.Shed["high"] != 60 || s.Shed["low"] != 0 {
		t.Errorf("%v, expected 60 refusals of the priority high", s.Shed)
	}
}

// Under overload the limit falls to what the upstream can do, whatever part of the response is measured. No slot
// leaks: of clients that leave, of handlers that panic, and across changes of the rule.
func TestAdaptiveHandler(t *testing.T) {
	t.Parallel()
	for _, measure := range []string{"begin", "byte", "end"} {
		synctest.Test(t, func(t *testing.T) {
			rule := "{name: ac, algo: AC, rpu: %d, measure: " + measure + "}"
			l := adaptive(t, diana.Options{}, fmt.Sprintf(rule, 500))
			var mu sync.Mutex // one worker
			h := l.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/panics" {
					panic(http.ErrAbortHandler)
				}
				for !mu.TryLock() {
					time.Sleep(time.Millisecond)
				}
				time.Sleep(20 * time.Millisecond)
				mu.Unlock()
				w.WriteHeader(http.StatusOK)
				_, _ = w.Write([]byte("x"))
			}))
			var all sync.WaitGroup
			for i := range 8000 {
				all.Go(func() {
					defer func() { _ = recover() }()
					path := "/"
					if i%50 == 0 {
						path = "/panics"
					}
					ctx, cancel := context.WithCancel(t.Context())
					if i%7 == 0 {
						time.AfterFunc(5*time.Millisecond, cancel)
					}
					defer cancel()
					h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, http.MethodPost, path, strings.NewReader("body")))
				})
				time.Sleep(5 * time.Millisecond)
				if i == 500 {
					if err := l.Update(adaptiveConfig(t, "{name: other, rpu: 1000000}")); err != nil {
						t.Error(err)
					}
				}
				if i == 510 {
					if err := l.Update(adaptiveConfig(t, fmt.Sprintf(rule, 100))); err != nil {
						t.Error(err)
					}
				}
			}
			s, _ := l.RuleStatus("ac")
			if s.Limit > 12 || s.Baseline < 0.015 || s.Baseline > 0.25 {
				t.Errorf("measured to the %s: a limit of %d and a baseline of %v s, expected few and 20 ms", measure, s.Limit, s.Baseline)
			}
			all.Wait()
			if n := held(t, l); n != 0 {
				t.Errorf("%d slots are held after all requests", n)
			}
		})
	}
}

// With wait, the last to arrive is the first of its priority, and no lower priority enters before a higher one.
func TestAdaptiveWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := adaptive(t, diana.Options{}, "{name: ac, algo: AC, rpu: 1, wait: 1s, priority: 'client:X', priorities: [high, low]}")
		request := func(priority string) diana.Request {
			return diana.Request{Path: "/", Actors: map[string]string{"priority": priority}}
		}
		first := takes(t, l, request("high"))
		order := make(chan string, 10)
		var all sync.WaitGroup
		for _, who := range []string{"low 1", "high 1", "low 2", "high 2"} {
			all.Go(func() {
				priority, _, _ := strings.Cut(who, " ")
				d, err := l.Take(t.Context(), request(priority))
				if err != nil || !d.Allowed {
					order <- "refused " + who
				} else {
					order <- who
					time.Sleep(10 * time.Millisecond)
				}
				d.Done()
			})
			time.Sleep(time.Millisecond)
		}
		first.Done()
		all.Wait()
		close(order)
		var got []string
		for who := range order {
			got = append(got, who)
		}
		if fmt.Sprint(got) != "[high 2 high 1 low 2 low 1]" {
			t.Errorf("%v, expected the last of the highest priority first", got)
		}
		blocked := takes(t, l, request("low"))
		late := takes(t, l, request("low"))
		if late.Allowed || late.RetryAfter < time.Second {
			t.Errorf("%+v, expected a refusal after a second", late)
		}
		late.Done()
		blocked.Done()
		if n := held(t, l); n != 0 || l.Waiting() != 0 {
			t.Errorf("%d slots are held, %d wait", n, l.Waiting())
		}
	})
}

// A handler that streams reports its latency when it begins, and keeps its slot to the end, or gives it up.
func TestAdaptiveHold(t *testing.T) {
	t.Parallel()
	for _, hold := range []string{"begin", "end"} {
		l := adaptive(t, diana.Options{MeasureBegin: true}, "{name: ac, algo: AC, rpu: 10, hold: "+hold+"}")
		want := map[string]int64{"begin": 0, "end": 1}[hold]
		h := l.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if n := held(t, l); n != 1 {
				t.Errorf("%d slots are held before the response", n)
			}
			w.WriteHeader(http.StatusOK)
			if n := held(t, l); n != want {
				t.Errorf("hold: %s: %d slots are held during the response, expected %d", hold, n, want)
			}
		}))
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil))
		if n := held(t, l); n != 0 {
			t.Errorf("%d slots are held after the response", n)
		}
	}
}

// No other scope learns from the requests of one process.
func TestAdaptiveScope(t *testing.T) {
	t.Parallel()
	c := adaptiveConfig(t, "{name: ac, rpu: 3}")
	c.Limits[0].Rules[0].Algorithm = limit.AdaptiveConcurrency()
	c.Limits[0].Rules[0].Limit.Unit = 0
	c.Limits[0].Rules[0].Scope = "global"
	if l, err := (diana.Options{}).New(c); err == nil {
		_ = l.Close()
		t.Error("a global rule of adaptive concurrency is accepted")
	}
}
