// SPDX-License-Identifier: MIT

package diana_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/config"
	"github.com/diana-limiter/diana/internal/redistest"
	"github.com/diana-limiter/diana/internal/testproc"
	"github.com/diana-limiter/diana/limit"
)

// serve sends one request to the Handler of a Limiter.
func serve(l *diana.Limiter, r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	l.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "upstream")
	})).ServeHTTP(w, r)
	return w
}

// A byte that no URL may hold does not hide how the rest of the path is spelled, because routers can divide
// the path as it was sent.
func TestPathWithInvalidByte(t *testing.T) {
	t.Parallel()
	l := limiter(t, "limits: [{url: '/{name}/z', rules: [{name: none, unit: day, rpu: 0}]}]")
	for target, want := range map[string]int{
		"/éa%2Fb/z": 503, `/"a%2Fb/z`: 503, "/|a%2fb/z": 503, "/é/z": 503, "/é": 200, "/é/%2e%2e/a": 400, "/é/..%2fa": 400,
	} {
		if got := serve(l, httptest.NewRequest("GET", target, nil)).Code; got != want {
			t.Errorf("%s gets %d, want %d", target, got, want)
		}
	}
}

func TestRefusal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, `
response: {status: 429}
limits:
  - url: /
    rules:
      - {name: 'by "device"', actor: device, unit: minute, rpu: 1, algo: W}
      - {name: wide, unit: minute, rpu: 100}
      - {name: hidden, rpu: 1, unit: day, mode: shadow}
  - url: /x
    rules: [{name: 每秒, rpu: 1, unit: 40s, algo: SL}]
`)
		time.Sleep(10 * time.Second) // 50 s of the minute are left
		if w := serve(l, httptest.NewRequest("GET", "/x", nil)); w.Code != 200 || w.Body.String() != "upstream" {
			t.Fatalf("the first: %d %s", w.Code, w.Body)
		}
		w := serve(l, httptest.NewRequest("GET", "/x", nil))
		if w.Code != 429 {
			t.Errorf("status %d", w.Code)
		}
		for name, want := range map[string]string{
			"Retry-After":      "50",
			"Cache-Control":    "no-store",
			"Content-Type":     "application/problem+json",
			"RateLimit-Policy": `"by \"device\"";q=1;w=60, "wide";q=100;w=60, "%E6%AF%8F%E7%A7%92";q=1;w=40`,
			"RateLimit":        `"by \"device\"";r=0;t=50, "wide";r=99;t=60, "%E6%AF%8F%E7%A7%92";r=0;t=40`,
		} {
			if got := w.Header().Values(name); !slices.Equal(got, []string{want}) {
				t.Errorf("%s: %q, want %q", name, got, want)
			}
		}
		var problem struct {
			Type, Title, Detail string
			Status              int
			Violated            []string `json:"violated-policies"`
		}
		if err := json.Unmarshal(w.Body.Bytes(), &problem); err != nil {
			t.Fatalf("%v in %s", err, w.Body)
		}
		if problem.Type != "https://iana.org/assignments/http-problem-types#quota-exceeded" || problem.Status != 429 ||
			problem.Title == "" || problem.Detail == "" || !slices.Equal(problem.Violated, []string{`by "device"`, "每秒"}) {
			t.Errorf("problem %+v", problem)
		}
	})
}

func TestDefaultRefusal(t *testing.T) {
	t.Parallel()
	l := limiter(t, "{url: /, rules: [{rpu: 0}]}")
	w := serve(l, httptest.NewRequest("GET", "/", nil))
	if w.Code != 503 || !strings.Contains(w.Body.String(), "#temporary-reduced-capacity") {
		t.Errorf("%d %v %s", w.Code, w.Header(), w.Body)
	}
}

