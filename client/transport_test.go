// SPDX-License-Identifier: MIT

package client

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/config"
	"github.com/diana-limiter/diana/internal/fields"
	"github.com/diana-limiter/diana/internal/race"
)

// limiter returns a Limiter for a configuration.
func limiter(t testing.TB, yaml string) *diana.Limiter {
	t.Helper()
	c, err := config.Parse("test.yaml", []byte(yaml))
	if err != nil {
		t.Fatal(err)
	}
	l, err := diana.Options{Logger: slog.New(slog.NewTextHandler(io.Discard, nil))}.New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// base is a RoundTripper.
type base func(*http.Request) (*http.Response, error)

func (b base) RoundTrip(r *http.Request) (*http.Response, error) { return b(r) }

// says returns a response with these header lines.
func says(status int, header ...string) *http.Response {
	h := http.Header{}
	for _, line := range header {
		name, value, _ := strings.Cut(line, ": ")
		h.Add(name, value)
	}
	return &http.Response{StatusCode: status, Header: h, Body: io.NopCloser(strings.NewReader("body"))}
}

// get makes a call, and passes its response to each function.
func get(ctx context.Context, t *Transport, url string, with ...func(*http.Response)) error {
	r, err := http.NewRequestWithContext(ctx, "GET", url, nil)
	if err != nil {
		return err
	}
	a, err := t.RoundTrip(r)
	if err != nil {
		return err
	}
	defer a.Body.Close()
	for _, do := range with {
		do(a)
	}
	return nil
}

// server is a server with limits, and counts the calls that it refuses.
type server struct {
	handler http.Handler
	first   atomic.Bool // a first response has arrived
	early   atomic.Int64
	refused atomic.Int64
	served  atomic.Int64
	late    atomic.Int64 // refused by a server that was suspended meanwhile
}

// newServer returns a server with limits. change may change the fields of its responses.
func newServer(t *testing.T, yaml string, change func(http.Header)) *server {
	l := limiter(t, yaml)
	s := &server{}
	h := l.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") }))
	s.handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rec := httptest.NewRecorder()
		began := time.Now()
		h.ServeHTTP(rec, r)
		if rec.Code != 200 && time.Since(began) > 5*time.Millisecond {
			// A busy machine can suspend the server after it has read its clock. Then it decides by an old time, when its
			// bucket had fewer tokens than other responses have said since.
			rec.Header().Set("Late", "yes")
		}
		if change != nil {
			change(rec.Header())
		}
		for k, v := range rec.Header() {
			w.Header()[k] = v
		}
		w.WriteHeader(rec.Code)
		_, _ = w.Write(rec.Body.Bytes())
	})
	return s
}

// record counts a response. known says whether the client knew the first response when it sent the call.
func (s *server) record(r *http.Response, known bool) {
	switch {
	case r.StatusCode == 200:
		s.served.Add(1)
	case r.Header.Get("Late") != "":
		s.late.Add(1)
	case known:
		s.refused.Add(1)
	default:
		s.early.Add(1)
	}
}

// slow returns a RoundTripper to the server on which calls and responses overtake one another.
func (s *server) slow(seed uint64) base {
	var mu sync.Mutex
	random := rand.New(rand.NewPCG(seed, 1))
	pause := func() {
		mu.Lock()
		d := time.Duration(random.ExpFloat64() * float64(20*time.Millisecond))
		mu.Unlock()
		time.Sleep(d)
	}
	return func(r *http.Request) (*http.Response, error) {
		known := s.first.Load()
		pause()
		rec := httptest.NewRecorder()
		s.handler.ServeHTTP(rec, r)
		pause()
		s.record(rec.Result(), known)
		s.first.Store(true)
		return rec.Result(), nil
	}
}

// older replaces the fields of the newest draft by those of older ones.
func older(h http.Header) {
	var left, reset int64 = fields.MaxNumber, 0
	for _, f := range fields.Read(h, time.Now()) {
		left, reset = min(left, f.Remaining), max(reset, int64(f.Reset/time.Second))
	}
	h.Del("RateLimit")
	h.Del("RateLimit-Policy")
	h.Set("RateLimit-Limit", "100")
	h.Set("RateLimit-Remaining", fmt.Sprint(left))
	h.Set("RateLimit-Reset", fmt.Sprint(reset))
}

// epoch replaces the fields by those of other servers, which report a time.
func epoch(h http.Header) {
	older(h)
	n, _ := strconv.ParseInt(h.Get("RateLimit-Reset"), 10, 64)
	h.Set("X-RateLimit-Remaining", h.Get("RateLimit-Remaining"))
	h.Set("X-RateLimit-Reset", fmt.Sprint(time.Now().Unix()+n))
	h.Set("Date", time.Now().UTC().Format(http.TimeFormat))
	h.Del("RateLimit-Remaining")
	h.Del("RateLimit-Reset")
}

