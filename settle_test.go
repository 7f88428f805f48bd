// SPDX-License-Identifier: MIT

package diana_test

import (
	"compress/gzip"
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
	"sync/atomic"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/internal/redistest"
	"github.com/diana-limiter/diana/internal/testproc"
	"github.com/diana-limiter/diana/rule"
)

// settling lists the algorithms whose charges can be settled.
var settling = []string{"TB", "W", "SW", "SL"}

// tokens returns a configuration that charges what a response reports, by one algorithm.
func tokens(algo, more string) string {
	return "{url: /, rules: [{name: tokens, algo: " + algo + ", unit: hour, rpu: 100, " + more + "}]}"
}

// remaining returns what the only rule has left.
func remaining(t *testing.T, l *diana.Limiter) int64 {
	t.Helper()
	d, err := l.Peek(context.Background(), diana.Request{Path: "/"})
	if err != nil {
		t.Fatal(err)
	}
	return d.Verdicts[0].Remaining
}

// take takes a request that must be allowed.
func take(t *testing.T, l *diana.Limiter) diana.Decision {
	t.Helper()
	d, err := l.Take(context.Background(), diana.Request{Path: "/"})
	if err != nil || !d.Allowed {
		t.Fatal(d.Allowed, err)
	}
	return d
}

// A request is charged its reservation at once, and its true cost in its place.
func TestSettle(t *testing.T) {
	t.Parallel()
	for _, algo := range settling {
		synctest.Test(t, func(t *testing.T) {
			l := limiter(t, tokens(algo, "cost: {answer: openai, reserve: 10}"))
			time.Sleep(time.Minute)
			expect := func(want int64) {
				t.Helper()
				if got := remaining(t, l); got != want {
					t.Errorf("%s: %d left, want %d", algo, got, want)
				}
			}
			d := take(t, l)
			expect(90)
			d.Settle(3)
			expect(97)
			d.Settle(25) // replaces the 3
			expect(75)
			d.Settle(25)
			expect(75)
			d.Settle(0)
			expect(100)
			d.Settle(30)
			d.Done()
			d.Settle(50) // after Done
			expect(70)

			d = take(t, l) // keeps its reservation
			d.Done()
			expect(60)

			d = take(t, l)
			d.Settle(-5)
			d.Done()
			expect(60)

			d = take(t, l)
			d.Settle(2_000) // into debt
			d.Done()
			expect(0)
			d, _ = l.Take(t.Context(), diana.Request{Path: "/"})
			if v := d.Verdicts[0]; d.Allowed || d.RetryAfter <= 0 || v.Reset > d.RetryAfter.Microseconds() || algo == "TB" && v.Reset < 19*time.Hour.Microseconds() {
				t.Errorf("%s: allowed %v in debt, RetryAfter %v, %+v", algo, d.Allowed, d.RetryAfter, v.Outcome)
			}
			d = diana.Decision{}
			d.Settle(1)
		})
	}
}

// A request does not show the cost of an earlier one.
func TestSettled(t *testing.T) {
	t.Parallel()
	l := limiter(t, tokens("W", "cost: {answer: openai, reserve: 10}"))
	for range 3 {
		d := take(t, l)
		if n, known := d.Settled(); n != 0 || known {
			t.Errorf("%d, %v before the cost is known", n, known)
		}
		d.Settle(3)
		if n, known := d.Settled(); n != 3 || !known {
			t.Errorf("%d, %v, want 3", n, known)
		}
		d.Done()
	}
}

// Settled says what a rule has charged for a response without a cost: what it has reserved, or counted if that
// is more.
func TestSettledUnknown(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		reserve string
		want    int64
	}{{"10", 10}, {"3", 7}} {
		var n int64
		var known bool
		l, err := diana.Options{OnDone: func(d *diana.Decision) { n, known = d.Settled() }}.New(parsed(t, tokens("W", "cost: {answer: bytes, reserve: "+c.reserve+"}")))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		l.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "9")
			_, _ = io.WriteString(w, "7 bytes")
		})).ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
		if left := remaining(t, l); n != c.want || known || left != 100-c.want {
			t.Errorf("%d, %v with %d left, want %d", n, known, left, c.want)
		}
	}
}

