// SPDX-License-Identifier: MIT

package diana_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/config"
	"github.com/diana-limiter/diana/internal/paths"
	"github.com/diana-limiter/diana/internal/race"
	"github.com/diana-limiter/diana/internal/redistest"
	"github.com/diana-limiter/diana/internal/testproc"
	"github.com/diana-limiter/diana/limit"
	"github.com/diana-limiter/diana/rule"
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
			problem.Title == "" || problem.Detail == "" || !slices.Equal(problem.Violated, []string{`by "device"`, "%E6%AF%8F%E7%A7%92"}) {
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
		if got, want := w.Header().Get("RateLimit-Policy"), `"tb";q=10;w=1, "fast";q=50;w=1, "in";q=2;qu="concurrent-requests", "lb";q=2;w=1`; got != want {
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
	if race.Enabled {
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

// TestRejectedPaths sends paths that no honest client sends. No rule counts them, and nothing
// behind the limiter sees them.
func TestRejectedPaths(t *testing.T) {
	t.Parallel()
	l := limiter(t, "{url: /, rules: [{unit: day, rpu: 1}]}")
	for _, tc := range []struct {
		target string
		status int
	}{
		{"/%2e%2e/admin", 400}, {"/../admin", 400}, {"/a%00", 400}, {"/x%2F../admin", 400},
		{"/0%5C0/..%2fadmin", 400}, {"/x%5Cy%2f../admin", 400}, {strings.Repeat("/a", 257), 400},
		{"/" + strings.Repeat("a", paths.MaxLength), 414}, {"x:http://127.0.0.1/admin", 400}, {"*", 400},
	} {
		u, err := url.ParseRequestURI(tc.target)
		if err != nil {
			t.Fatal(err)
		}
		r := httptest.NewRequest("GET", "/", nil)
		r.URL = u
		w := serve(l, r)
		var problem struct {
			Status        int
			Title, Detail string
		}
		err = json.Unmarshal(w.Body.Bytes(), &problem)
		if w.Code != tc.status || err != nil || problem.Status != tc.status || problem.Title != http.StatusText(tc.status) || !strings.Contains(problem.Detail, "path") {
			t.Errorf("%.60q: %d %s, want %d", tc.target, w.Code, w.Body, tc.status)
		}
		if h := w.Header(); h.Get("Content-Type") != "application/problem+json" || h.Get("RateLimit") != "" || h.Get("Retry-After") != "" {
			t.Errorf("%.60q: header %v", tc.target, h)
		}
	}
	if got, want := l.Rejected(), map[string]int64{"path": 9, "path_length": 1}; !maps.Equal(got, want) {
		t.Errorf("Rejected() = %v, want %v", got, want)
	}
	_, err := l.Take(t.Context(), diana.Request{Path: "/a%0a"})
	if strange := (*rule.PathError)(nil); !errors.As(err, &strange) {
		t.Errorf("Take: %v, want a PathError", err)
	}
	if d := ask(t, l, diana.Request{Path: "/"}); !d.Allowed {
		t.Error("a rejected request was counted")
	}
	// OPTIONS * is evaluated as a request to /.
	r := httptest.NewRequest("OPTIONS", "/", nil)
	r.URL, r.RequestURI = &url.URL{Path: "*"}, "*"
	if w := serve(l, r); w.Code != 503 {
		t.Errorf("OPTIONS *: %d, want 503", w.Code)
	}
}

// A configuration can have strange paths evaluated instead of rejected.
func TestStrangePathsCanBeEvaluated(t *testing.T) {
	t.Parallel()
	l := limiter(t, `
paths: {strange: judge}
limits:
- {url: POST /login, rules: [{rpu: 0}]}
- {url: /admin, rules: [{unit: day, rpu: 1}]}
`)
	for i, want := range []int{200, 503} {
		if w := serve(l, httptest.NewRequest("GET", "/x%2F../y", nil)); w.Code != want {
			t.Errorf("request %d: %d, want %d", i, w.Code, want)
		}
	}
	if w := serve(l, httptest.NewRequest("POST", "/%2e/y", nil)); w.Code != 503 {
		t.Errorf("POST: %d, want 503", w.Code)
	}
}

// Serve evaluates what the program says of a request, and has the filter answer a refused one. The next
// handler and a diversion get the request with its own URL.
func TestServe(t *testing.T) {
	t.Parallel()
	c, err := config.Parse("limits.yaml", []byte(`
- {url: "/users/{id}", rules: [{name: users, actor: account, unit: hour, rpu: 1}]}
- {url: POST /cart, rules: [{unit: hour, rpu: 1}]}
- {url: /sale, divert: {upstream: "http://sale.test"}, rules: [{unit: hour, rpu: 1}]}
`))
	if err != nil {
		t.Fatal(err)
	}
	l, err := diana.Options{
		Refuse: func(w http.ResponseWriter, _ *http.Request, _ *diana.Decision) { w.WriteHeader(418) },
		Upstream: func(u *url.URL) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, u.Host+r.URL.Path) })
		},
	}.New(c)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	refuse := func(w http.ResponseWriter, r *http.Request, d *diana.Decision) {
		w.WriteHeader(429)
		_, _ = io.WriteString(w, d.Verdicts[0].Rule.Name+" "+r.URL.Path)
	}
	next := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.URL.Path) })
	ann := map[string]string{"account": "ann"}
	bob := map[string]string{"account": "bob"}
	for i, tc := range []struct {
		path   string
		q      diana.Request
		refuse func(http.ResponseWriter, *http.Request, *diana.Decision)
		status int
		body   string
	}{
		{"/users/7", diana.Request{Path: "/users/:id", Actors: ann}, refuse, 200, "/users/7"},
		{"/users/8", diana.Request{Path: "/users/:id", Actors: ann}, refuse, 429, "users /users/8"},
		{"/users/8", diana.Request{Path: "/users/:id", Actors: bob}, refuse, 200, "/users/8"},
		{"/users/8", diana.Request{Path: "/users/:id", Actors: bob}, nil, 418, ""},
		{"/a/../b", diana.Request{Path: "/b"}, refuse, 200, "/a/../b"},
		{"/cart", diana.Request{Method: "POST"}, refuse, 200, "/cart"},
		{"/cart", diana.Request{Method: "POST"}, nil, 418, ""},
		{"/cart", diana.Request{}, refuse, 200, "/cart"},
		{"/sales/1", diana.Request{Path: "/sale"}, refuse, 200, "/sales/1"},
		{"/sales/2", diana.Request{Path: "/sale"}, refuse, 200, "sale.test/sales/2"},
	} {
		w := httptest.NewRecorder()
		l.Serve(w, httptest.NewRequest("GET", tc.path, nil), tc.q, next, tc.refuse)
		if w.Code != tc.status || w.Body.String() != tc.body {
			t.Errorf("%d: %s got %d %q, want %d %q", i, tc.path, w.Code, w.Body, tc.status, tc.body)
		}
	}
}