// The server refuses no call after its first response, even if calls and responses overtake one
// another, and the client uses most of what the server allows.
func TestNoRefusal(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, rules string
		change      func(http.Header)
		rate        float64 // calls a second that the server allows
		used        float64 // the least share of rate that the client uses
	}{
		{"W", "{rpu: 100, algo: W}", nil, 100, 0.8},
		{"TB", "{rpu: 100}", nil, 100, 0.8},
		{"SW", "{rpu: 100, algo: SW}", nil, 100, 0.6},
		{"SL", "{rpu: 100, algo: SL}", nil, 100, 0.6},
		{"several", "{rpu: 100, algo: W}, {rpu: 800, unit: 10s, algo: SL}", nil, 80, 0.6},
		{"few", "{rpu: 5, algo: W}", nil, 5, 0.5},
		{"older", "{rpu: 100, algo: W}", older, 100, 0.8},
		{"epoch", "{rpu: 100, algo: W}", epoch, 100, 0.3},
		{"TB of one", "{rpu: 100, burst: 1}", nil, 1, 0.7},
	} {
		for _, callers := range []int{1, 16, 100} {
			t.Run(fmt.Sprintf("%s/%d", tc.name, callers), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					s := newServer(t, "{url: /, rules: ["+tc.rules+"]}", tc.change)
					tr := &Transport{Base: s.slow(uint64(callers)), MaxWait: time.Hour}
					began := time.Now()
					const calls = 600
					crowd(t, tr, "http://server/", callers, calls)
					took := time.Since(began).Seconds()
					if s.refused.Load() > 0 || s.served.Load()+s.early.Load() != calls {
						t.Errorf("the server refused %d calls, %d before the first response, and served %d", s.refused.Load(), s.early.Load(), s.served.Load())
					}
					most := min(tc.rate, float64(callers)/0.04) // the network is slow
					if got := calls / took; got < tc.used*most {
						t.Errorf("%.1f calls a second of %.1f", got, most)
					} else {
						t.Logf("%.1f calls a second of %.1f", got, most)
					}
				})
			})
		}
	}
}

// crowd makes calls, many at a time, and reads the responses.
func crowd(t *testing.T, tr *Transport, url string, callers, calls int) {
	t.Helper()
	var left atomic.Int64
	left.Store(int64(calls))
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			for left.Add(-1) >= 0 {
				if err := get(context.Background(), tr, url, readAll); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}

func readAll(r *http.Response) { _, _ = io.Copy(io.Discard, r.Body) }

// TestNoRefusal with a real server over loopback.
func TestNoRefusalByRealServer(t *testing.T) {
	t.Parallel()
	rate := 2500
	if race.Enabled {
		rate = 100 // the calls are slower than 2,500 a second, so no call would meet the limit
	}
	calls := 4 * rate
	for _, tc := range []struct {
		name, rules string
		change      func(http.Header)
	}{
		{"W", "{rpu: %d, algo: W}", nil},
		{"TB", "{rpu: %d}", nil},
		{"older", "{rpu: %d, algo: W}", older},
	} {
		for _, callers := range []int{1, 16} {
			if callers == 1 && tc.name != "W" {
				continue // a single caller has no overlapping calls
			}
			t.Run(fmt.Sprintf("%s/%d", tc.name, callers), func(t *testing.T) {
				t.Parallel()
				s := newServer(t, "{url: /, rules: ["+fmt.Sprintf(tc.rules, rate)+"]}", tc.change)
				real := httptest.NewServer(s.handler)
				defer real.Close()
				pool := &http.Transport{MaxIdleConnsPerHost: callers}
				defer pool.CloseIdleConnections()
				tr := &Transport{Base: base(func(r *http.Request) (*http.Response, error) {
					known := s.first.Load()
					a, err := pool.RoundTrip(r)
					if err == nil {
						s.record(a, known)
						s.first.Store(true)
					}
					return a, err
				})}
				began := time.Now()
				crowd(t, tr, real.URL, callers, calls)
				t.Logf("%.0f calls a second of %d", float64(calls)/time.Since(began).Seconds(), rate)
				if s.refused.Load() > 0 || s.early.Load() > 0 || s.served.Load()+s.late.Load() != int64(calls) || s.late.Load() > int64(calls)/100 {
					t.Errorf("the server refused %d and %d calls, %d when it was late, and served %d", s.early.Load(), s.refused.Load(), s.late.Load(), s.served.Load())
				}
			})
		}
	}
}

// The server may count calls that fail, also long after they have failed.
func TestNoRefusalWithFailures(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, "{url: /, rules: [{rpu: 100, algo: W}]}", nil)
		way := s.slow(7)
		var n, failed atomic.Int64
		var late sync.WaitGroup
		tr := &Transport{MaxWait: time.Hour, Base: base(func(r *http.Request) (*http.Response, error) {
			if n.Add(1)%10 == 0 {
				late.Go(func() {
					if a, err := way(r); err == nil {
						_ = a.Body.Close()
					}
				})
				time.Sleep(10 * time.Millisecond)
				failed.Add(1)
				return nil, io.ErrUnexpectedEOF
			}
			return way(r)
		})}
		var wg sync.WaitGroup
		for range 16 {
			wg.Go(func() {
				for range 200 {
					if err := get(context.Background(), tr, "http://server/"); err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		late.Wait()
		if s.refused.Load() > 0 || failed.Load() != 320 {
			t.Errorf("the server refused %d calls, and %d failed", s.refused.Load(), failed.Load())
		}
	})
}

// The program's rules count no call while the server wants none. Otherwise all those calls would be
// sent together afterwards.
func TestOwnRulesAfterRetryAfter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		var mu sync.Mutex
		var sent []time.Duration
		tr := &Transport{
			Limiter: limiter(t, "{url: /, rules: [{rpu: 2, algo: LB, queue: 100}]}"),
			Base: base(func(*http.Request) (*http.Response, error) {
				mu.Lock()
				defer mu.Unlock()
				sent = append(sent, time.Since(start))
				if len(sent) == 1 {
					return says(429, "Retry-After: 30"), nil
				}
				return says(200), nil
			}),
		}
		crowd(t, tr, "http://server/", 1, 1)
		crowd(t, tr, "http://server/", 6, 6)
		if got, want := fmt.Sprint(sent), "[0s 30s 30.5s 31s 31.5s 32s 32.5s]"; got != want {
			t.Errorf("sent at %s, want %s", got, want)
		}
	})
}