// A rule that knows the cost before is not settled. Nor is one that has refunded the request by its status.
func TestSettleOthers(t *testing.T) {
	t.Parallel()
	for _, algo := range settling {
		l := limiter(t, "{url: /, rules: [{name: requests, algo: "+algo+", unit: hour, rpu: 10}, "+
			"{name: tokens, algo: "+algo+", unit: hour, rpu: 100, cost: {answer: bytes, reserve: 5}, charge: [200]}]}")
		for _, c := range []struct {
			status int
			settle int64
			want   []int64
		}{{200, 20, []int64{9, 80}}, {500, 20, []int64{8, 80}}, {0, 7, []int64{7, 73}}} {
			d := take(t, l)
			if c.status != 0 {
				d.SetStatus(c.status)
			}
			d.Settle(c.settle)
			d.Done()
			d, err := l.Peek(t.Context(), diana.Request{Path: "/"})
			if err != nil || d.Verdicts[0].Remaining != c.want[0] || d.Verdicts[1].Remaining != c.want[1] {
				t.Errorf("%s: %d: %v %v, want %v left", algo, c.status, d.Verdicts, err, c.want)
			}
		}
		d := take(t, l)
		d.Settle(60)
		d.SetStatus(500) // refunds what was settled, too
		d.Done()
		if d, err := l.Peek(t.Context(), diana.Request{Path: "/"}); err != nil || d.Verdicts[1].Remaining != 73 {
			t.Errorf("%s: %v %v, want 73 left", algo, d.Verdicts, err)
		}
	}
}

// Rules whose costs differ are settled by their names.
func TestSettleByName(t *testing.T) {
	t.Parallel()
	l := limiter(t, "{url: /, rules: [{name: tokens, algo: W, unit: hour, rpu: 100, cost: {answer: openai}}, "+
		"{name: bytes, algo: W, unit: hour, rpu: 5000, cost: {answer: bytes}}]}")
	d := take(t, l)
	d.Settle(30, "tokens")
	d.Settle(2000, "bytes", "unknown")
	d.Done()
	if d, err := l.Peek(t.Context(), diana.Request{Path: "/"}); err != nil || d.Verdicts[0].Remaining != 70 || d.Verdicts[1].Remaining != 3000 {
		t.Errorf("%v %v, want 70 and 3000 left", d.Verdicts, err)
	}
}

// In windows a refund goes into the window of its charge alone, and a debit into the one of its moment.
func TestSettleInAnotherWindow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, tokens("W", "cost: {answer: openai, reserve: 40}"))
		time.Sleep(time.Until(time.Now().Truncate(time.Hour).Add(2*time.Hour - time.Minute)))
		cheap, dear := take(t, l), take(t, l)
		time.Sleep(2 * time.Minute)
		take(t, l)
		cheap.Settle(5)
		if got := remaining(t, l); got != 60 {
			t.Errorf("%d left after a refund of the window before, want 60", got)
		}
		dear.Settle(50)
		if got := remaining(t, l); got != 50 {
			t.Errorf("%d left after a debit, want 50", got)
		}
	})
}

// With requests in flight, what is charged exceeds the limit by no more than the sum of what their true
// costs are above their reservations. At the end all of it is charged, exactly.
func TestSettleBound(t *testing.T) {
	t.Parallel()
	for _, algo := range settling {
		t.Run(algo, func(t *testing.T) {
			t.Parallel()
			l := limiter(t, "{url: /, rules: [{algo: "+algo+", unit: 24h, rpu: 100000, cost: {answer: openai, reserve: 20}}]}")
			var used, above atomic.Int64
			var all sync.WaitGroup
			for i := range 64 {
				all.Go(func() {
					rnd := rand.New(rand.NewPCG(1, uint64(i)))
					for {
						d, err := l.Take(t.Context(), diana.Request{Path: "/"})
						if err != nil || !d.Allowed {
							return
						}
						n := rnd.Int64N(60)
						d.Settle(n)
						d.Done()
						used.Add(n)
						above.Store(max(above.Load(), n-20))
					}
				})
			}
			all.Wait()
			if got := used.Load(); got < 100_000-20 || got > 100_000+64*40 {
				t.Errorf("%d used of 100000", got)
			}
			if got := l.Status().Rules[0]; got.DebtSaturated != 0 || got.Unsettled != 0 {
				t.Errorf("%+v", got)
			}
			d := remaining(t, l)
			if want := max(100_000-used.Load(), 0); d < want || d > want+20 { // a bucket drips
				t.Errorf("%d left, want %d", d, want)
			}
		})
	}
}

