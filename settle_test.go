// SPDX-License-Identifier: MIT

package diana_test

import (
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
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
		l := limiter(t, tokens("W", fmt.Sprintf("cost: {answer: openai, reserve: %d}", reserve)))
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
		l := limiter(t, tokens("W", "cost: {answer: openai, reserve: 50}"))
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