// A server only refuses. The client makes no call until the server wants one, and then one call.
func TestRetryAfter(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		status int
		header func() string
		want   time.Duration
	}{
		{"seconds", 429, func() string { return "Retry-After: 7" }, 7 * time.Second},
		{"503", 503, func() string { return "Retry-After: 7" }, 7 * time.Second},
		{"nothing", 429, func() string { return "Server: x" }, time.Second},
		{"503 with nothing", 503, func() string { return "Server: x" }, 0},
		{"date", 429, func() string {
			return "Retry-After: " + time.Now().Add(5*time.Second).UTC().Format(http.TimeFormat)
		}, 6 * time.Second},
		{"junk", 429, func() string { return "Retry-After: soon" }, time.Second},
		{"not a refusal", 200, func() string { return "Retry-After: 7" }, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var mu sync.Mutex
				var sent []time.Duration
				start := time.Now()
				tr := &Transport{Base: base(func(*http.Request) (*http.Response, error) {
					mu.Lock()
					defer mu.Unlock()
					sent = append(sent, time.Since(start))
					if len(sent) == 1 {
						return says(tc.status, tc.header()), nil
					}
					mu.Unlock()
					time.Sleep(50 * time.Millisecond)
					mu.Lock()
					return says(200), nil
				})}
				crowd(t, tr, "http://server/", 1, 1)
				crowd(t, tr, "http://server/", 3, 3)
				want := []time.Duration{0, tc.want, tc.want + 50*time.Millisecond, tc.want + 50*time.Millisecond}
				if tc.want == 0 {
					want = []time.Duration{0, 0, 0, 0}
				}
				if fmt.Sprint(sent) != fmt.Sprint(want) {
					t.Errorf("sent at %v, want %v", sent, want)
				}
			})
		})
	}
}

// The limits of one server do not apply to another, nor those of one folder to another folder that has
// been called before.
func TestApart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tr := &Transport{MaxWait: -1, Base: base(func(r *http.Request) (*http.Response, error) {
			switch r.URL.Path {
			case "/login":
				return says(200, `RateLimit: "all";r=50;t=1, "login";r=0;t=600`), nil
			case "/off":
				return says(503, "Retry-After: 60"), nil
			}
			return says(200, `RateLimit: "all";r=50;t=1`), nil
		})}
		for _, step := range []struct {
			url  string
			want time.Duration // -1: the call is sent
		}{
			{"http://one/data/1", -1},
			{"http://one/login", -1},
			{"http://one/login", 600 * time.Second},
			{"http://one/data/2", -1},
			{"http://one/new/", 600 * time.Second}, // may count under login, too
			{"http://two/login", -1},
			{"http://ONE:80/login", 600 * time.Second},
			{"http://one:81/login", -1},
			{"http://three/off", -1},
			{"http://three/data/1", 60 * time.Second},
			{"http://one/data/3", -1},
		} {
			err := get(t.Context(), tr, step.url)
			var refused *RefusedError
			switch {
			case step.want < 0 && err != nil:
				t.Errorf("%s: %v", step.url, err)
			case step.want >= 0 && (!errors.As(err, &refused) || refused.RetryAfter != step.want || len(refused.Rules) != 0):
				t.Errorf("%s: %v, want a refusal for %v", step.url, err, step.want)
			}
		}
	})
}

