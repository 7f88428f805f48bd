// SPDX-License-Identifier: MIT

package diana_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"math/big"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/config"
	"github.com/diana-limiter/diana/internal/redistest"
	"github.com/diana-limiter/diana/internal/testproc"
)

// oneRule is a configuration of one rule, drawn at random.
type oneRule struct {
	algo, unit    string
	n             int64
	burst, slices int64 // 0: not set
	window        func(now time.Time) time.Duration
}

// drawRule draws a rule of any algorithm. The limit is small, so that a test can use it up.
func drawRule(t *rapid.T) oneRule {
	r := oneRule{
		algo: rapid.SampledFrom([]string{"TB", "W", "SW", "SL", "LB", "C"}).Draw(t, "algo"),
		n:    rapid.OneOf(rapid.Int64Range(0, 12), rapid.SampledFrom([]int64{60, 100})).Draw(t, "rpu"),
	}
	unit := rapid.OneOf(
		rapid.SampledFrom([]time.Duration{time.Millisecond, 300 * time.Millisecond, time.Second, time.Minute, time.Hour, 24 * time.Hour, 744 * time.Hour}),
		rapid.Map(rapid.Int64Range(1, 20000), func(ms int64) time.Duration { return time.Duration(ms) * time.Millisecond }),
	).Draw(t, "unit")
	r.unit, r.window = unit.String(), func(time.Time) time.Duration { return unit }
	switch r.algo {
	case "TB":
		r.burst = rapid.Int64Range(0, 150).Draw(t, "burst")
	case "SW":
		r.slices = rapid.SampledFrom([]int64{0, 2, 3, 10, 100}).Draw(t, "slices")
	case "W":
		if rapid.Bool().Draw(t, "calendar") {
			r.unit = rapid.SampledFrom([]string{"week", "month", "year", "total"}).Draw(t, "calendar unit")
			r.window = func(now time.Time) time.Duration { return present(r.unit, now) }
		}
	}
	return r
}

// present returns the length of the window of the calendar at a moment.
func present(unit string, now time.Time) time.Duration {
	switch now = now.UTC(); unit {
	case "week":
		return 7 * 24 * time.Hour
	case "month":
		begin := time.Date(now.Year(), now.Month(), 1, 0, 0, 0, 0, time.UTC)
		return begin.AddDate(0, 1, 0).Sub(begin)
	case "year":
		begin := time.Date(now.Year(), 1, 1, 0, 0, 0, 0, time.UTC)
		return begin.AddDate(1, 0, 0).Sub(begin)
	}
	return 0
}

func (r oneRule) yaml() string {
	text := fmt.Sprintf("{url: /, rules: [{name: r, algo: %s, rpu: %d", r.algo, r.n)
	if r.algo != "C" {
		text += ", unit: " + r.unit
	}
	if r.burst > 0 {
		text += fmt.Sprintf(", burst: %d", r.burst)
	}
	if r.slices > 0 {
		text += fmt.Sprintf(", slices: %d", r.slices)
	}
	return text + "}]}"
}

// policy returns q and w as the documentation has them, by fractions. A w of -1 is left out.
func (r oneRule) policy(now time.Time) (q, w int64) {
	seconds := func(d time.Duration) *big.Rat { return big.NewRat(int64(d), int64(time.Second)) }
	unit := r.window(now)
	if r.algo == "C" || unit == 0 {
		return r.n, -1
	}
	q, span := r.n, seconds(unit)
	if r.burst > r.n && r.n > 0 {
		q = r.burst
		span.Mul(span, big.NewRat(r.burst, r.n))
	}
	if span.Cmp(big.NewRat(1, 1)) < 0 {
		perSecond := new(big.Rat).Quo(big.NewRat(r.n, 1), seconds(unit))
		q, span = new(big.Int).Quo(perSecond.Num(), perSecond.Denom()).Int64(), big.NewRat(1, 1)
		if q == 0 {
			return 0, -1
		}
	}
	whole, rest := new(big.Int).QuoRem(span.Num(), span.Denom(), new(big.Int))
	if w = whole.Int64(); rest.Sign() > 0 {
		w++
	}
	return q, w
}

// step is one event of a history: time passes, and then a request arrives or the oldest one ends.
type step struct {
	pause time.Duration
	ends  bool
}

// withFields evaluates a request, and returns its fields. The caller must end it.
func withFields(t *testing.T, l *diana.Limiter) (diana.Decision, http.Header) {
	t.Helper()
	d, err := l.Take(t.Context(), diana.Request{})
	if err != nil {
		t.Fatal(err)
	}
	h := http.Header{}
	d.SetFields(h)
	return d, h
}

// play plays steps on a Limiter of its own. It returns the Limiter, its clock, and the fields of the last request.
// Only requests that a step ends have ended, because the others may hold slots.
func (r oneRule) play(t *testing.T, steps []step) (l *diana.Limiter, now *time.Time, h http.Header) {
	t.Helper()
	clock := time.Date(2026, 2, 27, 23, 59, 0, 0, time.UTC)
	now = &clock
	l = clocked(t, r.yaml(), now)
	var inside []diana.Decision
	for _, s := range steps {
		*now = now.Add(s.pause)
		if s.ends {
			if len(inside) > 0 {
				inside[0].Done()
				inside = inside[1:]
			}
			continue
		}
		var d diana.Decision
		if d, h = withFields(t, l); d.Allowed {
			inside = append(inside, d)
		}
	}
	return l, now, h
}

// available returns how many requests are allowed at once after a pause.
func (r oneRule) available(t *testing.T, steps []step, pause time.Duration) (n int64) {
	t.Helper()
	l, now, _ := r.play(t, steps)
	*now = now.Add(pause)
	for {
		if d, _ := withFields(t, l); !d.Allowed {
			return n
		}
		n++
	}
}