// Two gateways see at once what one of them has settled. Redis receives costs that become known while it is
// down when it is back, each once.
func TestSettleInRedis(t *testing.T) {
	t.Parallel()
	windows := []string{"W, unit: month, zone: Pacific/Auckland", "W, unit: total"}
	for _, algo := range settling {
		windows = append(windows, algo+", unit: 24h")
	}
	for _, algo := range windows {
		t.Run(algo, func(t *testing.T) {
			t.Parallel()
			r := redistest.Start(t)
			yaml := "redis: {url: " + r.URL() + ", timeout: 1s}\nlimits: [{url: /, rules: [{algo: " + algo +
				", rpu: 1000, scope: global, on_error: closed, cost: {answer: openai, reserve: 10}}]}]"
			a, b := limiter(t, yaml), limiter(t, yaml)
			testproc.Eventually(t, func() bool { return !a.Status().Degraded && !b.Status().Degraded })
			for i := range 10 {
				d := take(t, a)
				d.Settle(int64(5 + i))
				d.Done()
				if got, want := remaining(t, b), remaining(t, a); got != want {
					t.Fatalf("%d left, and %d for the other gateway", want, got)
				}
			}
			want := remaining(t, b)
			if want != 1000-95 {
				t.Errorf("%d left, want 905", want)
			}
			less, more, kept := take(t, a), take(t, a), take(t, a)
			r.Freeze()
			less.Settle(1)
			more.Settle(2_500)
			for _, d := range []*diana.Decision{&less, &more, &kept} {
				d.Done()
			}
			r.Thaw()
			var d diana.Decision
			testproc.Eventually(t, func() bool {
				var err error
				d, err = b.Peek(t.Context(), diana.Request{Path: "/"})
				return err == nil && !d.Degraded && d.Verdicts[0].Remaining == 0
			})
			if d.Allowed {
				t.Error("allowed in debt")
			}
			// 905 - 1 - 2500 - 10 of a limit of 1000: a wait shows the debt
			if strings.HasPrefix(algo, "TB") { // a token takes 86.4 s
				if debt := (d.RetryAfter.Seconds() - 10*86.4) / 86.4; debt < 1605 || debt > 1607 {
					t.Errorf("a debt of %.1f, want 1606", debt)
				}
			}
		})
	}
}

// A reservation that a gateway has made without Redis is settled at what the request costs when Redis is back.
func TestSettleReservationOfOutage(t *testing.T) {
	t.Parallel()
	for _, algo := range settling {
		t.Run(algo, func(t *testing.T) {
			t.Parallel()
			r := redistest.Start(t)
			l := gateways(t, 1, r.URL(), "50ms", "- {url: /, rules: [{algo: "+algo+
				", unit: 744h, rpu: 10000, scope: global, cost: {answer: openai, reserve: 1000}}]}")[0]
			before := take(t, l)
			before.Settle(100)
			r.Freeze()
			first, degraded := take(t, l), take(t, l)
			if !degraded.Degraded {
				t.Error("Redis hangs, and a request was evaluated by it")
			}
			r.Thaw()
			testproc.Eventually(t, func() bool {
				d, err := l.Peek(t.Context(), diana.Request{Path: "/"})
				return err == nil && !d.Degraded
			})
			first.Settle(100)
			degraded.Settle(100)
			testproc.Eventually(t, func() bool { return remaining(t, l) == 10_000-300 })
		})
	}
}