// The program's own rules refuse calls or let them wait, and the error says which rules refuse.
func TestOwnRules(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, `
- url: /
  rules: [{name: each host, actor: host, rpu: 1, algo: W, wait: 500ms}]
- url: POST /slow
  rules: [{name: slow, actor: [host, header:X-Key], unit: minute, rpu: 1, algo: SL}]
- url: /never
  rules: [{name: none, rpu: 0}]
`)
		start := time.Now()
		tr := &Transport{Limiter: l, Base: base(func(r *http.Request) (*http.Response, error) {
			if r.Host != "" && r.Host != r.URL.Host {
				t.Errorf("host %q", r.Host)
			}
			return says(200), nil
		})}
		c := &http.Client{Transport: tr}
		for _, step := range []struct {
			method, url string
			at          time.Duration
			want        string
		}{
			{"GET", "http://a/x", 0, ""},
			{"GET", "http://b/x", 0, ""},
			{"GET", "http://A:80/x", 0, `Get "http://A:80/x": client: no call to a: it would be more than allowed by each host; it may be repeated in 1s`},
			{"POST", "http://c/slow", 500 * time.Millisecond, ""},
			{"GET", "http://c/slow", 1 * time.Second, ""},
			{"POST", "http://c/slow", 2 * time.Second, `Post "http://c/slow": client: no call to c: it would be more than allowed by slow; it may be repeated in 58.5s`},
			{"GET", "http://d/never", 2 * time.Second, `Get "http://d/never": client: no call to d: it would be more than allowed by none; repeating it does not help`},
		} {
			time.Sleep(step.at - time.Since(start))
			if step.url == "http://c/slow" && step.method == "GET" {
				step.at = time.Second
			}
			r, err := http.NewRequestWithContext(t.Context(), step.method, step.url, strings.NewReader("body"))
			if err != nil {
				t.Fatal(err)
			}
			a, err := c.Do(r)
			got := ""
			if err != nil {
				got = err.Error()
			} else {
				_ = a.Body.Close()
			}
			if since := time.Since(start); got != step.want || since != step.at {
				t.Errorf("%s %s after %v: %s", step.method, step.url, since, got)
			}
		}
	})
}

// closer knows whether it was closed.
type closer struct {
	io.Reader
	closed bool
}

func (c *closer) Close() error { c.closed = true; return nil }

// RoundTrip keeps the contract of http.RoundTripper: it closes the body also when it makes no call,
// and does not change the request.
func TestContract(t *testing.T) {
	t.Parallel()
	failure := errors.New("failed")
	for name, tr := range map[string]*Transport{
		"refused by a rule":   {Limiter: limiter(t, "{url: /, rules: [{rpu: 0}]}")},
		"refused by LB":       {Limiter: limiter(t, "{url: /, rules: [{rpu: 0, algo: LB}]}")},
		"refused by a server": {MaxWait: -1, Base: base(func(*http.Request) (*http.Response, error) { return says(429), nil })},
		"failed": {Base: base(func(r *http.Request) (*http.Response, error) {
			_ = r.Body.Close()
			return nil, failure
		})},
	} {
		if name == "refused by a server" {
			if err := get(t.Context(), tr, "http://x/"); err != nil {
				t.Fatal(err)
			}
		}
		body := &closer{Reader: strings.NewReader("body")}
		r, err := http.NewRequestWithContext(t.Context(), "POST", "http://x/y", body)
		if err != nil {
			t.Fatal(err)
		}
		r.ContentLength = 4
		before := fmt.Sprintf("%+v", r)
		a, err := tr.RoundTrip(r)
		if err == nil {
			_ = a.Body.Close()
		}
		var refused *RefusedError
		if a != nil || !errors.As(err, &refused) && !errors.Is(err, failure) {
			t.Errorf("%s: %v, %v", name, a, err)
		}
		if !body.closed {
			t.Errorf("%s: the body is open", name)
		}
		if after := fmt.Sprintf("%+v", r); after != before {
			t.Errorf("%s: the request was %s and is %s", name, before, after)
		}
	}
	// The error of the context has priority.
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := get(ctx, &Transport{}, "http://x/"); !errors.Is(err, context.Canceled) {
		t.Errorf("a call whose context has ended: %v", err)
	}
}