// TestRetryAfterOnlyIfAWaitHelps sends requests that no wait helps, and requests that a wait helps. The field
// Retry-After, the problem's detail and Decision.RetryAfter must agree.
func TestRetryAfterOnlyIfAWaitHelps(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		entry string
		cost  string // of each request; the first uses up the limit if it is allowed
		never bool
	}{
		"rpu 0, TB":                    {"rules: [{rpu: 0}]", "1", true},
		"rpu 0, W":                     {"rules: [{rpu: 0, algo: W, unit: day}]", "1", true},
		"rpu 0, SW":                    {"rules: [{rpu: 0, algo: SW}]", "1", true},
		"rpu 0, SL":                    {"rules: [{rpu: 0, algo: SL}]", "1", true},
		"rpu 0, LB":                    {"rules: [{rpu: 0, algo: LB}]", "1", true},
		"rpu 0, C":                     {"rules: [{rpu: 0, algo: C}]", "1", true},
		"rpu 0, waiting":               {"rules: [{rpu: 0, wait: 1s}]", "1", true},
		"rpu 0, global":                {"rules: [{rpu: 0, scope: global}]", "1", true},
		"rpu 0, closed":                {"rules: [{rpu: 0, scope: global, on_error: closed}]", "1", true},
		"rpu 0 by an override":         {"rules: [{rpu: 5, overrides: {192.0.2.0/24: {rpu: 0}}}]", "1", true},
		"rpu 0 and a full limit":       {"rules: [{rpu: 0}, {algo: W, unit: day, rpu: 1}]", "1", true},
		"rpu 0, diverted":              {"rules: [{rpu: 0}], divert: {body: later}", "1", true},
		"a cost over the limit":        {"rules: [{algo: W, unit: day, rpu: 5, cost: 'client:Cost'}]", "6", true},
		"a cost over the burst":        {"rules: [{rpu: 9, burst: 5, cost: 'client:Cost'}]", "6", true},
		"a cost over what is left":     {"rules: [{algo: W, unit: day, rpu: 5, cost: 'client:Cost'}]", "5", false},
		"a full limit":                 {"rules: [{algo: W, unit: day, rpu: 1}]", "1", false},
		"a full limit, diverted":       {"rules: [{algo: W, unit: day, rpu: 1}], divert: {body: later}", "1", false},
		"a full limit, rpu 0 a shadow": {"rules: [{algo: W, unit: day, rpu: 1}, {rpu: 0, mode: shadow}]", "1", false},
		"closed without Redis":         {"rules: [{rpu: 5, scope: global, on_error: closed}]", "1", false},
		"closed for a time":            {"rules: [{rpu: 5, algo: by day}]", "1", false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { // the time is midnight
				v := config.DefaultVocabulary()
				v.Algorithms = append(v.Algorithms, limit.Algorithm{
					Names: []string{"by day"}, Keys: []string{"unit"},
					New: func(limit.Limit) (limit.Meter, error) { return byDay{}, nil },
				})
				c, err := v.Parse("test.yaml", []byte("{url: /, "+row.entry+"}"))
				if err != nil {
					t.Fatal(err)
				}
				l, err := diana.Options{Vocabulary: v}.New(c)
				if err != nil {
					t.Fatal(err)
				}
				r := httptest.NewRequest("GET", "/", nil)
				r.Header.Set("Cost", row.cost)
				serve(l, r)
				d := ask(t, l, diana.Request{HTTP: r})
				if d.Allowed || (d.RetryAfter == 0) != row.never {
					t.Errorf("allowed: %v, RetryAfter: %v", d.Allowed, d.RetryAfter)
				}
				w := serve(l, r)
				retry, body := w.Header().Get("Retry-After"), w.Body.String()
				if (retry == "") != row.never || w.Header().Get("Cache-Control") != "no-store" {
					t.Errorf("Retry-After: %q, Cache-Control: %q", retry, w.Header().Get("Cache-Control"))
				}
				if body != "later" && (strings.Contains(body, "Repeating it does not help.") != row.never || strings.Contains(body, "may be repeated in "+retry+" s") == row.never) {
					t.Error(body)
				}
				limits := w.Header().Get("RateLimit")
				if strings.HasPrefix(row.entry, "rules: [{rpu: 0}") && !strings.HasSuffix(strings.Split(limits, ", ")[0], `";r=0`) {
					t.Errorf("RateLimit has more than what is left of a limit of 0: %s", limits)
				}
			})
		})
	}
}

// byDay is a Meter that refuses all requests until 9 o'clock.
type byDay struct{}

func (byDay) StateVersion() string                    { return "1" }
func (byDay) Cells(limit.State, int64) int            { return 0 }
func (byDay) Take(s limit.State, _, _ int64) uint64   { return s.Head }
func (byDay) Refund(s limit.State, _, _ int64) uint64 { return s.Head }
func (byDay) Expiry(limit.State) int64                { return 0 }
func (byDay) Peek(_ limit.State, now, _ int64) limit.Outcome {
	wait := (9 * time.Hour).Microseconds() - now%(24*time.Hour).Microseconds()
	return limit.Outcome{Allowed: wait <= 0, Wait: max(wait, 0), Reset: max(wait, 0)}
}