const byModel = "{url: /, rules: [{name: models, unit: day, algo: W, rpu: 2, actor: 'body:/model'}]}"

// poster returns a function that posts a body to a server with a Limiter in front of an echo, and returns the
// status and the body of the response. Length says whether the body has a Content-Length.
func poster(t *testing.T, l *diana.Limiter) func(body string, length bool, header ...string) (int, string) {
	t.Helper()
	s := httptest.NewServer(l.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		w.Header().Set("X-Length", fmt.Sprint(r.ContentLength, r.Header["Content-Length"]))
		_, _ = w.Write(body)
	})))
	t.Cleanup(s.Close)
	return func(body string, length bool, header ...string) (int, string) {
		r, err := http.NewRequest("POST", s.URL, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		if !length {
			r.ContentLength, r.Body = -1, io.NopCloser(io.MultiReader(strings.NewReader(body)))
		}
		for i := 0; i < len(header); i += 2 {
			r.Header.Set(header[i], header[i+1])
		}
		w, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Error(err)
			return 0, ""
		}
		defer func() { _ = w.Body.Close() }()
		got, err := io.ReadAll(w.Body)
		if err != nil {
			t.Error(err)
		}
		want := "-1 []"
		if length && body != "" {
			want = fmt.Sprintf("%d [%[1]d]", len(got))
		} else if body == "" {
			want = "0 [0]"
		}
		if found := w.Header.Get("X-Length"); w.StatusCode == 200 && found != want && body != "" {
			t.Errorf("%.60s: the next handler has the length %s, want %s", body, found, want)
		}
		return w.StatusCode, string(got)
	}
}