// A call releases its slot when its response has been read or closed, or when the call has failed.
func TestSlots(t *testing.T) {
	t.Parallel()
	fail := false
	tr := &Transport{
		Limiter: limiter(t, "{url: /, rules: [{rpu: 1, algo: C}]}"),
		Base: base(func(*http.Request) (*http.Response, error) {
			if fail {
				return nil, errors.New("failed")
			}
			return says(200), nil
		}),
	}
	for _, end := range []func(*http.Response){
		func(r *http.Response) { _ = r.Body.Close(); _ = r.Body.Close() },
		readAll,
	} {
		err := get(t.Context(), tr, "http://x/", func(r *http.Response) {
			if err := get(t.Context(), tr, "http://x/"); err == nil {
				t.Error("two are inside")
			}
			end(r)
			fail = true
			for range 3 {
				var refused *RefusedError
				if err := get(t.Context(), tr, "http://x/"); err == nil || errors.As(err, &refused) {
					t.Errorf("%v, want a failed call", err)
				}
			}
			fail = false
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// A call that waits for the server fails when its context ends, and at once if the context is too
// short. Other calls are sent instead.
func TestWaitEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tr := &Transport{Base: base(func(*http.Request) (*http.Response, error) {
			return says(200, "RateLimit-Remaining: 0", "RateLimit-Reset: 10"), nil
		})}
		start := time.Now()
		if err := get(t.Context(), tr, "http://x/"); err != nil {
			t.Fatal(err)
		}
		var refused *RefusedError
		ctx, cancel := context.WithTimeout(t.Context(), 9*time.Second)
		defer cancel()
		if err := get(ctx, tr, "http://x/"); !errors.As(err, &refused) || refused.RetryAfter != 10*time.Second || time.Since(start) != 0 {
			t.Errorf("after %v: %v, want a refusal at once", time.Since(start), err)
		}
		leaving, leave := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for i := range 10 {
			ctx := t.Context()
			if i%2 == 1 {
				ctx = leaving
			}
			wg.Go(func() {
				err := get(ctx, tr, "http://x/")
				switch since := time.Since(start); {
				case i%2 == 1 && (!errors.Is(err, context.Canceled) || since != time.Second):
					t.Errorf("%d after %v: %v", i, since, err)
				case i%2 == 0 && (err != nil || since != time.Duration(i/2+1)*10*time.Second):
					t.Errorf("%d after %v: %v", i, since, err)
				}
			})
			synctest.Wait()
		}
		time.Sleep(time.Second)
		leave()
		wg.Wait()
		// The seventh call would be sent after a minute and ten seconds.
		for i := range 7 {
			wg.Go(func() {
				var refused *RefusedError
				began := time.Now()
				err := get(t.Context(), tr, "http://x/")
				if took := time.Since(began); errors.As(err, &refused) != (i == 6) || took > time.Minute {
					t.Errorf("%d after %v: %v", i, took, err)
				}
			})
			synctest.Wait()
		}
		wg.Wait()
	})
}

// The Transport bounds its memory, whatever hosts a program calls and whatever they report.
func TestBounds(t *testing.T) {
	t.Parallel()
	n := 0
	tr := &Transport{MaxWait: -1, Base: base(func(*http.Request) (*http.Response, error) {
		n++
		return says(200, fmt.Sprintf(`RateLimit: "p%d";r=5;t=100, "q%d";r=%d`, n, n, n)), nil
	})}
	for i := range 3000 {
		if err := get(t.Context(), tr, fmt.Sprintf("http://h%d/", i)); err != nil {
			t.Fatal(err)
		}
		if err := get(t.Context(), tr, fmt.Sprintf("http://one/%d/", i)); err != nil {
			t.Fatal(err)
		}
	}
	if len(tr.hosts) != maxHosts || tr.hosts["h2999"] == nil || tr.hosts["one"] == nil || tr.hosts["h1"] != nil {
		t.Errorf("%d hosts", len(tr.hosts))
	}
	if got := len(tr.hosts["one"].folders); got > maxFolders {
		t.Errorf("%d folders", got)
	}
}

// A rule with charge counts a call only if its response has one of the statuses.
func TestCharge(t *testing.T) {
	t.Parallel()
	status := 200
	tr := &Transport{
		Limiter: limiter(t, "{url: /, rules: [{unit: hour, rpu: 2, charge: [401]}]}"),
		Base:    base(func(*http.Request) (*http.Response, error) { return says(status), nil }),
	}
	for i, row := range []struct {
		status int
		goes   bool
	}{{200, true}, {200, true}, {200, true}, {401, true}, {200, true}, {401, true}, {200, false}} {
		status = row.status
		if err := get(t.Context(), tr, "http://server/"); (err == nil) != row.goes {
			t.Errorf("call %d: %v, want it to be sent: %v", i, err, row.goes)
		}
	}
}

// When a server reports a limit for the first time, the calls in flight to that folder count
// under it too.
func TestLimitOfCallsInFlight(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		left, refused := 10, 0
		var mu sync.Mutex
		tr := &Transport{Base: base(func(r *http.Request) (*http.Response, error) {
			if r.URL.Path == "/a/x" {
				return says(200, `RateLimit: "all";r=1000;t=1`), nil
			}
			var n int
			_, _ = fmt.Sscanf(r.URL.RawQuery, "%d", &n)
			time.Sleep(time.Duration(n) * time.Second) // on the way to the server
			mu.Lock()
			defer mu.Unlock()
			if left--; left < 0 {
				refused++
			}
			return says(200, fmt.Sprintf(`RateLimit: "all";r=1000;t=1, "few";r=%d;t=3600`, max(left, 0))), nil
		})}
		if err := get(t.Context(), tr, "http://server/a/x"); err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() {
				n := 1 // one call has a response while eight are in flight, and eleven follow
				if i > 0 {
					n = 10
				}
				if i > 8 {
					time.Sleep(2 * time.Second)
				}
				_ = get(t.Context(), tr, fmt.Sprintf("http://server/a/y?%d", n))
			})
		}
		wg.Wait()
		if refused > 0 || left > 0 {
			t.Errorf("the server refused %d calls, %d are left", refused, left)
		}
		idle(t, tr)
	})
}