// TestRetryAfterIsEnough repeats a refused request after Retry-After. The request is allowed then.
func TestRetryAfterIsEnough(t *testing.T) {
	t.Parallel()
	for _, algo := range []string{"TB", "W", "SW", "SL"} {
		for _, unit := range []string{"second", "10s", "minute", "1500ms"} {
			synctest.Test(t, func(t *testing.T) {
				l := limiter(t, fmt.Sprintf("{url: /, rules: [{algo: %s, unit: %s, rpu: 3}]}", algo, unit))
				for i := range 50 {
					time.Sleep(time.Duration(i*37) * time.Millisecond)
					w := serve(l, httptest.NewRequest("GET", "/", nil))
					if w.Code == 200 {
						continue
					}
					wait, err := time.ParseDuration(w.Header().Get("Retry-After") + "s")
					if err != nil || wait < time.Second {
						t.Fatalf("Retry-After: %v %v", wait, err)
					}
					time.Sleep(wait)
					if w := serve(l, httptest.NewRequest("GET", "/", nil)); w.Code != 200 {
						t.Fatalf("%s, 3 per %s: refused after its RetryAfter of %v", algo, unit, wait)
					}
				}
			})
		}
	}
}

func TestFields(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, `
- url: /
  rules: [{name: tb, rpu: 10}, {name: fast, rpu: 5, unit: 100ms, algo: W}, {name: in, rpu: 2, algo: C}, {name: lb, rpu: 2, algo: LB}]
- url: /free
  rules: [{name: open, rpu: 1, scope: global, on_error: open}]
`)
		w := serve(l, httptest.NewRequest("GET", "/free", nil))
		if got, want := w.Header().Get("RateLimit-Policy"), `"tb";q=10;w=1, "fast";q=5, "in";q=2;qu="concurrent-requests", "lb";q=2;w=1`; got != want {
			t.Errorf("RateLimit-Policy: %s\nwant %s", got, want)
		}
		if got, want := w.Header().Get("RateLimit"), `"tb";r=9;t=1, "fast";r=4;t=1, "in";r=1, "lb";r=2;t=1`; got != want {
			t.Errorf("RateLimit: %s\nwant %s", got, want)
		}
	})
	l := limiter(t, "response: {headers: false}\nlimits: [{url: /, rules: [{rpu: 1, unit: hour}]}]")
	for _, code := range []int{200, 503} {
		w := serve(l, httptest.NewRequest("GET", "/", nil))
		if w.Code != code || w.Header().Get("RateLimit") != "" || w.Header().Get("RateLimit-Policy") != "" {
			t.Errorf("%d %v", w.Code, w.Header())
		}
		if retry := w.Header().Get("Retry-After"); (retry != "") != (code == 503) {
			t.Errorf("%d: Retry-After %q", code, retry)
		}
	}
	if w := serve(limiter(t, "{url: /a, rules: [{rpu: 1}]}"), httptest.NewRequest("GET", "/b", nil)); w.Header().Get("RateLimit") != "" {
		t.Error("a response that no rule evaluated has fields")
	}
}

// TestPanicReleasesSlot releases the slot of a request whose handler panics.
func TestPanicReleasesSlot(t *testing.T) {
	t.Parallel()
	l := limiter(t, "{url: /, rules: [{rpu: 1, algo: C}]}")
	h := l.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
	for range 3 {
		func() {
			defer func() {
				if recover() == nil {
					t.Error("the handler was not reached")
				}
			}()
			h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
		}()
	}
}

// TestHandlerSeesEverySpelling evaluates the path as it was sent, before anything cleans it.
func TestHandlerSeesEverySpelling(t *testing.T) {
	t.Parallel()
	l := limiter(t, "{url: /admin, rules: [{rpu: 0}]}")
	for _, target := range []string{"/admin", "//admin", "/%61dmin", "/ADMIN", "/admin;a=b", "/admin%2Fx", "http://example.com/x/../admin"} {
		if w := serve(l, httptest.NewRequest("GET", target, nil)); w.Code != 503 {
			t.Errorf("%s: %d", target, w.Code)
		}
	}
}