// A rule counts by a value in the body. The next handler gets the same bytes.
func TestBodyActor(t *testing.T) {
	t.Parallel()
	l := limiter(t, byModel)
	post := poster(t, l)
	for i, tc := range []struct {
		body   string
		status int
	}{
		{`{"model":"a"}`, 200}, {` {"x":[{"model":"b"}], "model" : "\u0061" } `, 200}, {`{"MODEL":"a"}`, 503},
		{`{"model":"b"}`, 200}, {`{"model":7}`, 200}, {`{"model":7.0}`, 200}, {`{"model":"7"}`, 503},
		{`{"model":true}`, 200},
		{`{"model":null}`, 200}, {`{}`, 200}, {``, 503}, {`{"model":{}}`, 503}, {`{"model":1.5}`, 503}, // by address
		{`{"model":"` + strings.Repeat("x", 1<<20-12) + `"}`, 503},
		{`{"model":"c","pad":"` + strings.Repeat("x", 1<<20-22) + `"}`, 200},
		{`{"model":"c","pad":"` + strings.Repeat("x", 1<<20-21) + `"}`, 413},
		{`{"model":"c","model":"d"}`, 400}, {`model=c`, 400},
	} {
		status, got := post(tc.body, i%2 == 0, "Expect", map[bool]string{true: "100-continue"}[i%3 == 0])
		if status != tc.status || status == 200 && got != tc.body {
			t.Errorf("%d: %.60s: %d %.60s, want %d", i, tc.body, status, got, tc.status)
		}
	}
	if status, got := post("{}", true, "Content-Encoding", "gzip"); status != 400 || !strings.Contains(got, "compressed") {
		t.Errorf("compressed: %d %s", status, got)
	}
	want := map[string]int64{"path": 0, "path_length": 0, "body": 3, "body_length": 1, "body_timeout": 0, "body_incomplete": 0, "body_memory": 0}
	if got := l.Rejected(); !maps.Equal(got, want) {
		t.Errorf("Rejected() = %v, want %v", got, want)
	}
	resets := l.Reset(t.Context(), "models", "a")
	if status, _ := post(`{"model":"a"}`, true); status != 200 || resets != nil {
		t.Errorf("after Reset: %d, %v", status, resets)
	}
}

// A client that sends its body on demand gets the refusal of a large one at once.
func TestLargeBodyOnDemand(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(limiter(t, byModel).Handler(http.NotFoundHandler()))
	t.Cleanup(server.Close)
	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(testproc.Patience))
	_, _ = io.WriteString(conn, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2000000\r\nExpect: 100-continue\r\n\r\n")
	if text, err := io.ReadAll(conn); err != nil || !strings.HasPrefix(string(text), "HTTP/1.1 413 ") {
		t.Errorf("%.300s, %v", text, err)
	}
}