// After a loss of Redis' memory the share counts true costs, as Redis does.
func TestSettleAfterLoss(t *testing.T) {
	t.Parallel()
	const cost, most = 600, 9
	for _, algo := range settling {
		t.Run(algo, func(t *testing.T) {
			t.Parallel()
			testproc.Eventually(t, func() bool {
				r := redistest.Start(t)
				all := gateways(t, 2, r.URL(), "5s", fmt.Sprintf(`
- {url: /, rules: [{algo: %s, unit: 744h, rpu: 6000, scope: global, cost: {answer: openai, reserve: 1}}]}
- {url: /other, rules: [{unit: 744h, rpu: 100, scope: global}]}
`, algo))
				d := take(t, all[0])
				d.Settle(cost)
				d.Done()
				lost := time.Now()
				r.Must("FLUSHALL")
				testproc.Eventually(t, func() bool { // it has noticed, and asks Redis again
					return !ask(t, all[0], diana.Request{Path: "/other"}).Degraded && all[0].RedisErrors()["forgot"] > 0
				})
				allowed := 0
				for allowed < most {
					d, err := all[0].Take(t.Context(), diana.Request{Path: "/"})
					if err != nil || !d.Allowed {
						break
					}
					d.Settle(cost)
					d.Done()
					allowed++
				}
				if time.Since(lost) > 2*time.Second { // the other gateway is back, and the share applies no longer
					return false
				}
				if want := (6000 - cost) / 2 / cost; allowed < want || allowed > want+1 {
					t.Errorf("%d were allowed, want %d: half of what was left", allowed, want)
				}
				return true
			})
		})
	}
}

// Charges with Debit that a gateway counts while Redis is down arrive there later, also beyond its share.
func TestDebitsBeyondTheShare(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t)
	yaml := "redis: {url: " + r.URL() + ", timeout: 1s}\nlimits: [{url: /, rules: [{name: hits, algo: W, unit: 24h, rpu: 1000, scope: global}]}]"
	a, b := limiter(t, yaml), limiter(t, yaml)
	testproc.Eventually(t, func() bool { return a.Status().Gateways == 2 && b.Status().Gateways == 2 })
	hits := func(n int64) {
		t.Helper()
		d, err := a.Take(t.Context(), diana.Request{Charges: []rule.Charge{{Rule: "hits", Cost: n, Debit: true}}})
		if err != nil {
			t.Fatal(err)
		}
		d.Done()
	}
	hits(10)
	r.Freeze()
	hits(20) // notices it
	testproc.Eventually(t, func() bool { return a.Status().Degraded })
	for range 9 {
		hits(100) // the share is 500
	}
	r.Thaw()
	testproc.Eventually(t, func() bool { return !a.Status().Degraded && !b.Status().Degraded && remaining(t, b) == 70 })
}

// stream answers with events, and flushes each.
func stream(events ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for _, e := range events {
			_, _ = io.WriteString(w, "data: "+e+"\n\n")
			_ = http.NewResponseController(w).Flush()
		}
	}
}

// text answers with a body, and some lines of a header.
func text(body string, lines ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		for _, line := range lines {
			name, value, _ := strings.Cut(line, ": ")
			w.Header().Add(name, value)
		}
		_, _ = io.WriteString(w, body)
	}
}

// zipped answers as next does, by gzip.
func zipped(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		inner := httptest.NewRecorder()
		next(inner, r)
		w.Header().Set("Content-Type", inner.Header().Get("Content-Type"))
		w.Header().Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(w)
		_, _ = io.Copy(z, inner.Body)
		_ = z.Close()
	}
}

const completion = `{"id": "1", "choices": [], "usage": {"prompt_tokens": 20, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 8}}}`