// A request without a method is a GET.
func TestNoMethod(t *testing.T) {
	t.Parallel()
	tr := &Transport{
		Limiter: limiter(t, "{url: GET /x, rules: [{rpu: 0}]}"),
		Base:    base(func(*http.Request) (*http.Response, error) { return says(200), nil }),
	}
	u, err := url.Parse("http://server/x")
	if err != nil {
		t.Fatal(err)
	}
	var refused *RefusedError
	a, err := (&http.Client{Transport: tr}).Do((&http.Request{URL: u}).WithContext(t.Context()))
	if err == nil {
		_ = a.Body.Close()
	}
	if !errors.As(err, &refused) {
		t.Errorf("%v, want a refusal", err)
	}
}

// A failed call no longer counts once a call that was sent well after it has a response.
func TestOldFailures(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		fail := false
		tr := &Transport{MaxWait: -1, Base: base(func(*http.Request) (*http.Response, error) {
			if fail {
				return nil, io.ErrUnexpectedEOF
			}
			return says(200, `RateLimit: "all";r=5;t=3600`), nil
		})}
		if err := get(t.Context(), tr, "http://server/"); err != nil {
			t.Fatal(err)
		}
		fail = true
		for i := range 6 {
			var refused *RefusedError
			if err := get(t.Context(), tr, "http://server/"); errors.As(err, &refused) != (i == 5) {
				t.Errorf("%d: %v", i, err)
			}
		}
		fail = false
		time.Sleep(time.Hour)
		for range 5 {
			if err := get(t.Context(), tr, "http://server/"); err != nil {
				t.Error(err)
			}
		}
	})
}

