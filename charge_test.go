// SPDX-License-Identifier: MIT

package diana_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/internal/redistest"
	"github.com/diana-limiter/diana/internal/testproc"
)

// answering returns a handler that answers with the status in the query.
func answering(l *diana.Limiter) http.Handler {
	return l.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		status, err := strconv.Atoi(r.URL.Query().Get("status"))
		if err == nil {
			w.WriteHeader(status)
		}
	}))
}

// statusOf sends a request whose handler answers with that status, and returns the status of the answer.
func statusOf(h http.Handler, status string) int {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("POST", "/login?status="+status, nil))
	return w.Code
}

// Only failed logins count, under every algorithm.
func TestChargeCountsFailures(t *testing.T) {
	t.Parallel()
	for _, algo := range []string{"TB", "W", "SW", "SL"} {
		synctest.Test(t, func(t *testing.T) {
			h := answering(limiter(t, "{url: /login, rules: [{algo: "+algo+", unit: hour, rpu: 3, charge: [401, 403]}]}"))
			failed := 0
			for i := range 100 {
				time.Sleep(time.Second)
				if got := statusOf(h, []string{"200", "204", "302", "500"}[i%4]); got == 503 {
					t.Fatalf("%s: refused after %d failures", algo, failed)
				}
				if i%40 == 20 {
					failed++
					if got := statusOf(h, []string{"401", "403"}[failed%2]); got == 503 {
						t.Fatalf("%s: failure %d is refused", algo, failed)
					}
				}
			}
			if got := statusOf(h, "401"); got != 401 {
				t.Errorf("%s: the third failure got %d", algo, got)
			}
			for _, status := range []string{"200", "401"} {
				if got := statusOf(h, status); got != 503 {
					t.Errorf("%s: after three failures one with %s got %d, want 503", algo, status, got)
				}
			}
		})
	}
}

// A request in flight counts until its status is known. So of many attempts at once no more are allowed
// than are left. An attempt that succeeds is refunded.
func TestChargeCountsRequestsInFlight(t *testing.T) {
	t.Parallel()
	for _, algo := range []string{"TB", "W", "SW", "SL"} {
		synctest.Test(t, func(t *testing.T) {
			l := limiter(t, "{url: /, rules: [{algo: "+algo+", unit: day, rpu: 5, charge: [401]}]}")
			status := make(chan int)
			inside := 0
			var mu sync.Mutex
			h := l.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				mu.Lock()
				inside++
				mu.Unlock()
				w.WriteHeader(<-status)
			}))
			for failed, left := range []int{5, 5, 4, 2} {
				inside = 0
				for range 50 {
					go h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
				}
				synctest.Wait()
				if inside != left {
					t.Fatalf("%s: %d of 50 are inside, want %d", algo, inside, left)
				}
				for i := range left {
					if i < failed {
						status <- 401
					} else {
						status <- 200
					}
				}
				synctest.Wait()
			}
			if got := count(t, l, 5, diana.Request{}); got != 0 {
				t.Errorf("%s: %d pass after five failures, want none", algo, got)
			}
		})
	}
}

// The caller of Take reports the status by SetStatus. A request without a status is not refunded, nor is
// a refused one, and no request is refunded twice.
func TestSetStatusRefundsOnce(t *testing.T) {
	t.Parallel()
	l := limiter(t, "{url: /, rules: [{algo: SW, unit: day, rpu: 4, charge: [401]}, {name: hidden, algo: W, unit: day, rpu: 2, charge: [401], mode: shadow}]}")
	left := func() int64 {
		t.Helper()
		d, err := l.Take(context.Background(), diana.Request{})
		if err != nil {
			t.Fatal(err)
		}
		defer d.Done()
		defer d.SetStatus(200)
		if !d.Allowed {
			return 0
		}
		return d.Verdicts[0].Remaining + 1
	}
	for i, row := range []struct {
		tell func(*diana.Decision)
		want int64
	}{
		{func(d *diana.Decision) { d.SetStatus(200); d.Done() }, 4},
		{func(d *diana.Decision) { d.SetStatus(200); d.SetStatus(200); d.Done(); d.SetStatus(200) }, 4},
		{func(d *diana.Decision) { d.SetStatus(401); d.Done() }, 3},
		{func(d *diana.Decision) { d.SetStatus(401); d.SetStatus(200); d.Done() }, 2},
		{func(d *diana.Decision) { d.Done() }, 1},
		{func(d *diana.Decision) { e := *d; d.Done(); left(); e.SetStatus(200) }, 0},
		{func(d *diana.Decision) { d.SetStatus(200); d.Done() }, 0}, // a refusal
	} {
		d, err := l.Take(context.Background(), diana.Request{})
		if err != nil {
			t.Fatal(err)
		}
		row.tell(&d)
		if got := left(); got != row.want {
			t.Errorf("row %d: %d are left, want %d", i, got, row.want)
		}
	}
	for _, r := range l.Status().Rules {
		if r.Name == "hidden" && r.ShadowRefused == 0 {
			t.Errorf("the shadow: %+v", r)
		}
	}
	new(diana.Decision).SetStatus(200)
}