// The cost of each kind of response is charged when its client has it. A response without a readable cost
// keeps the reservation, and is counted.
func TestHandlerSettles(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		cost      string
		next      http.HandlerFunc
		want      int64
		unsettled int64
	}{
		"openai":           {"{answer: openai, reserve: 10}", text(completion), 27, 0},
		"weights":          {"{answer: openai, weights: {input: 1, output: 4, cached: 0.25}}", text(completion), 12 + 28 + 2, 0},
		"some weights":     {"{answer: openai, weights: {output: 0}}", text(completion), 20, 0},
		"gzip":             {"{answer: openai}", zipped(text(completion)), 27, 0},
		"stream":           {"{answer: openai}", stream(`{"choices": [], "usage": null}`, completion, "[DONE]"), 27, 0},
		"stream in gzip":   {"{answer: openai}", zipped(stream(completion, "[DONE]")), 27, 0},
		"no [DONE]":        {"{answer: openai}", stream(completion), 27, 0},
		"no usage":         {"{answer: openai, reserve: 10}", stream(`{"choices": []}`, "[DONE]"), 10, 1},
		"pointer":          {"{answer: /usage/prompt_tokens}", text(completion), 20, 0},
		"header":           {"{answer: 'header:X-Cost', reserve: 10}", text("", "X-Cost: 33"), 33, 0},
		"no header":        {"{answer: 'header:X-Cost', reserve: 10}", text("x"), 10, 1},
		"trailer":          {"{answer: 'trailer:X-Cost'}", text(strings.Repeat("x", 5000), http.TrailerPrefix+"X-Cost: 34"), 34, 0},
		"declared trailer": {"{answer: 'trailer:X-Cost'}", text("x", "Trailer: X-Cost", "X-Cost: 35"), 35, 0},
		"bytes":            {"{answer: bytes, reserve: 10}", text(strings.Repeat("x", 77)), 77, 0},
		"no bytes":         {"{answer: bytes, reserve: 10}", func(http.ResponseWriter, *http.Request) {}, 0, 0},
		"204":              {"{answer: bytes, reserve: 10}", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(204) }, 0, 0},
		"broken": {"{answer: openai, reserve: 10}", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "1000")
			_, _ = io.WriteString(w, completion)
		}, 27, 1},
		"panic": {"{answer: bytes, reserve: 10}", func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "some bytes more")
			panic(http.ErrAbortHandler)
		}, 15, 1},
		"early panic": {"{answer: bytes, reserve: 10}", func(w http.ResponseWriter, _ *http.Request) { panic(http.ErrAbortHandler) }, 10, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := limiter(t, tokens("W", "cost: "+c.cost))
			server := httptest.NewServer(l.Handler(c.next))
			t.Cleanup(server.Close)
			answer, err := server.Client().Get(server.URL)
			if err == nil {
				_, _ = io.Copy(io.Discard, answer.Body)
				_ = answer.Body.Close()
			}
			server.Close() // waits for the handler of a response that was not complete
			if got := 100 - remaining(t, l); got != c.want {
				t.Errorf("%d charged, want %d", got, c.want)
			}
			if got := l.Status().Rules[0]; got.Unsettled != c.unsettled {
				t.Errorf("%d unsettled, want %d", got.Unsettled, c.unsettled)
			}
		})
	}
}

// Each model has its price. The request of a model without one is rejected before it costs anything, or pays the dearest.
func TestPricesOfModels(t *testing.T) {
	t.Parallel()
	const models = "by: 'body:/model', models: {small: {input: 1, output: 2}, 'big*': {input: 10, output: 20, request: 3, above: {19: {input: 100}}}, 'big-mini*': {input: 5, output: 5}}"
	for _, c := range []struct {
		weights, body string
		status        int
		want          int64
	}{
		{models, `{"model": "small"}`, 200, 12 + 14 + 8},
		{models, `{"model": "big"}`, 200, 12*100 + 7*20 + 8*10 + 3},
		{models, `{"model": "big-mini-2"}`, 200, 5*12 + 5*7 + 5*8},
		{models, `{"model": "big*"}`, 200, 12*100 + 7*20 + 8*10 + 3},
		{models, `{"model": "smaller"}`, 400, 0},
		{models, `{"model": ["small"]}`, 400, 0},
		{models, `{}`, 400, 0},
		{models, ``, 400, 0},
		{models + ", unknown: dearest", `{"model": "other"}`, 200, 12*100 + 7*20 + 8*10 + 3},
		{models + ", unknown: dearest", ``, 200, 12*100 + 7*20 + 8*10 + 3},
		{"input: 1, output: 1, cached: 1, request: 0.5", `{}`, 200, 28},
	} {
		l := limiter(t, "{url: /, refusal: openai, rules: [{name: money, algo: W, unit: hour, rpu: 10000, cost: {answer: openai, weights: {"+c.weights+"}}}]}")
		w := httptest.NewRecorder()
		l.Handler(text(completion)).ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/", strings.NewReader(c.body)))
		if got := 10_000 - remaining(t, l); w.Code != c.status || got != c.want {
			t.Errorf("%s %s: %d and %d charged, want %d and %d", c.weights, c.body, w.Code, got, c.status, c.want)
		}
		if w.Code == 400 && !strings.Contains(w.Body.String(), "which has no price") {
			t.Error(w.Body)
		}
	}
}