// A body that stalls gets 408, and the client that breaks off gets nothing that matters.
func TestBodyInTime(t *testing.T) {
	t.Parallel()
	l := limiter(t, byModel)
	s := httptest.NewUnstartedServer(l.Handler(http.NotFoundHandler()))
	s.Config.ReadTimeout = 200 * time.Millisecond
	s.Start()
	defer s.Close()
	send := func(text string) string {
		c, err := net.Dial("tcp", s.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		if _, err := io.WriteString(c, text); err != nil {
			t.Fatal(err)
		}
		answer, _ := io.ReadAll(c)
		return string(answer)
	}
	if got := send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 20\r\n\r\n{\"model\":"); !strings.HasPrefix(got, "HTTP/1.1 408 ") {
		t.Errorf("stalled: %s", got)
	}
	if got := send("POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n9\r\n{\"model\":zz\r\n"); !strings.HasPrefix(got, "HTTP/1.1 400 ") {
		t.Errorf("broken chunks: %s", got)
	}
	if got := l.Rejected(); got["body_timeout"] != 1 || got["body_incomplete"] != 1 {
		t.Errorf("Rejected() = %v", got)
	}
}

// The counts of 64 clients are exact.
func TestBodyActorExact(t *testing.T) {
	t.Parallel()
	for _, algo := range []string{"TB", "W", "SW", "SL"} {
		l := limiter(t, "{url: /, rules: [{unit: 31h, algo: "+algo+", rpu: 20, actor: 'body:/model'}, {unit: 31h, algo: W, rpu: 1000}]}")
		post := poster(t, l)
		var allowed [3]atomic.Int64
		var clients sync.WaitGroup
		for i := range 64 {
			clients.Go(func() {
				for k := range 3 {
					model := (i + k) % 3
					if status, _ := post(fmt.Sprintf(`{"model":"m%d","n":%d}`, model, i), i%2 == 0); status == 200 {
						allowed[model].Add(1)
					}
				}
			})
		}
		clients.Wait()
		for i := range allowed {
			if n := allowed[i].Load(); n != 20 {
				t.Errorf("%s: model %d: %d allowed, want 20", algo, i, n)
			}
		}
	}
}

// unread is a body that nothing may read.
type unread struct{ t *testing.T }

func (b unread) Read([]byte) (int, error) {
	b.t.Error("the body was read")
	return 0, io.EOF
}

func (unread) Close() error { return nil }

// A body is read only if a rule needs it, and not if a local rule without it refuses.
func TestBodyIsReadLate(t *testing.T) {
	t.Parallel()
	l := limiter(t, `
- url: /
  rules: [{unit: day, rpu: 1, actor: ip}]
- url: POST /models
  rules: [{unit: day, rpu: 10, actor: "body:/model"}, {unit: day, rpu: 100, wait: 1s}]
- url: /mixed
  rules: [{name: skips, unit: day, rpu: 5, actor: "body:/model", except: [192.0.2.77]}]
`)
	send := func(path, from string, body io.ReadCloser) int {
		r := httptest.NewRequest("POST", path, body)
		r.RemoteAddr = from + ":1"
		w := httptest.NewRecorder()
		l.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})).ServeHTTP(w, r)
		return w.Code
	}
	for i, tc := range []struct {
		path, from string
		status     int
	}{
		{"/other", "192.0.2.1", 200}, // a rule without body
		{"/models", "192.0.2.1", 503},
		{"/models", "192.0.2.1", 503},
		{"/mixed", "192.0.2.77", 200}, // an exception
	} {
		if status := send(tc.path, tc.from, unread{t}); status != tc.status {
			t.Errorf("%d: %d, want %d", i, status, tc.status)
		}
	}
	if status := send("/models", "192.0.2.2", io.NopCloser(strings.NewReader(`{"model":"a"}`))); status != 200 {
		t.Errorf("another client: %d", status)
	}
	s := l.Status()
	if r := s.Rules[0]; r.Refused != 2 || r.Allowed != 3 {
		t.Errorf("the rule without body: %+v", r)
	}
	if r := s.Rules[1]; r.Refused != 0 || r.Allowed != 1 {
		t.Errorf("the rule with body: %+v", r)
	}
}

// A rule in shadow mode changes no answer: whatever the body, the next handler gets it.
func TestBodyInShadow(t *testing.T) {
	t.Parallel()
	l := limiter(t, "{url: /, rules: [{unit: day, rpu: 1, actor: 'body:/model', mode: shadow}, {unit: day, rpu: 100, mode: shadow, cost: {answer: openai, include_usage: true}}]}")
	post := poster(t, l)
	for _, body := range []string{`{"model":"a"}`, `{"model":"a"}`, `{"model":1,"model":2}`, "a=b", strings.Repeat("x", 3<<20), `{"model":"b","stream":true}`} {
		for _, length := range []bool{true, false} {
			if status, got := post(body, length, "Content-Encoding", map[bool]string{true: "x"}[len(body) < 4]); status != 200 || got != body {
				t.Errorf("%.40s: %d, %d bytes", body, status, len(got))
			}
		}
	}
	if r := l.Status().Rules[0]; r.ShadowRefused < 4 || r.Refused != 0 {
		t.Errorf("%+v", r)
	}
}