// copyOrFail answers with the text of from, or with 401 if that is empty.
func copyOrFail(from io.Reader) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		if n, err := io.Copy(w, struct{ io.Reader }{from}); n == 0 || err != nil {
			w.WriteHeader(401)
		}
	}
}

// Frameworks such as echo hand errors of a handler to an error handler, which writes to the
// outermost ResponseWriter. So the limiter sees no status, and the request must stay charged.
func TestChargeBehindFramework(t *testing.T) {
	t.Parallel()
	for _, more := range []string{"", ", bandwidth: 1m"} {
		l := limiter(t, "{url: /login, rules: [{algo: SW, unit: day, rpu: 5, charge: [401]}]"+more+"}")
		h := http.HandlerFunc(func(outer http.ResponseWriter, r *http.Request) {
			var failed error
			l.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
				failed = errors.New("the password is wrong")
			})).ServeHTTP(outer, r)
			if failed != nil {
				http.Error(outer, failed.Error(), http.StatusUnauthorized)
			}
		})
		var got []int
		for range 8 {
			got = append(got, statusOf(h, ""))
		}
		if want := []int{401, 401, 401, 401, 401, 503, 503, 503}; !slices.Equal(got, want) {
			t.Errorf("logins%s: %v, want %v", more, got, want)
		}
	}
}

// The way in which an answer ends decides whether its request stays charged.
func TestChargeDependsOnHowAResponseEnds(t *testing.T) {
	t.Parallel()
	gone, leave := context.WithCancel(context.Background())
	leave()
	for name, tc := range map[string]struct {
		ctx     context.Context
		answer  http.HandlerFunc
		charged bool
	}{
		"nothing":          {answer: func(http.ResponseWriter, *http.Request) {}, charged: true},
		"a body":           {answer: func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("x")) }},
		"a flush":          {answer: func(w http.ResponseWriter, _ *http.Request) { w.(http.Flusher).Flush() }},
		"a panic":          {answer: func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, charged: true},
		"a panic behind":   {answer: func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(200); panic(http.ErrAbortHandler) }},
		"a failure":        {answer: func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(401) }, charged: true},
		"a second status":  {answer: func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(401); w.WriteHeader(200) }, charged: true},
		"a hint before":    {answer: func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(103); w.WriteHeader(401) }, charged: true},
		"nothing to copy":  {answer: copyOrFail(io.MultiReader()), charged: true},
		"a failed copy":    {answer: copyOrFail(iotest.ErrReader(io.ErrUnexpectedEOF)), charged: true},
		"a copy":           {answer: copyOrFail(strings.NewReader(strings.Repeat("x", 10_000)))},
		"a small copy":     {answer: copyOrFail(strings.NewReader("x"))},
		"the client left":  {ctx: gone, answer: func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(502) }, charged: true},
		"the client left,": {ctx: gone, answer: func(http.ResponseWriter, *http.Request) {}, charged: true},
	} {
		t.Run(name, func(t *testing.T) {
			l := limiter(t, "{url: /, rules: [{algo: W, unit: day, rpu: 1, charge: [401]}]}")
			r := httptest.NewRequest("GET", "/", nil)
			if tc.ctx != nil {
				r = r.WithContext(tc.ctx)
			}
			func() {
				defer func() { _ = recover() }()
				l.Handler(tc.answer).ServeHTTP(httptest.NewRecorder(), r)
			}()
			if charged := !ask(t, l, diana.Request{}).Allowed; charged != tc.charged {
				t.Errorf("charged: %v, want %v", charged, tc.charged)
			}
		})
	}
}

// A hijacked connection counts as an answer that switches protocols.
func TestChargeOfHijacked(t *testing.T) {
	t.Parallel()
	for _, charge := range []int{401, 101} {
		l := limiter(t, fmt.Sprintf("{url: /, rules: [{algo: W, unit: day, rpu: 1, charge: [%d]}]}", charge))
		server := httptest.NewServer(l.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			conn, _, err := w.(http.Hijacker).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			_, _ = conn.Write([]byte("HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\nhello"))
			conn.Close()
		})))
		defer server.Close()
		conn, err := net.Dial("tcp", server.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		_, _ = conn.Write([]byte("GET / HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n"))
		_, _ = conn.Read(make([]byte, 100))
		conn.Close()
		testproc.Eventually(t, func() bool { return ask(t, l, diana.Request{}).Allowed == (charge == 401) })
	}
}

// unwrapped is a ResponseWriter that can do the rest only by Unwrap, for http.ResponseController.
type unwrapped struct{ inner http.ResponseWriter }

func (u unwrapped) Header() http.Header         { return u.inner.Header() }
func (u unwrapped) Write(b []byte) (int, error) { return u.inner.Write(b) }
func (u unwrapped) WriteHeader(status int)      { u.inner.WriteHeader(status) }
func (u unwrapped) Unwrap() http.ResponseWriter { return u.inner }