// The server has not counted a call that did not reach it.
func TestUnreachable(t *testing.T) {
	t.Parallel()
	for name, pool := range map[string]*http.Transport{
		"server": {DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", "127.0.0.1:0") // where no server can listen
		}},
		"proxy": {Proxy: http.ProxyURL(&url.URL{Scheme: "http", Host: "127.0.0.1:0"})},
	} {
		tr := &Transport{MaxWait: -1, Base: base(func(r *http.Request) (*http.Response, error) {
			if r.URL.Path == "/down" {
				return pool.RoundTrip(r)
			}
			return says(200, `RateLimit: "all";r=5;t=3600`), nil
		})}
		if err := get(t.Context(), tr, "http://server/"); err != nil {
			t.Fatal(err)
		}
		for range 10 {
			var refused *RefusedError
			if err := get(t.Context(), tr, "http://server/down"); err == nil || errors.As(err, &refused) {
				t.Errorf("%s: %v, want an unreachable server", name, err)
			}
		}
		if err := get(t.Context(), tr, "http://server/"); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A call with a slow response does not delay others once more calls are available.
func TestSlowCall(t *testing.T) {
	t.Parallel()
	for name, fields := range map[string]struct {
		status int
		header string
		want   time.Duration
	}{
		"used up":     {200, `RateLimit: "all";r=0;t=3`, 3 * time.Second},
		"retry after": {429, "Retry-After: 3", 3 * time.Second},
		"at once":     {429, "Retry-After: 0", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				n, fast := 0, 0
				var mu sync.Mutex
				start := time.Now()
				tr := &Transport{Base: base(func(r *http.Request) (*http.Response, error) {
					if r.URL.Path == "/slow" {
						time.Sleep(10 * time.Minute)
						return says(200, `RateLimit: "all";r=9;t=1`), nil
					}
					mu.Lock()
					defer mu.Unlock()
					if n++; n == 1 {
						return says(fields.status, fields.header), nil
					}
					if fast++; fast > 1 {
						t.Error("a second one asks before the first has been answered")
					}
					mu.Unlock()
					time.Sleep(time.Second)
					mu.Lock()
					fast--
					return says(fields.status, fields.header), nil
				})}
				var wg sync.WaitGroup
				wg.Go(func() {
					if err := get(t.Context(), tr, "http://server/slow"); err != nil {
						t.Error(err)
					}
				})
				synctest.Wait()
				if err := get(t.Context(), tr, "http://server/"); err != nil {
					t.Fatal(err)
				}
				for i := range 3 {
					wg.Go(func() {
						err := get(t.Context(), tr, "http://server/")
						want := fields.want + time.Duration(i)*(fields.want+time.Second) + time.Second
						if since := time.Since(start); err != nil || since != want {
							t.Errorf("%d after %v, want %v: %v", i, since, want, err)
						}
					})
					synctest.Wait()
				}
				wg.Wait()
			})
		})
	}
}

// If the server does not say when more calls become available, as with a limit of concurrent calls,
// none is available before those in flight have their responses.
func TestSlowCallWithoutTime(t *testing.T) {
	t.Parallel()
	for _, line := range []string{`RateLimit: "inside";r=0`, "X-RateLimit-Remaining: 0"} {
		synctest.Test(t, func(t *testing.T) {
			start := time.Now()
			tr := &Transport{Base: base(func(r *http.Request) (*http.Response, error) {
				if r.URL.Path == "/slow" {
					time.Sleep(30 * time.Second)
				}
				return says(200, line), nil
			})}
			var wg sync.WaitGroup
			wg.Go(func() {
				if err := get(t.Context(), tr, "http://server/slow"); err != nil {
					t.Error(err)
				}
			})
			synctest.Wait()
			for i, want := range []time.Duration{0, 31 * time.Second} {
				if err := get(t.Context(), tr, "http://server/"); err != nil || time.Since(start) != want {
					t.Errorf("%s: call %d was sent after %v, want %v: %v", line, i, time.Since(start), want, err)
				}
			}
			wg.Wait()
		})
	}
}

// After an upgrade of the protocol one side can end before the other, also through a proxy.
func TestUpgrade(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		c, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		all, _ := io.ReadAll(rw)
		_, _ = fmt.Fprintf(c, "you said %s", all)
	}))
	defer server.Close()
	to, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	tr := &Transport{Limiter: limiter(t, "{url: /, rules: [{rpu: 1, algo: C}]}"), Base: &http.Transport{}}
	proxy := httptest.NewServer(&httputil.ReverseProxy{Transport: tr, Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) }})
	defer proxy.Close()
	for range 2 { // the slot is free again
		c, err := net.Dial("tcp", proxy.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		r := bufio.NewReader(c)
		for line := "-"; err == nil && line != "\r\n"; {
			line, err = r.ReadString('\n')
		}
		_, _ = io.WriteString(c, "hello")
		_ = c.(*net.TCPConn).CloseWrite()
		if answer, err := io.ReadAll(r); string(answer) != "you said hello" {
			t.Errorf("%q, %v", answer, err)
		}
	}
}

// The rules evaluate the path that is sent, in whatever form the URL has it.
func TestPath(t *testing.T) {
	t.Parallel()
	for want, urls := range map[string][]*url.URL{
		"/a%2Fb/c": {{RawPath: "/a%2Fb/c", Path: "/a/b/c", RawQuery: "x=/y"}, {Opaque: "//host/a%2Fb/c"}, {Opaque: "/a%2Fb/c?x=/y"}},
		"/":        {{Opaque: "//host"}, {Opaque: "//host/?/x"}},
	} {
		for _, u := range urls {
			if got := path(u); got != want {
				t.Errorf("%#v: %q, want %q", u, got, want)
			}
		}
	}
}

// idle fails if a host counts calls as in flight when none is.
func idle(t *testing.T, tr *Transport) {
	t.Helper()
	for name, h := range tr.hosts {
		if len(h.inFlight) > 0 || h.probing != 0 || h.pending != [maxPolicies]int64{} || len(h.waiters) > 0 || h.users != 0 {
			t.Errorf("%s: %d in flight, probing %b, pending %v, %d wait, %d users", name, len(h.inFlight), h.probing, h.pending, len(h.waiters), h.users)
		}
	}
}