// A program without Handler gives what a rule would read from the body. Take and Peek never read it.
func TestBodyGivenByProgram(t *testing.T) {
	t.Parallel()
	l := limiter(t, "{url: /, rules: [{name: models, unit: day, rpu: 100, actor: 'body:/model', cost: {answer: openai, reserve: 'body:/max_tokens', or: 5, include_usage: false}}]}")
	r := httptest.NewRequest("POST", "/", unread{t})
	for _, tc := range []struct {
		actors map[string]string
		costs  map[string]int64
		left   int64
	}{
		{map[string]string{"body:/model": "a"}, map[string]int64{"body:/max_tokens": 30}, 70},
		{map[string]string{"body:/model": "a"}, nil, 65},
		{map[string]string{"body:/model": "b"}, map[string]int64{"body:/max_tokens": -1}, 95},
		{nil, map[string]int64{"body:/max_tokens": 10}, 90},
	} {
		q := diana.Request{Path: "/", Actors: tc.actors, Costs: tc.costs, HTTP: r}
		d, err := l.Take(t.Context(), q)
		if err != nil || !d.Allowed || d.Verdicts[0].Remaining != tc.left {
			t.Errorf("%v %v: %+v, %v, want %d left", tc.actors, tc.costs, d.Verdicts, err, tc.left)
		}
		d.Done()
		if d, err := l.Peek(t.Context(), q); err != nil || d.Verdicts[0].Remaining != tc.left {
			t.Errorf("Peek: %+v, %v", d.Verdicts, err)
		}
	}
	// Handler believes a filter, and does not read what is given.
	in := diana.WithActor(r, "body:/model", "c")
	in = diana.WithCost(in, "body:/max_tokens", 7)
	if len(in.Header) > 0 {
		t.Errorf("WithCost has set the header %v", in.Header)
	}
	w := httptest.NewRecorder()
	l.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})).ServeHTTP(w, in)
	if w.Code != 200 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// A number in the body is reserved until the true cost is known.
func TestReserveFromBody(t *testing.T) {
	t.Parallel()
	l := limiter(t, "{url: /, rules: [{name: tokens, unit: day, algo: W, rpu: 1000, cost: {answer: /n, reserve: 'body:/max_tokens', or: 50}}]}")
	var during int64
	h := l.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		during = remaining(t, l)
		_, _ = w.Write([]byte(`{"n":3}`))
	}))
	for _, tc := range []struct {
		body     string
		status   int
		reserved int64
	}{
		{`{"max_tokens":400}`, 200, 400}, {`{"max_tokens":4e2}`, 200, 400}, {`{"max_tokens":1}`, 200, 1},
		{`{"max_tokens":0}`, 200, 50}, {`{"max_tokens":-5}`, 200, 50}, {`{"max_tokens":1.5}`, 200, 50}, {`{"max_tokens":"400"}`, 200, 50},
		{`{}`, 200, 50}, {``, 200, 50}, {`{"max_tokens":null}`, 200, 50},
		{`{"max_tokens":1001}`, 503, 0}, {`{"max_tokens":1e30}`, 503, 0}, {`{`, 400, 0}, {`{"max_tokens":1,"max_tokens":2}`, 400, 0},
	} {
		before := remaining(t, l)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("POST", "/", strings.NewReader(tc.body)))
		after := before
		if tc.status == 200 {
			after -= 3
			if before-during != tc.reserved {
				t.Errorf("%s: %d reserved, want %d", tc.body, before-during, tc.reserved)
			}
		}
		if got := remaining(t, l); w.Code != tc.status || got != after {
			t.Errorf("%s: %d, %d left, want %d and %d", tc.body, w.Code, got, tc.status, after)
		}
		if tc.status == 503 && w.Header().Get("Retry-After") != "" {
			t.Errorf("%s: Retry-After %q, but no wait helps", tc.body, w.Header().Get("Retry-After"))
		}
	}
}

// A request for a stream asks for the usage, if a rule wants that. Other bytes stay as they are.
func TestIncludeUsage(t *testing.T) {
	t.Parallel()
	const usage = `"stream_options":{"include_usage":true}`
	wants := limiter(t, "{url: /, rules: [{unit: day, rpu: 1000, cost: {answer: openai, include_usage: true}}]}")
	others := limiter(t, "{url: /, rules: [{unit: day, rpu: 1000, actor: 'body:/model', cost: {answer: openai, include_usage: false}}]}")
	for _, length := range []bool{true, false} {
		for body, want := range map[string]string{
			` {"stream":true}`:                        ` {` + usage + `,"stream":true}`,
			`{"stream":false, "x":1.0}`:               `{"stream":false, "x":1.0}`,
			`{"stream":true,"stream_options":{}}`:     `{"stream":true,` + usage + `}`,
			`{"stream":true,` + usage + `, "x": [] }`: `{"stream":true,` + usage + `, "x": [] }`,
		} {
			if status, got := poster(t, wants)(body, length); status != 200 || got != want {
				t.Errorf("%s: %d %s, want %s", body, status, got, want)
			}
			if status, got := poster(t, others)(body, length); status != 200 || got != body {
				t.Errorf("without include_usage: %s: %d %s", body, status, got)
			}
		}
		if status, _ := poster(t, wants)(`{"stream":true,"stream":false}`, length); status != 400 {
			t.Errorf("stream twice: %d", status)
		}
	}
}