// The same is true if a filter in front supports http.ResponseController only by Unwrap.
func TestChargeOfHijackedBehindFilter(t *testing.T) {
	t.Parallel()
	l := limiter(t, "{url: /, rules: [{algo: W, unit: day, rpu: 1, charge: [200]}]}")
	h := l.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		_, _ = conn.Write([]byte("HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n"))
		conn.Close()
	}))
	done := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer close(done)
		h.ServeHTTP(unwrapped{w}, r)
	}))
	defer server.Close()
	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, _ = conn.Write([]byte("GET / HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n"))
	<-done
	if !ask(t, l, diana.Request{}).Allowed {
		t.Error("the connection is charged as an answer with 200")
	}
}

// The requests that stay charged never exceed the limit of the algorithm in any interval. The same is
// true of all requests that are charged at one time. Neither depends on statuses or durations.
func TestChargeKeepsTheLimit(t *testing.T) {
	t.Parallel()
	const n, unit = 10, time.Second
	for _, algo := range []string{"TB", "W", "SW", "SL"} {
		for seed := range uint64(5) {
			synctest.Test(t, func(t *testing.T) {
				l := limiter(t, "{url: /, rules: [{algo: "+algo+", rpu: 10, charge: [401]}]}")
				start := time.Now()
				var mu sync.Mutex
				var failed []time.Duration // times of their requests
				var wg sync.WaitGroup
				rnd := rand.New(rand.NewPCG(seed, 1))
				for range 2000 {
					time.Sleep(time.Duration(rnd.IntN(60)) * time.Millisecond)
					status := []int{200, 200, 401}[rnd.IntN(3)]
					takes := time.Duration(rnd.IntN(1500)) * time.Millisecond
					wg.Go(func() {
						came := time.Since(start)
						d, err := l.Take(context.Background(), diana.Request{})
						if err != nil {
							t.Error(err)
						}
						defer d.Done()
						if !d.Allowed {
							return
						}
						if status == 401 {
							mu.Lock()
							failed = append(failed, came)
							mu.Unlock()
						}
						time.Sleep(takes)
						d.SetStatus(status)
					})
				}
				wg.Wait()
				slices.Sort(failed)
				if len(failed) < 200 {
					t.Fatalf("%s: only %d failures", algo, len(failed))
				}
				offset := time.Duration(start.UnixNano())
				for i := range failed {
					for j := i; j < len(failed); j++ {
						took, most := failed[j]-failed[i], n
						switch {
						case algo == "TB":
							took, most = failed[j], n+int(failed[j]*n/unit)+i
						case algo == "W" && (offset+failed[i])/unit != (offset+failed[j])/unit, took >= unit:
							most = len(failed)
						}
						if j-i+1 > most {
							t.Fatalf("%s, seed %d: %d failures within %v", algo, seed, j-i+1, took)
						}
					}
				}
				time.Sleep(2 * unit)
				if got := count(t, l, 20, diana.Request{}); got != n {
					t.Errorf("%s: %d pass in the end, want %d", algo, got, n)
				}
			})
		}
	}
}

// Successes count neither locally nor in Redis, nor in the local counters that decide while Redis is
// down. Failures count for all gateways.
func TestChargeGlobal(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t)
	all := gateways(t, 2, r.URL(), "10s", `
- url: /
  rules: [{unit: day, rpu: 20, algo: SW, scope: global, charge: [401]}]
- url: /tb
  rules: [{unit: day, rpu: 10, scope: global, charge: [401], cost: 2}]
- url: /dear
  rules: [{unit: day, rpu: 4, cost: 3, scope: global}]
- url: /both
  rules: [{unit: day, rpu: 10, algo: W, charge: [401]}]
`)
	answer := func(l *diana.Limiter, path string, status int) bool {
		t.Helper()
		d, err := l.Take(context.Background(), diana.Request{Path: path})
		if err != nil || d.Degraded {
			t.Fatal(err, d.Degraded)
		}
		defer d.Done()
		d.SetStatus(status)
		return d.Allowed
	}
	for _, path := range []string{"/tb", "/both"} {
		for range 10 {
			for _, l := range all {
				for range 3 { // refunds may still be in flight to Redis
					testproc.Eventually(t, func() bool { return answer(l, path, 200) })
				}
			}
		}
	}
	for i := range 5 {
		testproc.Eventually(t, func() bool { return answer(all[i%2], "/tb", 401) })
	}
	for _, l := range all {
		if answer(l, "/tb", 401) {
			t.Error("a sixth failure of cost 2 passes")
		}
		if !answer(l, "/", 401) {
			t.Error("four more failures of cost 1 do not pass")
		}
	}
	r.Kill()
	for _, l := range all {
		ask(t, l, diana.Request{Path: "/"}) // detects that Redis is down
		testproc.Eventually(t, func() bool { return l.Status().Degraded })
		if !ask(t, l, diana.Request{Path: "/"}).Allowed {
			t.Error("successes count while Redis is down")
		}
		if got := count(t, l, 5, diana.Request{Path: "/dear"}); got != 1 {
			t.Errorf("%d that cost more than the share of 2 pass, want 1", got)
		}
	}
}