// Tokens that the provider writes to its cache have their own weights.
func TestPricesOfCacheWrites(t *testing.T) {
	t.Parallel()
	const message = `{"usage": {"input_tokens": 10, "output_tokens": 1, "cache_read_input_tokens": 100, "cache_creation_input_tokens": 50, "cache_creation": {"ephemeral_5m_input_tokens": 30, "ephemeral_1h_input_tokens": 20}}}`
	for weights, want := range map[string]int64{
		"input: 1, output: 0, cached: 0":                                       60,
		"input: 1, output: 0, cached: 0, cache_write: 2":                       10 + 100,
		"input: 1, output: 0, cached: 0, cache_write: 2, cache_write_1h: 3":    10 + 60 + 60,
		"input: 0, output: 1, cached: 0.1, cache_write: 1.25, request: 0.0001": 74, // the sum is rounded up
	} {
		l := limiter(t, "{url: /, rules: [{name: money, algo: W, unit: hour, rpu: 10000, cost: {answer: anthropic, weights: {"+weights+"}}}]}")
		l.Handler(text(message)).ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/", nil))
		if got := 10_000 - remaining(t, l); got != want {
			t.Errorf("%s: %d charged, want %d", weights, got, want)
		}
	}
}

// An upgraded connection is no failure, so it keeps its reservation.
func TestUpgradeIsNoFailure(t *testing.T) {
	t.Parallel()
	l := limiter(t, tokens("W", "cost: {answer: openai, reserve: 10}"))
	server := httptest.NewServer(l.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, buffered, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		_, _ = buffered.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n")
		_ = buffered.Flush()
		_ = conn.Close()
	})))
	r, _ := http.NewRequest(http.MethodGet, server.URL, nil)
	r.Header.Set("Connection", "upgrade")
	r.Header.Set("Upgrade", "websocket")
	if answer, err := server.Client().Do(r); err == nil {
		_ = answer.Body.Close()
	}
	server.Close()
	testproc.Eventually(t, func() bool { return l.Status().Rules[0].Unsettled == 1 })
	if got := 100 - remaining(t, l); got != 10 {
		t.Errorf("%d charged, want 10", got)
	}
}

// A response to HEAD has no body, whatever the handler writes.
func TestHandlerSettlesHead(t *testing.T) {
	t.Parallel()
	l := limiter(t, tokens("W", "cost: {answer: bytes, reserve: 10}"))
	l.Handler(text("some bytes")).ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodHead, "/", nil))
	if got := remaining(t, l); got != 100 {
		t.Errorf("%d left, want 100", got)
	}
}