// A body that arrives slowly is evaluated by the limits in force when it is there.
func TestBodyDuringUpdate(t *testing.T) {
	t.Parallel()
	l := limiter(t, byModel)
	in, out := io.Pipe()
	done := make(chan int)
	go func() {
		w := httptest.NewRecorder()
		l.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			if !bytes.Equal(body, []byte(`{"user":"ann","model":"a"}`)) || err != nil {
				t.Errorf("%s, %v", body, err)
			}
		})).ServeHTTP(w, httptest.NewRequest("POST", "/", in))
		done <- w.Code
	}()
	if _, err := io.WriteString(out, `{"user":"ann",`); err != nil { // Handler has begun to read
		t.Fatal(err)
	}
	c, err := config.Parse("x", []byte("{url: /, rules: [{name: users, unit: day, rpu: 5, actor: 'body:/user'}]}"))
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Update(c); err != nil {
		t.Fatal(err)
	}
	_, err = io.WriteString(out, `"model":"a"}`)
	err = errors.Join(err, out.Close())
	if status := <-done; status != 200 || err != nil {
		t.Errorf("%d, %v", status, err)
	}
	d, err := l.Peek(context.Background(), diana.Request{Path: "/", Actors: map[string]string{"body:/user": "ann"}})
	if err != nil || d.Verdicts[0].Rule.Name != "users" || d.Verdicts[0].Remaining != 4 {
		t.Errorf("%+v, %v", d.Verdicts, err)
	}
}

// limiterOf is limiter for a program with options of its own.
func limiterOf(t testing.TB, o diana.Options, yaml string) *diana.Limiter {
	t.Helper()
	c, err := config.Parse("test.yaml", []byte(yaml))
	if err != nil {
		t.Fatal(err)
	}
	o.Logger = quiet.Logger
	l, err := o.New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// TestRefuse has a program write its own refusals. Other responses stay as they are.
func TestRefuse(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var got []string
		l := limiterOf(t, diana.Options{Refuse: func(w http.ResponseWriter, r *http.Request, d *diana.Decision) {
			var names []string
			for i := range d.Verdicts {
				if d.Verdicts[i].Refused() {
					names = append(names, d.Verdicts[i].Rule.Name)
				}
			}
			got = append(got, fmt.Sprint(r.URL.Path, " ", d.Allowed, " ", d.RetryAfter, " ", names))
			w.WriteHeader(http.StatusTeapot)
			_, _ = io.WriteString(w, "no")
		}}, `
- {url: /once, rules: [{name: day, unit: day, rpu: 1, algo: W}, {name: none, rpu: 0, mode: shadow}]}
- {url: /never, rules: [{name: never, rpu: 0}]}
- {url: /other, rules: [{rpu: 0}], divert: {body: busy}}
- {url: /slow, rules: [{name: slow, rpu: 1, unit: 10s, algo: LB, queue: 1}]}
`)
		for _, tc := range []struct {
			path  string
			code  int
			body  string
			retry string
		}{
			{"/once", 200, "upstream", ""},
			{"/once", 418, "no", "86400"},
			{"/never", 418, "no", ""},
			{"/other", 200, "busy", ""},
			{"/a%2f../b", 400, "", ""},
			{"/slow", 200, "upstream", ""},
			{"/slow", 418, "no", "1"}, // its context ends
		} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			w := serve(l, httptest.NewRequestWithContext(ctx, "GET", tc.path, nil))
			cancel()
			h := w.Header()
			if w.Code != tc.code || tc.body != "" && w.Body.String() != tc.body || h.Get("Retry-After") != tc.retry {
				t.Errorf("%s: %d %q, Retry-After %q", tc.path, w.Code, w.Body, h.Get("Retry-After"))
			}
			if w.Code == 418 && (h.Get("Cache-Control") != "no-store" || h.Get("RateLimit") == "" || h.Get("RateLimit-Policy") == "") {
				t.Errorf("%s: %v", tc.path, h)
			}
		}
		want := []string{"/once false 24h0m0s [day]", "/never false 0s [never]", "/slow false 0s []"}
		if !slices.Equal(got, want) {
			t.Errorf("Refuse saw %q, want %q", got, want)
		}
	})
}