// A waiter whose context ends at the moment when its call may be sent leaves no trace.
func TestContextEndsInTheSameMoment(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tr := &Transport{Base: base(func(r *http.Request) (*http.Response, error) {
			time.Sleep(time.Second)
			return says(200, `RateLimit: "all";t=1;r=`+r.URL.RawQuery), nil
		})}
		for range 100 {
			if err := get(t.Context(), tr, "http://server/?0"); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
			var wg sync.WaitGroup
			wg.Go(func() { _ = get(t.Context(), tr, "http://server/?1") })
			synctest.Wait()
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(time.Second, cancel) // when the server allows one more
			wg.Go(func() { _ = get(ctx, tr, "http://server/?1") })
			wg.Wait()
			idle(t, tr)
		}
	})
}

// When the first waiter leaves, the next one sets its timer.
func TestFirstLeaves(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tr := &Transport{Base: base(func(*http.Request) (*http.Response, error) {
			time.Sleep(time.Second)
			return says(200, `RateLimit: "all";r=0;t=5`), nil
		})}
		if err := get(t.Context(), tr, "http://server/"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		start := time.Now()
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for i, ctx := range []context.Context{t.Context(), ctx, t.Context()} { // probes, leaves, is sent then
			wg.Go(func() {
				err := get(ctx, tr, "http://server/")
				want := []time.Duration{time.Second, 2 * time.Second, 7 * time.Second}[i]
				if since := time.Since(start); since != want || (err != nil) != (i == 1) {
					t.Errorf("%d after %v, want %v: %v", i, since, want, err)
				}
			})
			synctest.Wait()
		}
		time.Sleep(2 * time.Second)
		cancel()
		wg.Wait()
		idle(t, tr)
	})
}

// The longest of several refusals counts, until a call that was sent after them has a response.
func TestRefusals(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		answers := map[string]func() *http.Response{
			"/1": func() *http.Response { return says(429, "Retry-After: 10") },
			"/2": func() *http.Response { return says(429, "Retry-After: 1") },
			"/3": func() *http.Response { return says(200) },
		}
		start := time.Now()
		var mu sync.Mutex
		var sent []time.Duration
		tr := &Transport{Base: base(func(r *http.Request) (*http.Response, error) {
			if answer := answers[r.URL.Path]; answer != nil {
				time.Sleep(time.Duration(r.URL.Path[1]-'0') * time.Second)
				return answer(), nil
			}
			mu.Lock()
			sent = append(sent, time.Since(start))
			mu.Unlock()
			time.Sleep(time.Second)
			return says(200), nil
		})}
		var wg sync.WaitGroup
		for path := range answers {
			wg.Go(func() { _ = get(t.Context(), tr, "http://server"+path) })
		}
		time.Sleep(4 * time.Second)
		for range 3 {
			wg.Go(func() { _ = get(t.Context(), tr, "http://server/") })
		}
		wg.Wait()
		if got, want := fmt.Sprint(sent), "[11s 12s 12s]"; got != want {
			t.Errorf("sent at %s, want %s", got, want)
		}
		idle(t, tr)
	})
}

// A refusal with a used up limit says when that limit has more calls. A date is by the
// clock of the server.
func TestRetryAfterWithFields(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		hour := func(d time.Duration) string { return time.Now().Add(time.Hour + d).UTC().Format(http.TimeFormat) }
		tr := &Transport{MaxWait: -1, Base: base(func(r *http.Request) (*http.Response, error) {
			switch r.URL.Host {
			case "limit":
				if r.URL.Path == "/few/" {
					return says(429, `RateLimit: "all";r=9;t=1, "few";r=0;t=1`, "Retry-After: 7"), nil
				}
				return says(200, `RateLimit: "all";r=9;t=1`), nil
			}
			return says(503, "Date: "+hour(0), "Retry-After: "+hour(5*time.Second)), nil
		})}
		for _, step := range []struct {
			url  string
			want time.Duration // 0: the call is sent
		}{
			{"http://limit/many/", 0},
			{"http://limit/few/", 0},
			{"http://limit/few/", 7 * time.Second},
			{"http://limit/many/", 0},
			{"http://date/", 0},
			{"http://date/", 6 * time.Second},
		} {
			err := get(t.Context(), tr, step.url)
			var refused *RefusedError
			if errors.As(err, &refused); (err != nil) != (step.want > 0) || err != nil && (refused == nil || refused.RetryAfter != step.want) {
				t.Errorf("%s: %v, want %v", step.url, err, step.want)
			}
		}
	})
}