var (
	policyField = regexp.MustCompile(`^"r";q=(\d+)(?:;w=(\d+))?(?:;qu="concurrent-requests")?$`)
	limitField  = regexp.MustCompile(`^"r";r=(\d+)(?:;t=(\d+))?$`)
)

// figures returns two figures of a field; one that is left out is -1.
func figures(t *testing.T, field *regexp.Regexp, value string) (a, b int64) {
	t.Helper()
	m := field.FindStringSubmatch(value)
	if m == nil {
		t.Fatalf("the field is %q", value)
	}
	a, _ = strconv.ParseInt(m[1], 10, 64)
	if m[2] == "" {
		return a, -1
	}
	b, _ = strconv.ParseInt(m[2], 10, 64)
	return a, b
}

// TestFiguresOfFields compares the RateLimit fields of random rules after random requests with fractions and
// with what Limiters allow that have seen the same requests.
func TestFiguresOfFields(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		r := drawRule(rt)
		unit := max(r.window(time.Unix(0, 0)), time.Second)
		steps := rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) step {
			return step{
				pause: rapid.OneOf(rapid.Just(time.Duration(0)), rapid.Map(rapid.Int64Range(0, 3*unit.Microseconds()/2/max(r.n, 1)),
					func(us int64) time.Duration { return time.Duration(us) * time.Microsecond })).Draw(rt, "pause"),
				ends: rapid.IntRange(0, 4).Draw(rt, "ends") == 0,
			}
		}), 1, 30).Draw(rt, "steps")
		steps[len(steps)-1].ends = false
		_, now, h := r.play(t, steps)
		q, w := figures(t, policyField, h.Get("RateLimit-Policy"))
		left, reset := figures(t, limitField, h.Get("RateLimit"))
		at := fmt.Sprintf("%s after %v\n%s | %s", r.yaml(), steps, h.Get("RateLimit-Policy"), h.Get("RateLimit"))
		if wantQ, wantW := r.policy(*now); q != wantQ || w != wantW {
			t.Fatalf("%s\nwant q=%d;w=%d", at, wantQ, wantW)
		}
		if (w < 0 || r.n == 0) != (reset < 0) {
			t.Fatalf("%s\nt and w do not agree", at)
		}
		longest := w
		if r.algo == "SW" {
			unit := r.window(*now)
			slices := r.slices
			if slices == 0 {
				slices = 10
			}
			longest = int64((unit + unit/time.Duration(slices) + time.Second - 1) / time.Second)
		}
		if left > q || w >= 0 && reset > longest {
			t.Fatalf("%s\nwant r of at most %d, t of at most %d", at, q, longest)
		}
		if n := r.available(t, steps, 0); left != min(n, q) {
			t.Fatalf("%s\n%d are allowed now", at, n)
		}
		if left > 0 || reset < 0 {
			return
		}
		spaced := r.algo == "TB" || r.algo == "LB" // t is then the time of one request, a part of which has passed
		if n := r.available(t, steps, time.Duration(reset-1)*time.Second); n > 0 && reset > 1 && !spaced {
			t.Fatalf("%s\n%d are allowed a second before t", at, n)
		}
		if n := r.available(t, steps, time.Duration(reset)*time.Second); n == 0 {
			t.Fatalf("%s\nnone is allowed after t", at)
		}
	})
}

// Debt and a clock that was set back can last longer than the window, and t says the window. Retry-After says all.
func TestFieldsInDebt(t *testing.T) {
	t.Parallel()
	for _, rule := range []string{"algo: TB, unit: minute, burst: 20", "algo: TB, unit: minute", "algo: W, unit: minute", "algo: SL, unit: minute", "algo: SW, unit: minute"} {
		now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		l := clocked(t, "{url: /, rules: [{name: r, rpu: 10, cost: {answer: bytes}, "+rule+"}]}", &now)
		d, _ := withFields(t, l)
		d.Settle(1000)
		d.Done()
		now = now.Add(-time.Minute)
		d, h := withFields(t, l)
		d.Done()
		_, w := figures(t, policyField, h.Get("RateLimit-Policy"))
		left, reset := figures(t, limitField, h.Get("RateLimit"))
		if strings.Contains(rule, "SW") {
			w += w / 10
		}
		if wait, _ := strconv.ParseInt(h.Get("Retry-After"), 10, 64); left != 0 || reset < 1 || reset > w || wait < reset {
			t.Errorf("%s: %s | %s, Retry-After %s", rule, h.Get("RateLimit-Policy"), h.Get("RateLimit"), h.Get("Retry-After"))
		}
	}
}

// The policies of classes and overrides have the figures of their own limits.
func TestFieldsOfClasses(t *testing.T) {
	t.Parallel()
	l := limiter(t, `
identity: {trusted_proxies: [192.0.2.0/24]}
limits:
  - url: /
    rules:
      - name: r
        actor: account
        rpu: 10
        class: header:X-Plan
        classes: {pro: {rpu: 10, burst: 25}, short: {rpu: 3, burst: 2}}
        overrides: {ann: {rpu: 4, burst: 8}}
      - {name: hidden, rpu: 1, mode: shadow}
`)
	for _, row := range []struct{ plan, account, policy, limit string }{
		{"", "bob", `"r";q=10;w=1`, `"r";r=9;t=1`},
		{"pro", "cat", `"r";q=25;w=3`, `"r";r=24;t=3`},
		{"short", "dan", `"r";q=3;w=1`, `"r";r=1;t=1`},
		{"pro", "ann", `"r";q=8;w=2`, `"r";r=7;t=2`},
	} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set("X-Plan", row.plan)
		r.Header.Set("X-Account-Id", row.account)
		h := serve(l, r).Header()
		if h.Get("RateLimit-Policy") != row.policy || h.Get("RateLimit") != row.limit {
			t.Errorf("%s of %q: %s | %s, want %s | %s", row.account, row.plan, h.Get("RateLimit-Policy"), h.Get("RateLimit"), row.policy, row.limit)
		}
	}
}