// TestDisconnectedClientWithBody releases the slot of a client that disconnects, also if its body was not read.
func TestDisconnectedClientWithBody(t *testing.T) {
	t.Parallel()
	l := limiter(t, "{url: /, rules: [{unit: 10s, rpu: 1, algo: LB, queue: 1}]}")
	server := httptest.NewServer(l.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(w, r.Body)
	})))
	defer server.Close()
	r, err := http.Post(server.URL, "text/plain", strings.NewReader("hello"))
	if err != nil {
		t.Fatal(err)
	}
	if body, _ := io.ReadAll(r.Body); string(body) != "hello" {
		t.Errorf("the upstream got %q, want hello", body)
	}
	r.Body.Close()
	full := func() bool { // asked by a request that is cancelled at once if it could wait
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		d, err := l.Take(ctx, diana.Request{})
		d.Done()
		return err == nil && !d.Allowed
	}
	for range 3 {
		ctx, leave := context.WithCancel(context.Background())
		gone := make(chan struct{})
		go func() {
			defer close(gone)
			for { // until it waits: full can have the slot when this one arrives
				r, err := http.NewRequestWithContext(ctx, "POST", server.URL, strings.NewReader("hello"))
				if err != nil {
					t.Error(err)
				}
				answer, err := http.DefaultClient.Do(r)
				if err != nil {
					return
				}
				answer.Body.Close()
				if answer.StatusCode != 503 {
					t.Errorf("answered with %d, want it to wait", answer.StatusCode)
				}
			}
		}()
		testproc.Eventually(t, full)
		leave()
		<-gone
		testproc.Eventually(t, func() bool { return !full() })
	}
}

// TestFieldsAreNotShared checks that responses do not change memory that their fields share.
func TestFieldsAreNotShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := limiter(t, "limits: [{url: /, rules: [{name: many, rpu: 400, unit: day}]}]").
			Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		var told []http.Header
		for range 500 {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
			told = append(told, w.Header())
		}
		for i, header := range told {
			if want := fmt.Sprintf(`"many";r=%d;`, max(399-i, 0)); !strings.HasPrefix(header.Get("RateLimit"), want) {
				t.Fatalf("answer %d: RateLimit is %q, want %s...", i, header.Get("RateLimit"), want)
			}
			if after := header.Get("Retry-After"); i < 400 && after != "" || i >= 400 && after != "216" {
				t.Fatalf("answer %d: Retry-After is %q", i, after)
			}
		}
	})
}

// TestDisconnectedClientWithBodyOfGlobalQueue is TestDisconnectedClientWithBody for a queue in Redis.
func TestDisconnectedClientWithBodyOfGlobalQueue(t *testing.T) {
	t.Parallel()
	l := gateways(t, 1, redistest.Start(t).URL(), "10s", "- url: /\n  rules: [{unit: 10s, rpu: 1, algo: LB, scope: global}]")[0]
	var answered atomic.Int64
	h := l.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { answered.Add(1) }))
	came, went := make(chan struct{}, 2), make(chan struct{}, 2)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		came <- struct{}{}
		h.ServeHTTP(w, r)
		went <- struct{}{}
	}))
	defer server.Close()
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	post := func() {
		r, err := http.NewRequestWithContext(ctx, "POST", server.URL, strings.NewReader("hello"))
		if err != nil {
			t.Error(err)
		}
		if answer, err := http.DefaultClient.Do(r); err == nil {
			answer.Body.Close()
		}
	}
	post()
	<-came
	<-went
	go post() // it would wait for ten seconds
	<-came
	leave()
	<-went
	if n := answered.Load(); n != 1 {
		t.Errorf("%d requests reached the handler, want only the first", n)
	}
}

func TestHandlerAllocations(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	const limits = "limits: [{url: /, rules: [{rpu: 1000000}, {actor: ip, rpu: 1000000}, {actor: device, rpu: 1000000}]}]"
	for headers, most := range map[string]float64{"response: {headers: false}\n": 0, "": 1} {
		l := limiter(t, headers+limits)
		h := l.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		r := httptest.NewRequest("GET", "/", nil)
		r.Header.Set("X-Device-Id", "d")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if got := testing.AllocsPerRun(100, func() { h.ServeHTTP(w, r) }); got > most {
			t.Errorf("%q: %v allocations, want at most %v", headers, got, most)
		}
	}
}

// TestHandlerSlowBody answers with 408 if a body that Handler reads arrives too late for the
// server's deadline. The limits have refused nothing.
func TestHandlerSlowBody(t *testing.T) {
	t.Parallel()
	l := limiter(t, "url: /\nrules: [{algo: LB, rpu: 1000}]")
	r := httptest.NewRequest(http.MethodPost, "/", iotest.ErrReader(os.ErrDeadlineExceeded))
	r.ContentLength = 9
	answer := httptest.NewRecorder()
	l.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("it was allowed") })).ServeHTTP(answer, r)
	if answer.Code != http.StatusRequestTimeout || answer.Header().Get("Retry-After") != "" {
		t.Error(answer.Code, answer.Header())
	}
}