// TestOnDecision compares the decisions that a program sees with those that Take and Handler make.
func TestOnDecision(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var got []string
		l := limiterOf(t, diana.Options{OnDecision: func(d *diana.Decision) {
			got = append(got, fmt.Sprint(d.Allowed, " ", d.Delayed, " ", d.RetryAfter > 0, " ", len(d.Verdicts)))
		}}, `
- {url: /once, rules: [{unit: day, rpu: 1, algo: W}]}
- {url: /slow, rules: [{rpu: 1, unit: 10s, algo: LB, queue: 1}]}
- {url: /other, rules: [{rpu: 0}], divert: {body: busy}}
`)
		next := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { got = append(got, "next") })
		handle := func(path string, patience time.Duration) {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			l.Handler(next).ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, "GET", path, nil))
		}
		take := func(path string, patience time.Duration) {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			d, _ := l.Take(ctx, diana.Request{Path: path})
			d.Done()
		}
		for _, ask := range []func(string, time.Duration){handle, take} {
			ask("/free", time.Hour)
			ask("/once", time.Hour)
			ask("/slow", time.Hour)
			ask("/slow", time.Hour)   // waits
			ask("/slow", time.Second) // its context ends
			ask("/a%2f../b", time.Hour)
			ask("/other", time.Hour)
			time.Sleep(time.Hour)
		}
		want := []string{
			"true 0s false 0", "next", "true 0s false 1", "next", "true 0s false 1", "next", "true 10s false 1", "next", "false 0s false 1",
			"true 0s false 0", "false 0s true 1", "true 0s false 1", "true 10s false 1", "false 0s false 1",
		}
		if !slices.Equal(got, want) {
			t.Errorf("saw %q\nwant %q", got, want)
		}
	})
}

// TestHooksPanic releases what a request holds when a hook panics.
func TestHooksPanic(t *testing.T) {
	t.Parallel()
	panics := false
	o := diana.Options{
		OnDecision: func(*diana.Decision) {
			if panics {
				panic(http.ErrAbortHandler)
			}
		},
		Refuse: func(http.ResponseWriter, *http.Request, *diana.Decision) { panic(http.ErrAbortHandler) },
	}
	l := limiterOf(t, o, "[{url: /, rules: [{rpu: 3, algo: C}]}, {url: /none, rules: [{rpu: 0}]}]")
	try := func(what string, f func()) {
		defer func() {
			if recover() == nil {
				t.Errorf("%s: no panic", what)
			}
		}()
		f()
	}
	for range 5 {
		panics = true
		try("Take", func() { _, _ = l.Take(t.Context(), diana.Request{Path: "/"}) })
		try("Handler", func() { serve(l, httptest.NewRequest("GET", "/", nil)) })
		panics = false
		try("Refuse", func() { serve(l, httptest.NewRequest("GET", "/none", nil)) })
	}
	if n := slots(t, l, 5); n != 3 {
		t.Errorf("%d slots are free, want 3", n)
	}
}

// slots returns how many of n requests have a slot at once.
func slots(t testing.TB, l *diana.Limiter, n int) (free int) {
	t.Helper()
	for range n {
		d, err := l.Take(t.Context(), diana.Request{Path: "/"})
		if err != nil {
			t.Fatal(err)
		}
		defer d.Done()
		if d.Allowed {
			free++
		}
	}
	return free
}