// Once a client has the end of a response, its next request finds the cost charged: the byte or the event that
// ends it comes last.
func TestChargedBeforeTheEnd(t *testing.T) {
	t.Parallel()
	long := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", fmt.Sprint(len(completion)))
		_, _ = io.WriteString(w, completion)
		_ = http.NewResponseController(w).Flush()
		time.Sleep(50 * time.Millisecond) // the handler goes on
	}
	for name, next := range map[string]http.HandlerFunc{
		"length": long,
		"stream": func(w http.ResponseWriter, r *http.Request) {
			stream(completion, "[DONE]")(w, r)
			time.Sleep(50 * time.Millisecond)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := limiter(t, tokens("W", "cost: {answer: openai, reserve: 5}"))
			server := httptest.NewServer(l.Handler(next))
			t.Cleanup(server.Close)
			answer, err := server.Client().Get(server.URL)
			if err != nil {
				t.Fatal(err)
			}
			defer answer.Body.Close()
			body := make([]byte, 0, 1000)
			for !strings.Contains(string(body), "[DONE]") && string(body) != completion {
				n, err := answer.Body.Read(body[len(body):cap(body)])
				body = body[:len(body)+n]
				if err != nil && err != io.EOF {
					t.Fatal(err)
				}
			}
			if got := remaining(t, l); got != 73 {
				t.Errorf("%d left when the client has the end, want 73", got)
			}
		})
	}
}

// A client that leaves early keeps the reservation charged, or what was counted by then if that is more.
func TestClientLeavesEarly(t *testing.T) {
	t.Parallel()
	for reserve, want := range map[int]int64{10: 27, 50: 50} {
		l := limiter(t, tokens("W", fmt.Sprintf("cost: {answer: openai, after: 50ms, reserve: %d}", reserve)))
		left := make(chan struct{})
		server := httptest.NewServer(l.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			stream(completion)(w, r)
			<-r.Context().Done()
			close(left)
		})))
		t.Cleanup(server.Close)
		ctx, cancel := context.WithCancel(t.Context())
		r, _ := http.NewRequestWithContext(ctx, http.MethodGet, server.URL, nil)
		answer, err := server.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = answer.Body.Read(make([]byte, 10))
		cancel()
		<-left
		_ = answer.Body.Close()
		server.Close()
		if got := 100 - remaining(t, l); got != want {
			t.Errorf("%d charged, want %d", got, want)
		}
		if got := l.Status().Rules[0].Unsettled; got != 1 {
			t.Errorf("%d unsettled, want 1", got)
		}
	}
}

// A client of a stream leaves when it has the end of the stream. Its cost is known, also if more bytes follow,
// such as those that end a gzip file.
func TestClientLeavesAtTheEnd(t *testing.T) {
	t.Parallel()
	for _, coding := range []string{"", "gzip"} {
		l := limiter(t, tokens("W", "cost: {answer: openai, after: 50ms, reserve: 50}"))
		server := httptest.NewServer(l.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			out := io.Writer(w)
			if coding != "" {
				w.Header().Set("Content-Encoding", coding)
				z := gzip.NewWriter(w)
				defer z.Close()
				out = z
			}
			_, _ = io.WriteString(out, "data: "+completion+"\n\ndata: [DONE]\n\n")
			if z, ok := out.(*gzip.Writer); ok {
				_ = z.Flush()
			}
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
			_, _ = io.WriteString(out, ": bye\n\n")
		})))
		t.Cleanup(server.Close)
		ctx, leave := context.WithCancel(t.Context())
		r, _ := http.NewRequestWithContext(ctx, http.MethodGet, server.URL, nil)
		answer, err := server.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		for body := ""; !strings.HasSuffix(body, "[DONE]\n\n"); {
			piece := make([]byte, 1000)
			n, err := answer.Body.Read(piece)
			if body += string(piece[:n]); err != nil {
				t.Fatal(err)
			}
		}
		leave()
		_ = answer.Body.Close()
		server.Close()
		if got := remaining(t, l); got != 73 {
			t.Errorf("%q: %d left, want 73", coding, got)
		}
		if got := l.Status().Rules[0].Unsettled; got != 0 {
			t.Errorf("%q: %d unsettled, want none", coding, got)
		}
	}
}

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