// A client finds the names of violated-policies in RateLimit-Policy.
func TestNamesAreOneText(t *testing.T) {
	t.Parallel()
	names := []string{`100% "sure" \`, "每秒", "plain", "<&>"}
	var rules []string
	for _, name := range names {
		text, err := json.Marshal(name)
		if err != nil {
			t.Fatal(err)
		}
		rules = append(rules, fmt.Sprintf("{name: %s, rpu: 0}", text))
	}
	w := serve(limiter(t, "{url: /, rules: ["+strings.Join(rules, ", ")+"]}"), httptest.NewRequest(http.MethodGet, "/", nil))
	var problem struct {
		Violated []string `json:"violated-policies"`
	}
	if err := json.Unmarshal(w.Body.Bytes(), &problem); err != nil {
		t.Fatal(err)
	}
	var inFields []string
	for _, m := range regexp.MustCompile(`"((?:[^"\\]|\\.)*)";q=`).FindAllStringSubmatch(w.Header().Get("RateLimit-Policy"), -1) {
		inFields = append(inFields, regexp.MustCompile(`\\(.)`).ReplaceAllString(m[1], "$1"))
	}
	want := []string{`100%25 "sure" \`, "%E6%AF%8F%E7%A7%92", "plain", "<&>"}
	if !slices.Equal(problem.Violated, want) || !slices.Equal(inFields, want) {
		t.Errorf("violated-policies has %q, RateLimit-Policy %q, want %q", problem.Violated, inFields, want)
	}
}

// wire is a ResponseWriter that records when it sent how many bytes. Bytes wait until they are
// flushed, as in a server's buffers.
type wire struct {
	header  http.Header
	start   time.Time
	waiting int
	sent    []sent

	mu  *sync.Mutex // guards all
	all *[]sent     // of all that share it
}

type sent struct {
	at time.Duration
	n  int
}

func newWire() *wire { return &wire{header: http.Header{}, start: time.Now()} }

func (w *wire) Header() http.Header { return w.header }
func (w *wire) WriteHeader(int)     {}
func (w *wire) Write(b []byte) (int, error) {
	w.waiting += len(b)
	return len(b), nil
}

func (w *wire) Flush() {
	s := sent{time.Since(w.start), w.waiting}
	w.waiting = 0
	w.sent = append(w.sent, s)
	if w.mu != nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		*w.all = append(*w.all, s)
	}
}

// smooth fails if the bytes of some interval exceed the rate by more than a quarter of a second's worth.
// It returns the number of all bytes.
func smooth(t *testing.T, list []sent, rate int) (total int) {
	t.Helper()
	least := math.Inf(1) // of what was sent before a moment, less what the rate allows until then
	for _, s := range list {
		allowed := float64(rate) * s.at.Seconds()
		least = min(least, float64(total)-allowed)
		total += s.n
		if over := float64(total) - allowed - least - float64(rate)/4; over > 0.01 {
			t.Fatalf("at %v %.0f bytes too much in some interval", s.at, over)
		}
	}
	return total
}

// answered serves a request to w whose handler is h.
func answered(l *diana.Limiter, w *wire, r *http.Request, h http.HandlerFunc) {
	l.Handler(h).ServeHTTP(w, r)
	w.Flush() // as the server does
}

func get(path string) *http.Request { return httptest.NewRequest("GET", path, nil) }

// TestBandwidth sends bytes evenly, loses none, and takes as long as the rate says, whatever pieces
// a handler writes.
func TestBandwidth(t *testing.T) {
	t.Parallel()
	for _, yaml := range []string{
		"{url: /, bandwidth: %d}",
		"{url: /, bandwidth: {rate: %d, actor: device}}",
		"[{url: /, bandwidth: 900m}, {url: /x, bandwidth: %d}, {url: /x/y, bandwidth: {rate: 100m, actor: all}}]",
		"[{url: /, bandwidth: 900m}, {url: /x, bandwidth: {rate: %d, actor: [ip, device]}}, {url: /x/y, bandwidth: 100m}]",
	} {
		for _, rate := range []int{1000, 12_345, 100_000, 5_000_000} {
			for name, pieces := range map[string]func(int) int{
				"at once":  func(left int) int { return left },
				"bytes":    func(int) int { return max(rate/2000, 1) },
				"random":   func(left int) int { return rand.IntN(min(left, rate)) + 1 },
				"4096":     func(int) int { return 4096 },
				"a second": func(int) int { return rate },
			} {
				synctest.Test(t, func(t *testing.T) {
					l := limiter(t, fmt.Sprintf(yaml, rate))
					w, size := newWire(), 3*rate
					answered(l, w, get("/x/y"), func(w http.ResponseWriter, _ *http.Request) {
						body := make([]byte, size)
						for len(body) > 0 {
							n := min(pieces(len(body)), len(body))
							if k, err := w.Write(body[:n]); k != n || err != nil {
								t.Fatal(k, err)
							}
							body = body[n:]
						}
					})
					if got := smooth(t, w.sent, rate); got != size {
						t.Errorf("%s: %d bytes were sent, want %d", name, got, size)
					}
					if took := w.sent[len(w.sent)-1].at.Seconds(); took < 2.75 || took > 3 {
						t.Errorf("%s at %d: took %.2f s, want 2.8 to 3", name, rate, took)
					}
				})
			}
		}
	}
}

// TestBandwidthOfSlowHandler does not let a handler that pauses catch up later.
func TestBandwidthOfSlowHandler(t *testing.T) {
	t.Parallel()
	const rate = 100_000
	for _, yaml := range []string{"{url: /, bandwidth: 100k}", "{url: /, bandwidth: {rate: 100k, actor: ip}}"} {
		synctest.Test(t, func(t *testing.T) {
			w := newWire()
			answered(limiter(t, yaml), w, get("/"), func(w http.ResponseWriter, _ *http.Request) {
				rnd := rand.New(rand.NewPCG(1, 2))
				for range 500 {
					time.Sleep(time.Duration(rnd.IntN(300)) * time.Millisecond)
					_, _ = w.Write(make([]byte, rnd.IntN(rate/2)))
					if rnd.IntN(2) == 0 {
						w.(http.Flusher).Flush()
					}
				}
			})
			smooth(t, w.sent, rate)
		})
	}
}

// TestBandwidthShared has the responses to one actor share a rate, evenly. Other actors have their
// own.
func TestBandwidthShared(t *testing.T) {
	t.Parallel()
	const rate, size, answers = 100_000, 100_000, 5
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, "{url: /, bandwidth: {rate: 100k, actor: device}}")
		began := time.Now()
		var wg sync.WaitGroup
		for _, device := range []string{"a", "b", "c"} {
			var mu sync.Mutex
			var all []sent
			var own sync.WaitGroup
			for range answers {
				own.Go(func() {
					w := newWire()
					w.mu, w.all = &mu, &all
					r := get("/")
					r.Header.Set("X-Device-Id", device)
					answered(l, w, r, func(w http.ResponseWriter, _ *http.Request) {
						_, _ = io.Copy(w, strings.NewReader(strings.Repeat("x", size)))
					})
					if took := time.Since(began).Seconds(); took < 3 {
						t.Errorf("one of %d answers took %.2f s, want it to share", answers, took)
					}
				})
			}
			wg.Go(func() {
				own.Wait()
				if got := smooth(t, all, rate); got != size*answers {
					t.Errorf("%d bytes were sent, want %d", got, size*answers)
				}
				if took := time.Since(began).Seconds(); took < 4.75 || took > 5 {
					t.Errorf("%d answers took %.2f s, want 4.8", answers, took)
				}
			})
		}
		wg.Wait()
	})
}

// TestBandwidthOfDisconnectedClient refunds what a client that disconnects has reserved, and does not wait for it.
func TestBandwidthOfDisconnectedClient(t *testing.T) {
	t.Parallel()
	for _, yaml := range []string{"{url: /, bandwidth: 10k}", "{url: /, bandwidth: {rate: 10k, actor: all}}"} {
		synctest.Test(t, func(t *testing.T) {
			l := limiter(t, yaml)
			began := time.Now()
			var wg sync.WaitGroup
			for range 100 {
				wg.Go(func() {
					ctx, cancel := context.WithTimeout(context.Background(), time.Second)
					defer cancel()
					w := newWire()
					answered(l, w, get("/").WithContext(ctx), func(w http.ResponseWriter, _ *http.Request) {
						n, err := w.Write(make([]byte, 1_000_000))
						if n == 1_000_000 || err == nil {
							t.Errorf("wrote %d bytes, %v", n, err)
						}
					})
					if took := time.Since(began); took > time.Second {
						t.Errorf("an answer went on for %v", took)
					}
				})
			}
			wg.Wait()
			w := newWire()
			answered(l, w, get("/"), func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 10_000)) })
			if took := time.Since(began).Seconds(); took > 2.1 {
				t.Errorf("after the others had left, a second's worth was there after %.2f s, want 2", took)
			}
		})
	}
}

// TestBandwidthOfOthers does not slow refusals, responses to HEAD, and other paths.
func TestBandwidthOfOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, "{url: /x, bandwidth: 1k, rules: [{rpu: 1, unit: day}]}")
		began := time.Now()
		large := func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 1_000_000)) }
		answered(l, newWire(), get("/y"), large)
		answered(l, newWire(), httptest.NewRequest("HEAD", "/x", nil), large)
		answered(l, newWire(), get("/x"), large) // refused
		if took := time.Since(began); took > 0 {
			t.Errorf("took %v", took)
		}
	})
}

// TestBandwidthReloaded keeps the rate of responses that have begun. New ones have the new rate.
func TestBandwidthReloaded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		file := t.TempDir() + "/diana.yaml"
		write := func(text string) {
			t.Helper()
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		write("{url: /, bandwidth: {rate: 10k, actor: all}}")
		l, err := quiet.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		body := func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 50_000)) }
		first := newWire()
		var wg sync.WaitGroup
		wg.Go(func() { answered(l, first, get("/"), body) })
		time.Sleep(time.Second)
		write("{url: /, bandwidth: {rate: 1m, actor: all}}")
		if err := l.Reload(); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		answered(l, newWire(), get("/"), body)
		if took := time.Since(began); took > time.Second {
			t.Errorf("an answer after the reload took %v", took)
		}
		write("{url: /, rules: [{rpu: 1}]}")
		if err := l.Reload(); err != nil {
			t.Fatal(err)
		}
		wg.Wait()
		if got := smooth(t, first.sent, 10_000); got != 50_000 {
			t.Errorf("the first answer had %d bytes", got)
		}
	})
}

// TestBandwidthThroughServer does all that a response can do, with a bandwidth, in a real server.
func TestBandwidthThroughServer(t *testing.T) {
	t.Parallel()
	l := limiter(t, "{url: /, bandwidth: 400k, rules: [{rpu: 1000, charge: [401]}]}")
	body := bytes.Repeat([]byte("0123456789"), 20_000) // half a second's worth
	text := string(body)
	handlers := map[string]http.HandlerFunc{
		"/write": func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(body) },
		"/copy": func(w http.ResponseWriter, _ *http.Request) {
			n, err := io.Copy(w, struct{ io.Reader }{bytes.NewReader(body)})
			if n != int64(len(body)) || err != nil {
				t.Error(n, err)
			}
		},
		"/content": func(w http.ResponseWriter, r *http.Request) {
			http.ServeContent(w, r, "x.txt", time.Time{}, bytes.NewReader(body))
		},
		"/trailer": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Trailer", "X-Sum")
			_, _ = w.Write(body)
			w.Header().Set("X-Sum", "7")
		},
		"/flush": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusEarlyHints)
			_, _ = w.Write(body[:1])
			if err := http.NewResponseController(w).Flush(); err != nil {
				t.Error(err)
			}
			_, _ = w.Write(body[1:])
		},
		"/controller": func(w http.ResponseWriter, _ *http.Request) {
			c := http.NewResponseController(w)
			if err := c.SetWriteDeadline(time.Now().Add(time.Minute)); err != nil {
				t.Error(err)
			}
			_, _ = io.WriteString(w, text)
		},
	}
	for _, proto := range []int{1, 2} {
		server := httptest.NewUnstartedServer(l.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			handlers[r.URL.Path](w, r)
		})))
		server.EnableHTTP2 = proto == 2
		server.StartTLS()
		defer server.Close()
		var wg sync.WaitGroup
		for path := range handlers {
			wg.Go(func() {
				began := time.Now()
				r, err := server.Client().Get(server.URL + path)
				if err != nil {
					t.Error(err)
					return
				}
				got, err := io.ReadAll(r.Body)
				r.Body.Close()
				if err != nil || !bytes.Equal(got, body) || r.ProtoMajor != proto {
					t.Errorf("HTTP/%d %s: %d bytes, %v", proto, path, len(got), err)
				}
				if path == "/trailer" && r.Trailer.Get("X-Sum") != "7" {
					t.Errorf("HTTP/%d: trailer %v", proto, r.Trailer)
				}
				if path == "/content" && r.Header.Get("Content-Length") == "" {
					t.Errorf("HTTP/%d: %v", proto, r.Header)
				}
				if took := time.Since(began); took < 250*time.Millisecond {
					t.Errorf("HTTP/%d %s: took %v", proto, path, took)
				}
			})
		}
		wg.Wait()
	}
}

// TestBandwidthOfSmallResponse sends a small response as without a bandwidth: at once, with its length.
func TestBandwidthOfSmallResponse(t *testing.T) {
	t.Parallel()
	l := limiter(t, "{url: /, bandwidth: 100k}")
	server := httptest.NewServer(l.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for range 100 {
			_, _ = io.WriteString(w, "0123456789")
		}
		w.Header().Set("X-Late", "x")
	})))
	defer server.Close()
	r, err := http.Get(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	if r.ContentLength != 1000 || r.Header.Get("Content-Type") != "text/plain; charset=utf-8" || r.Header.Get("X-Late") != "" {
		t.Errorf("length %d, %v", r.ContentLength, r.Header)
	}
}

// TestAbilities compares the optional interfaces of the ResponseWriter of a watched response with those
// of the one in front of the limiter.
func TestAbilities(t *testing.T) {
	t.Parallel()
	for _, yaml := range []string{"{url: /, bandwidth: 100k}", "{url: /, rules: [{rpu: 1000, charge: [401]}]}"} {
		for _, proto := range []int{1, 2} {
			abilities := func(w http.ResponseWriter) string {
				_, flush := w.(http.Flusher)
				_, hijack := w.(http.Hijacker)
				_, push := w.(http.Pusher)
				_, notify := w.(interface{ CloseNotify() <-chan bool })
				c := http.NewResponseController(w)
				return fmt.Sprint(flush, hijack, push, notify, c.SetReadDeadline(time.Now().Add(time.Minute)), c.EnableFullDuplex() == nil)
			}
			var without, with string
			h := limiter(t, yaml).Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { with = abilities(w) }))
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				without = abilities(w)
				h.ServeHTTP(w, r)
			}))
			server.EnableHTTP2 = proto == 2
			server.StartTLS()
			defer server.Close()
			r, err := server.Client().Get(server.URL)
			if err != nil {
				t.Fatal(err)
			}
			r.Body.Close()
			if with != without || with == "" {
				t.Errorf("HTTP/%d, %s: %s, want %s", proto, yaml, with, without)
			}
		}
	}
}

// TestDivert answers a refused request with the diversion of the first entry that refuses it and has
// one. The response has the fields of a refusal, and the request counts as refused.
func TestDivert(t *testing.T) {
	t.Parallel()
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprintf(w, "%s %s from %s", r.Method, r.URL, r.Header.Get("X-Forwarded-Host"))
	}))
	defer other.Close()
	f := newFolder(t)
	file := f.write("busy.html", "<p>busy</p>")
	l := limiter(t, `
limits:
  - url: /
    rules: [{name: all, unit: day, rpu: 1000, algo: SL}]
  - url: /text
    rules: [{name: text, unit: day, rpu: 1, algo: SL}]
    divert: {body: "busy"}
  - url: /text/file
    rules: [{name: file, unit: day, rpu: 0}]
    divert: {file: "`+file+`", status: 202}
  - url: /file
    rules: [{unit: day, rpu: 0}]
    divert: {file: "`+file+`", status: 202, type: "text/x"}
  - url: /server
    rules: [{unit: day, rpu: 0}]
    divert: {upstream: "`+other.URL+`/cheap"}
  - url: /server/plain
    rules: [{unit: day, rpu: 0, mode: shadow}]
    divert: {body: never}
  - url: /none
    rules: [{unit: day, rpu: 0}]
  - url: /none/text
    rules: [{unit: day, rpu: 0}]
    divert: {body: "none/text"}
`)
	for _, tc := range []struct {
		method, path string
		status       int
		kind, body   string
	}{
		{"GET", "/text", 200, "text/plain; charset=utf-8", "upstream"},
		{"GET", "/text", 200, "text/plain; charset=utf-8", "busy"},
		{"HEAD", "/text", 200, "text/plain; charset=utf-8", "busy"}, // which net/http drops
		{"GET", "/text/file", 200, "text/plain; charset=utf-8", "busy"},
		{"GET", "/file", 202, "text/x", "<p>busy</p>"},
		{"GET", "/server/plain?q=1", 200, "text/plain; charset=utf-8", "GET /cheap/server/plain?q=1 from example.com"},
		{"GET", "/none", 503, "application/problem+json", ""},
		{"GET", "/none/text", 200, "text/plain; charset=utf-8", "none/text"},
	} {
		w := serve(l, httptest.NewRequest(tc.method, tc.path, nil))
		h := w.Header()
		if w.Code != tc.status || h.Get("Content-Type") != tc.kind || tc.body != "" && w.Body.String() != tc.body {
			t.Errorf("%s: %d %q %q", tc.path, w.Code, h.Get("Content-Type"), w.Body)
		}
		forNow := tc.path == "/text" // the other refusals are by an rpu of 0
		if tc.body != "upstream" && ((h.Get("Retry-After") != "") != forNow || h.Get("Cache-Control") != "no-store" || !strings.Contains(h.Get("RateLimit"), ";r=0")) {
			t.Errorf("%s: header %v", tc.path, h)
		}
	}
	for _, r := range l.Status().Rules {
		if r.Name == "text" && (r.Allowed != 1 || r.Refused != 3) {
			t.Errorf("counts %+v", countsOf(r))
		}
	}
}

// TestDivertFile reads a file with the configuration. If it cannot be read, the configuration is
// rejected, and a reload changes nothing.
func TestDivertFile(t *testing.T) {
	t.Parallel()
	f := newFolder(t)
	text := func(name string) string {
		return fmt.Sprintf("{url: /, rules: [{rpu: 0}], divert: {file: %q}}", filepath.Join(f.dir, name))
	}
	f.write("good", "one")
	f.write("large", strings.Repeat("x", 1<<20+1))
	f.write("full", strings.Repeat("x", 1<<20))
	for name, want := range map[string]string{
		"none": "no such file", "large": "at most 1024 KiB", ".": "is not a file",
	} {
		c, err := config.Parse("x", []byte(text(name)))
		if err != nil {
			t.Fatal(err) // nothing is read to check it
		}
		if _, err := quiet.New(c); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), `entry "/": divert: `) {
			t.Errorf("%s: %v, want %s", name, err, want)
		}
	}
	file := f.write("diana.yaml", text("good"))
	l := open(t, quiet, file)
	body := func() string { return serve(l, httptest.NewRequest("GET", "/", nil)).Body.String() }
	f.write("good", "two")
	if got := body(); got != "one" {
		t.Errorf("%q before the reload, want one", got)
	}
	if err := l.Reload(); err != nil || body() != "two" {
		t.Errorf("%q after the reload, %v, want two", body(), err)
	}
	if err := os.Remove(filepath.Join(f.dir, "good")); err != nil {
		t.Fatal(err)
	}
	if err := l.Reload(); err == nil || body() != "two" {
		t.Errorf("%q after a reload without the file, %v", body(), err)
	}
	f.write("diana.yaml", text("full"))
	if err := l.Reload(); err != nil || len(body()) != 1<<20 {
		t.Errorf("%d bytes, %v", len(body()), err)
	}
}

// TestDivertByOwnProxy forwards requests by a program's own proxy.
func TestDivertByOwnProxy(t *testing.T) {
	t.Parallel()
	o := quiet
	o.Upstream = func(u *url.URL) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "by "+u.Host) })
	}
	c, err := config.Parse("x", []byte("{url: /, rules: [{rpu: 0}], divert: {upstream: 'http://h'}}"))
	if err != nil {
		t.Fatal(err)
	}
	l, err := o.New(c)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if got := serve(l, httptest.NewRequest("GET", "/", nil)).Body.String(); got != "by h" {
		t.Error(got)
	}
}

// echo answers with the body and the length that it has got.
var echo = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err == nil && r.ContentLength >= 0 && int(r.ContentLength) != len(body) {
		err = fmt.Errorf("%d bytes, and the length is %d", len(body), r.ContentLength)
	}
	if err != nil {
		panic(err)
	}
	_, _ = w.Write(body)
})

// postTo posts a body to the Handler of a Limiter in front of echo.
func postTo(l *diana.Limiter, body string) *httptest.ResponseRecorder {
	r := httptest.NewRequest("POST", "/", strings.NewReader(body))
	w := httptest.NewRecorder()
	l.Handler(echo).ServeHTTP(w, r)
	return w
}

// left returns how many requests for a model the rule models has left.
func left(t *testing.T, l *diana.Limiter, model string) int64 {
	t.Helper()
	d, err := l.Peek(t.Context(), diana.Request{Path: "/", Actors: map[string]string{"body:/model": model}})
	if err != nil {
		t.Fatal(err)
	}
	return d.Verdicts[0].Remaining
}

// smaller has one request for each model, and diverts others to the model small.
const smaller = `{url: /, divert: {body: {/model: small}}, rules: [{name: models, unit: total, algo: W, rpu: 1, actor: 'body:/model', overrides: {small: {rpu: 3}}}]}`

// A refused request proceeds with another model, once, and only that model is charged.
func TestDivertBody(t *testing.T) {
	t.Parallel()
	l := limiter(t, smaller)
	for i, tc := range []struct {
		body     string
		status   int
		got      string
		diverted bool
	}{
		{`{"model":"big","x":[1.0]}`, 200, `{"model":"big","x":[1.0]}`, false},
		{` {"x":[1.0], "model" : "big" } `, 200, ` {"x":[1.0], "model" : "small" } `, true},
		{`{"model":"large"}`, 200, `{"model":"large"}`, false},
		{`{"model":"large"}`, 200, `{"model":"small"}`, true},
		{`{"model":"small"}`, 200, `{"model":"small"}`, false},
		{`{"model":"small"}`, 503, "", false},
		{`{"model":"big"}`, 503, "", false},
	} {
		w := postTo(l, tc.body)
		want := ""
		if tc.diverted {
			want = "models"
		}
		if got := w.Header().Get("Diana-Diverted"); w.Code != tc.status || got != want || w.Code == 200 && w.Body.String() != tc.got {
			t.Errorf("%d: %d %q, Diana-Diverted %q, want %d %q %q", i, w.Code, w.Body, got, tc.status, tc.got, want)
		}
		if w.Code == 503 && !strings.Contains(w.Body.String(), `"violated-policies":["models"]`) {
			t.Errorf("%d: %s", i, w.Body)
		}
	}
	if big, small := left(t, l, "big"), left(t, l, "small"); big != 0 || small != 0 {
		t.Errorf("%d and %d left, want 0", big, small)
	}
}

// A body that cannot be changed so that all servers read the new values keeps the refusal. So does a body that has them.
// With another account each of these requests would be allowed.
func TestDivertBodyKeepsRefusal(t *testing.T) {
	t.Parallel()
	const yaml = `{url: /, divert: {body: {/user: pool, /options/tier: flex}}, rules: [{unit: total, algo: W, rpu: 1, actor: 'body:/user', overrides: {pool: {rpu: 100}}}]}`
	for body, status := range map[string]int{
		`{"user":"ann"}`: 200,
		`{"user":"ann","options":{"tier":1},"x":2}`: 200,
		`{"User":"ann"}`:                                          503, // in other letters
		`{"user":"ann","Options":{}}`:                             503,
		`{"user":"ann","options":{"Tier":1}}`:                     503,
		`{"user":"ann","options":7}`:                              503, // no object on the way
		`{"user":"ann","options":["tier"]}`:                       503,
		`{"user":"ann","options":{},"options":{}}`:                503, // twice
		`{"user":"ann","options":{"tier":1,"tier":2}}`:            503,
		`{"user":"ann","user":"bob"}`:                             400, // a rule reads it
		`{"user":"ann"`:                                           400,
		`{"user":"ann","x":"` + strings.Repeat("x", 1<<20) + `"}`: 413,
	} {
		l := limiter(t, yaml)
		if w := postTo(l, `{"user":"ann"}`); w.Code != 200 {
			t.Fatalf("the first request: %d %s", w.Code, w.Body)
		}
		if w := postTo(l, body); w.Code != status || (w.Header().Get("Diana-Diverted") != "") != (status == 200) {
			t.Errorf("%.50s: %d %s, want %d", body, w.Code, w.Body, status)
		}
		shadow := limiter(t, strings.Replace(yaml, "actor:", "mode: shadow, actor:", 1))
		postTo(shadow, `{"user":"ann"}`)
		if w := postTo(shadow, body); w.Code != 200 || w.Body.String() != body {
			t.Errorf("in shadow mode: %.50s: %d %.50s", body, w.Code, w.Body)
		}
	}
	l := limiter(t, strings.Replace(yaml, "pool: {rpu: 100}", "pool: {rpu: 1}", 1))
	const has = `{"user":"pool","options":{"tier":"flex"}}`
	if first, second := postTo(l, has), postTo(l, has); first.Code != 200 || second.Code != 503 || l.Status().Rules[0].Refused != 1 {
		t.Errorf("it has the values: %d, %d, %d refused", first.Code, second.Code, l.Status().Rules[0].Refused)
	}
}

// All that the first evaluation has charged is refunded: in other stores, under other rules, and as a reservation.
func TestDivertBodyRefunds(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	l := limiter(t, `
redis: {url: `+redis.URL()+`, timeout: 1s}
limits:
  - url: /
    divert: {body: {/model: small}}
    rules:
      - name: models
        unit: total
        algo: W
        rpu: 1
        actor: body:/model
        scope: global
        on_error: closed
        overrides: {small: {rpu: 2}}
      - {name: all, unit: total, algo: W, rpu: 9}
      - name: money
        unit: total
        algo: W
        rpu: 10000
        cost:
          answer: openai
          reserve: {output: auto, or: 10, most: 10, set: true, input: bytes, bound: strict}
          weights: {by: body:/model, models: {big: {input: 10, output: 10}, small: {input: 1, output: 1}}}
`)
	testproc.Eventually(t, func() bool { return !l.Status().Degraded })
	h := l.Handler(text(`{"usage":{"prompt_tokens":5,"completion_tokens":5}}`))
	for i, want := range []struct {
		status    int
		all, cost int64
	}{{200, 8, 9900}, {200, 7, 9890}, {200, 6, 9880}, {503, 6, 9880}, {503, 6, 9880}} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("POST", "/", strings.NewReader(`{"model":"big",`+`"messages":[{"role":"user","content":"hi"}]}`)))
		d, err := l.Peek(t.Context(), diana.Request{Path: "/", Actors: map[string]string{"body:/model": "small"}})
		if err != nil || w.Code != want.status || d.Verdicts[1].Remaining != want.all || d.Verdicts[2].Remaining != want.cost {
			t.Errorf("%d: %d, %d and %d left, want %+v; %v", i, w.Code, d.Verdicts[1].Remaining, d.Verdicts[2].Remaining, want, err)
		}
	}
}

// If rules reject the changed body, because it has no price, the client gets the refusal, and is charged nothing.
func TestDivertBodyWithoutPrice(t *testing.T) {
	t.Parallel()
	l := limiter(t, `{url: /, refusal: openai, divert: {body: {/model: unknown}}, rules: [{name: money, unit: total, algo: W, rpu: 5, cost: {answer: openai, reserve: 1, include_usage: false,
		weights: {by: 'body:/model', models: {big: {output: 1}}}}}]}`)
	h := l.Handler(text(`{"usage":{"prompt_tokens":5,"completion_tokens":5}}`))
	for i, want := range []int{200, 429} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("POST", "/", strings.NewReader(`{"model":"big"}`)))
		if w.Code != want || w.Header().Get("Diana-Diverted") != "" || want == 429 && !strings.Contains(w.Body.String(), "money") {
			t.Errorf("%d: %d %s, want %d", i, w.Code, w.Body, want)
		}
	}
	if got := l.Rejected()["body"]; got != 0 {
		t.Errorf("%d rejected, and the client has made no mistake", got)
	}
}

// A rule that does not read the body refuses again, so such a request is not evaluated again. Its body is not read.
func TestDivertBodyBesideOtherRules(t *testing.T) {
	t.Parallel()
	l := limiter(t, `{url: /, divert: {body: {/model: small}}, rules: [{name: flood, unit: total, algo: W, rpu: 2}, {name: models, unit: total, algo: W, rpu: 1, actor: 'body:/model'}]}`)
	for i, want := range []int{200, 200, 503, 503} {
		if w := postTo(l, `{"model":"big"}`); w.Code != want {
			t.Errorf("%d: %d, want %d", i, w.Code, want)
		}
	}
	if refused := l.Status().Rules[0].Refused; refused != 2 {
		t.Errorf("the flood was refused %d times, want 2", refused)
	}
	if w := postTo(l, "x"); w.Code != 503 {
		t.Errorf("the body of a flood was read: %d", w.Code)
	}
	waits := limiter(t, `{url: /, divert: {body: {/model: small}}, rules: [{name: slow, unit: hour, rpu: 1, wait: 1ms}, {name: models, unit: total, algo: W, rpu: 1, actor: 'body:/model'}]}`)
	for range 2 {
		postTo(waits, `{"model":"big"}`)
	}
	if refused := waits.Status().Rules[0].Refused; refused != 1 {
		t.Errorf("a rule with a wait refused one request %d times", refused)
	}
	if _, err := quiet.New(parsed(t, "{url: /, divert: {body: {/model: small}}, rules: [{rpu: 1}]}")); err == nil || !strings.Contains(err.Error(), "no rule of the entry reads") {
		t.Errorf("no rule reads the body: %v", err)
	}
}

// Credentials are verified once. A request that is diverted proves what it has proved, and its key stays here.
func TestDivertBodyWithCredentials(t *testing.T) {
	t.Parallel()
	k := withKeys(t, "", "[{name: models, actor: [account, 'body:/model'], unit: total, algo: W, rpu: 1}]\n  divert: {body: {/model: small}}")
	post := func(key string) *httptest.ResponseRecorder {
		r := httptest.NewRequest("POST", "/", strings.NewReader(`{"model":"big"}`))
		r.Header.Set("X-Api-Key", key)
		k.arrived = nil
		w := httptest.NewRecorder()
		k.handler.ServeHTTP(w, r)
		return w
	}
	for _, account := range []string{"ann", "bob"} {
		for i, want := range []int{200, 200, 503} {
			w := post(k.keys[account])
			if w.Code != want || (w.Header().Get("Diana-Diverted") == "models") != (i == 1) {
				t.Errorf("%s %d: %d %v", account, i, w.Code, w.Header())
			}
			if want == 200 && (k.arrived == nil || k.arrived.Get("X-Api-Key") != "") {
				t.Errorf("%s %d: the key has reached the next handler: %v", account, i, k.arrived)
			}
		}
	}
	for i := range 21 { // each counts once
		if w := post("guess"); w.Code != map[bool]int{true: 401, false: 429}[i < 20] {
			t.Errorf("guess %d: %d", i, w.Code)
		}
	}
}

// Hooks see one decision for each request.
func TestDivertBodyDecidesOnce(t *testing.T) {
	t.Parallel()
	var decided, done atomic.Int64
	l := limiterOf(t, diana.Options{
		OnDecision: func(*diana.Decision) { decided.Add(1) },
		OnDone:     func(*diana.Decision) { done.Add(1) },
	}, smaller)
	for range 6 {
		postTo(l, `{"model":"big"}`)
	}
	if decided.Load() != 6 || done.Load() != 6 {
		t.Errorf("%d decisions and %d ends of 6 requests", decided.Load(), done.Load())
	}
}

// Of many requests at the same time exactly as many are served and diverted as the limits allow.
func TestDivertBodyIsExact(t *testing.T) {
	t.Parallel()
	l := limiter(t, `{url: /, divert: {body: {/model: small}}, rules: [{name: models, unit: total, algo: W, rpu: 50, actor: 'body:/model'}, {name: slots, algo: C, rpu: 1000, actor: 'body:/model'}]}`)
	var served, diverted, refused atomic.Int64
	var clients sync.WaitGroup
	for range 16 {
		clients.Go(func() {
			for range 20 {
				w := postTo(l, `{"model":"big"}`)
				switch by := w.Header().Get("Diana-Diverted"); {
				case w.Code == 503:
					refused.Add(1)
				case by == "models" && w.Body.String() == `{"model":"small"}`:
					diverted.Add(1)
				case by == "" && w.Body.String() == `{"model":"big"}`:
					served.Add(1)
				default:
					t.Errorf("%d %s, Diana-Diverted %q", w.Code, w.Body, by)
				}
			}
		})
	}
	clients.Wait()
	if served.Load() != 50 || diverted.Load() != 50 || refused.Load() != 220 {
		t.Errorf("%d served, %d diverted and %d refused, want 50, 50 and 220", served.Load(), diverted.Load(), refused.Load())
	}
}