// TestTakeEndsOnError ends a Decision with the error of Take. Ending it again does nothing.
func TestTakeEndsOnError(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, `
- {url: /, rules: [{rpu: 3, algo: C}]}
- {url: /slow, rules: [{rpu: 1, unit: 10s, algo: LB, queue: 1}]}
- {url: /turn, rules: [{rpu: 1, unit: 5m, algo: TB, burst: 1, wait: 10m}]}
`)
		count(t, l, 1, diana.Request{Path: "/slow"})
		count(t, l, 1, diana.Request{Path: "/turn"})
		for _, path := range []string{"/slow", "/turn", "/a%2f../b"} {
			for range 5 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				d, err := l.Take(ctx, diana.Request{Path: path})
				cancel()
				if err == nil || d.Allowed || d.RetryAfter != 0 || d.Verdicts != nil {
					t.Fatalf("%s: %+v, %v", path, d, err)
				}
				next, err := l.Take(t.Context(), diana.Request{Path: "/"})
				if err != nil || !next.Allowed {
					t.Fatalf("%s: it holds a slot: %v", path, err)
				}
				d.SetStatus(200)
				d.Done()
				d.Done()
				if n := slots(t, l, 5); n != 2 {
					t.Fatalf("%s: %d slots are free beside one that is held, want 2", path, n)
				}
				next.Done()
			}
		}
		if n := slots(t, l, 5); n != 3 {
			t.Errorf("%d slots are free, want 3", n)
		}
	})
}

// unreadable is a body that must not be read.
type unreadable struct{ t *testing.T }

func (u unreadable) Read([]byte) (int, error) {
	u.t.Error("the body is read")
	return 0, io.EOF
}

// TestTakeReadsNoBody has requests wait, whose bodies Take leaves alone.
func TestTakeReadsNoBody(t *testing.T) {
	t.Parallel()
	for _, yaml := range []string{
		"{url: /, rules: [{rpu: 1, algo: LB}]}", "{url: /, rules: [{rpu: 1, algo: W, wait: 1m}]}",
		"{url: /, rules: [{rpu: 1, algo: LB}, {rpu: 1, unit: 2s, algo: W, wait: 1m}]}",
	} {
		synctest.Test(t, func(t *testing.T) {
			l := limiter(t, yaml)
			for i := range 3 {
				r := httptest.NewRequest("POST", "/", unreadable{t})
				r.ContentLength = 4
				d, err := l.Take(t.Context(), diana.Request{Method: "POST", Path: "/", HTTP: r})
				if err != nil || !d.Allowed || (d.Delayed > 0) != (i > 0) {
					t.Errorf("%s: %v, delayed %v, %v", yaml, d.Allowed, d.Delayed, err)
				}
				d.Done()
			}
			r := httptest.NewRequest("POST", "/", strings.NewReader("body")) // Handler reads it once
			l.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				if body, err := io.ReadAll(r.Body); string(body) != "body" || err != nil {
					t.Errorf("next reads %q, %v", body, err)
				}
			})).ServeHTTP(httptest.NewRecorder(), r)
		})
	}
}

// TestOnDone has parallel requests charge one counter. Their moments are in the order of the charges.
func TestOnDone(t *testing.T) {
	t.Parallel()
	type moments struct{ charged, status, released, remaining int64 }
	var mu sync.Mutex
	var all []moments
	var inOrder atomic.Bool
	inOrder.Store(true)
	l := limiterOf(t, diana.Options{InOrder: inOrder.Load, OnDone: func(d *diana.Decision) {
		charged, status, _, released := d.Moments()
		if d.Writer() == nil || d.Request().Path != "/" || len(d.Verdicts) != 2 {
			t.Errorf("decision of %v by %d rules", d.Request(), len(d.Verdicts))
		}
		mu.Lock()
		defer mu.Unlock()
		all = append(all, moments{charged, status, released, d.Verdicts[0].Remaining})
	}}, "url: /\nrules: [{name: day, algo: W, unit: day, rpu: 100000}, {name: slots, algo: C, rpu: 100}]")
	h := l.Handler(http.NotFoundHandler())
	var running sync.WaitGroup
	for range 8 {
		running.Go(func() {
			for range 300 {
				h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
			}
		})
	}
	running.Wait()
	slices.SortFunc(all, func(a, b moments) int { return cmp.Compare(a.charged, b.charged) })
	for i, m := range all {
		if m.remaining != int64(100000-i-1) || m.charged == 0 || m.status != 0 || m.released <= m.charged {
			t.Fatalf("decision %d: %+v", i, m)
		}
	}
	if len(all) != 8*300 {
		t.Errorf("%d decisions", len(all))
	}
	last := all[len(all)-1]
	all = nil
	inOrder.Store(false)
	h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
	if m := all[0]; m.charged == 0 || m.released < m.charged || m.remaining != last.remaining-1 { // moments in order may be ahead of the clock
		t.Errorf("without an order: %+v after %+v", m, last)
	}
}