// A refusal tells a budget that is spent from one that requests in flight have reserved.
func TestBusyOrUsedUp(t *testing.T) {
	t.Parallel()
	for _, algo := range settling {
		synctest.Test(t, func(t *testing.T) {
			l := limiter(t, tokens(algo, "cost: {answer: openai, reserve: 60}"))
			time.Sleep(time.Minute)
			refused := func(reserved bool) {
				t.Helper()
				d, err := l.Take(t.Context(), diana.Request{Path: "/"})
				if v := d.Verdicts[0]; err != nil || d.Allowed || v.Reserved != reserved {
					t.Fatalf("%s: %v, %+v, want a refusal with Reserved %v", algo, err, v, reserved)
				}
				if busy := d.RetryAfter >= time.Second && d.RetryAfter <= 5*time.Second; busy != reserved {
					t.Errorf("%s: Retry-After %v, Reserved %v", algo, d.RetryAfter, reserved)
				}
				d.Done()
			}
			first := take(t, l)
			refused(true)
			first.Settle(30)
			second := take(t, l) // 30 spent, 60 reserved
			refused(true)
			second.Settle(41)
			refused(false) // 71 spent
			second.Done()
			refused(false)
			first.Done()
			if n := l.Status().Rules[0].RefusedReserved; n != 2 {
				t.Errorf("%s: %d refusals because of reservations, want 2", algo, n)
			}
		})
	}
}

// A refusal names what a smaller request may cost, unless a rule beside the budget refuses too.
func TestRefusalNamesWhatIsLeft(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ beside, left string }{
		{"", " Until then a request may cost 40."},
		{", {name: wide, unit: total, algo: W, rpu: 80, cost: {answer: openai, reserve: 60}}", " Until then a request may cost 20."},
		{", {name: once, unit: total, algo: W, rpu: 1}", ""},
		{", {name: none, mode: shadow, unit: total, algo: W, rpu: 1}", " Until then a request may cost 40."},
	} {
		l := limiter(t, "{url: /, refusal: openai, rules: [{name: budget, unit: day, algo: W, rpu: 100, cost: {answer: openai, reserve: 60}}"+tc.beside+"]}")
		first := take(t, l)
		w := httptest.NewRecorder()
		l.Handler(nil).ServeHTTP(w, httptest.NewRequest("POST", "/", nil))
		if text := w.Body.String(); strings.Contains(text, " may cost ") != (tc.left != "") || !strings.Contains(text, tc.left+`","type":`) {
			t.Errorf("beside %q: %d %s", tc.beside, w.Code, text)
		}
		first.Done()
	}
}

// Reservations of an earlier window do not count in the next one.
func TestBusyInNextWindow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, tokens("W", "cost: {answer: openai, reserve: 60}"))
		time.Sleep(time.Minute)
		old := take(t, l)
		time.Sleep(time.Hour)
		now := take(t, l)
		now.Settle(50)
		d, err := l.Take(t.Context(), diana.Request{Path: "/"})
		if err != nil || d.Allowed || d.Verdicts[0].Reserved {
			t.Errorf("%v, %+v, want a budget that is used up", err, d.Verdicts[0])
		}
		d.Done()
		old.Done()
		now.Done()
	})
}

// A request that finds the budget reserved waits for a settlement, if the rule lets it wait.
func TestWaitForSettlement(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		cost    int64
		allowed bool
		after   time.Duration
	}{{30, true, 2 * time.Second}, {41, false, 2 * time.Second}, {60, false, 2 * time.Second}, {-1, false, 5 * time.Second}} {
		synctest.Test(t, func(t *testing.T) {
			l := limiter(t, tokens("W", "wait: 5s, cost: {answer: openai, reserve: 60}"))
			time.Sleep(time.Minute)
			first := take(t, l)
			began := time.Now()
			var settling sync.WaitGroup
			settling.Go(func() {
				time.Sleep(2 * time.Second)
				if tc.cost >= 0 {
					first.Settle(tc.cost)
				}
			})
			d, err := l.Take(t.Context(), diana.Request{Path: "/"})
			if took := time.Since(began); err != nil || d.Allowed != tc.allowed || took < tc.after || took > tc.after+100*time.Millisecond {
				t.Errorf("settled by %d: allowed %v after %v, %v", tc.cost, d.Allowed, took, err)
			}
			settling.Wait()
			d.Done()
			first.Done()
		})
	}
}
