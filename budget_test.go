// SPDX-License-Identifier: MIT

package diana_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/config"
	"github.com/diana-limiter/diana/internal/billtest"
	"github.com/diana-limiter/diana/internal/redistest"
	"github.com/diana-limiter/diana/internal/testproc"
	"github.com/diana-limiter/diana/rule"
)

// TestStrictRuleIsNeverOverrun has clients that choose every field against a budget. No request that a strict rule allows
// costs more than its reservation, and all together cost no more than the limit.
func TestStrictRuleIsNeverOverrun(t *testing.T) {
	t.Parallel()
	for format, limit := range map[string]int64{"openai": 35_000, "anthropic": 25_000, "gemini": 10_000} {
		var reserved sync.Map // by X-Request
		var billed, served atomic.Int64
		p := &billtest.Provider{Format: format, Billed: func(r *http.Request, body []byte, cost int64) {
			billed.Add(cost)
			served.Add(1)
			if n, _ := reserved.Load(r.Header.Get("X-Request")); n.(int64) < cost {
				t.Errorf("%s: %s costs %d, and %d is reserved", format, body, cost, n)
			}
		}}
		l, err := diana.Options{OnDecision: func(d *diana.Decision) {
			reserved.Store(d.Request().HTTP.Header.Get("X-Request"), d.Request().Costs["reserve:tokens"])
		}}.New(parsed(t, fmt.Sprintf(`{url: /, rules: [{name: tokens, unit: total, algo: W, rpu: %d, charge: all, cost: {answer: %s,
			reserve: {output: auto, or: 50, most: 100, input: bytes, add: 100, set: true, bound: strict}, weights: %s}}]}`, limit, format, billtest.Weights)))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = l.Close() }()
		h := l.Handler(p)
		var clients sync.WaitGroup
		var refused, busy atomic.Int64
		for c := range 8 {
			clients.Go(func() {
				r := rand.New(rand.NewPCG(uint64(c), 5))
				for i := range 400 {
					w := httptest.NewRecorder()
					q := httptest.NewRequest("POST", "/v1/x", strings.NewReader(billtest.Adversary(r, format)))
					q.Header.Set("X-Request", fmt.Sprint(c, " ", i))
					h.ServeHTTP(w, q)
					switch w.Code {
					case 400:
						refused.Add(1)
					case 503:
						busy.Add(1)
					}
				}
			})
		}
		clients.Wait()
		if billed := billed.Load(); billed > limit || billed < limit*8/10 || served.Load() < 20 || refused.Load() < 100 {
			t.Errorf("%s: %d of %d billed for %d requests; %d were open and %d over the limit", format, billed, limit, served.Load(), refused.Load(), busy.Load())
		}
	}
}

// TestStrictRuleOfTwoGateways has 64 clients send 10,240 requests and more to two gateways. Their Redis is killed meanwhile, and
// returns with its memory. A strict budget is never overrun if the gateways refuse without Redis, and otherwise by at
// most the bound of DESIGN.md. Each request is charged at least what it was billed, and Redis gets all of it.
func TestStrictRuleOfTwoGateways(t *testing.T) {
	t.Parallel()
	const limit, clients, all = 100_000, 64, 1_000_000_000
	for onError, most := range map[string]int64{"closed": limit, "share": limit + limit/2} {
		t.Run(onError, func(t *testing.T) {
			t.Parallel()
			r := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
			var costs sync.Map // by X-Request
			var billed, sent, served atomic.Int64
			p := &billtest.Provider{Format: "openai", Billed: func(r *http.Request, _ []byte, cost int64) {
				billed.Add(cost)
				served.Add(1)
				costs.Store(r.Header.Get("X-Request"), cost)
			}}
			rule := func(name string, limit int) string {
				return fmt.Sprintf(`{name: %s, unit: total, algo: W, rpu: %d, scope: global, on_error: %s, charge: all, cost: {answer: openai,
					reserve: {output: auto, or: 50, most: 100, input: bytes, add: 100, set: true, bound: strict}, weights: %s}}`, name, limit, onError, billtest.Weights)
			}
			c, err := config.Parse("test.yaml", []byte(fmt.Sprintf("redis: {url: %q, timeout: 5s}\nlimits: [{url: /, rules: [%s, %s]}]", r.URL(), rule("budget", limit), rule("all", all))))
			if err != nil {
				t.Fatal(err)
			}
			var gateways []*diana.Limiter
			for range 2 {
				l, err := diana.Options{OnDone: func(d *diana.Decision) {
					cost, ok := costs.Load(d.Request().HTTP.Header.Get("X-Request"))
					if n, known := d.Settled(); ok && (!known || n < cost.(int64)) {
						t.Errorf("%d was charged for a request that was billed %d", n, cost)
					}
				}}.New(c)
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = l.Close() }()
				gateways = append(gateways, l)
			}
			ready := func() bool {
				return !slices.ContainsFunc(gateways, func(l *diana.Limiter) bool { s := l.Status(); return s.Degraded || s.Gateways != 2 })
			}
			send := func(seed, each int, kill int64) {
				var all sync.WaitGroup
				for c := range clients {
					all.Go(func() {
						rand := rand.New(rand.NewPCG(uint64(seed), uint64(c)))
						for i := range each {
							q := httptest.NewRequest("POST", "/v1/x", strings.NewReader(billtest.Adversary(rand, "openai")))
							q.Header.Set("X-Request", fmt.Sprint(seed, c, i))
							gateways[rand.IntN(2)].Handler(p).ServeHTTP(httptest.NewRecorder(), q)
							if sent.Add(1) == kill {
								r.Kill()
							}
						}
					})
				}
				all.Wait()
			}
			testproc.Eventually(t, ready)
			send(1, 60, 2000)
			before := billed.Load()
			r.Restart()
			testproc.Eventually(t, ready)
			// What was reserved before is settled soon, and shares apply for two seconds: some refusals are early. A busy machine
			// needs longer than Patience for the first rounds.
			again := time.Now()
			for round := 1; billed.Load() < limit*9/10 && (round <= 20 || time.Since(again) < testproc.Patience); round++ {
				send(1+round, 100, 0)
			}
			if got := billed.Load(); got > most || got < limit*9/10 || before >= limit {
				t.Errorf("%d were billed, %d before Redis was back, want %d to %d", got, before, limit*9/10, most)
			}
			var charged int64
			if !testproc.Becomes(func() bool {
				d, err := gateways[0].Peek(t.Context(), diana.Request{Path: "/"})
				charged = all - d.Verdicts[1].Remaining
				return err == nil && !d.Degraded && charged >= billed.Load()
			}) {
				t.Errorf("%d were billed and %d charged", billed.Load(), charged)
			}
			t.Logf("%d requests, of which %d were served: %d billed, %d of them before Redis was back, %d charged", sent.Load(), served.Load(), billed.Load(), before, charged)
		})
	}
}

// TestAgentsUseABudget has 20 agents with prompts of 100 kB and a maximum of 32,000, of which they use little. They use at
// least 90 % of a budget before a refusal says that it is used up. Until then they wait as the refusals say.
func TestAgentsUseABudget(t *testing.T) {
	t.Parallel()
	const limit, agents, prompt = 2_000_000, 20, 100_000
	synctest.Test(t, func(t *testing.T) {
		var used, served, busy atomic.Int64
		h := limiter(t, fmt.Sprintf(`{url: /, refusal: openai, rules: [{unit: total, algo: W, rpu: %d, cost: {answer: openai,
			reserve: {output: auto, or: 1000, most: 32000, input: bytes, add: 1024, set: true, bound: strict}}}]}`, limit)).Handler(
			http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, err := io.ReadAll(r.Body)
				if err != nil {
					t.Error(err)
				}
				in, out := len(body)/4, 200+served.Add(1)%800
				time.Sleep(time.Duration(out) * 10 * time.Millisecond) // as a model takes
				_, _ = fmt.Fprintf(w, `{"usage":{"prompt_tokens":%d,"completion_tokens":%d}}`, in, out)
				used.Add(int64(in) + out)
			}))
		var all sync.WaitGroup
		for range agents {
			all.Go(func() {
				for {
					w := httptest.NewRecorder()
					h.ServeHTTP(w, httptest.NewRequest("POST", "/", strings.NewReader(
						`{"max_tokens":32000,"messages":[{"role":"user","content":"`+strings.Repeat("word ", prompt/5)+`"}]}`)))
					wait, err := strconv.Atoi(w.Header().Get("Retry-After"))
					switch {
					case w.Code == http.StatusOK:
					case err == nil && wait >= 1 && wait <= 5:
						busy.Add(1)
						time.Sleep(time.Duration(wait) * time.Second)
					default:
						if n := used.Load(); n < limit*9/10 || n > limit || w.Code != http.StatusTooManyRequests {
							t.Errorf("%d of %d were used at the first refusal that says more: %d %s", n, limit, w.Code, w.Body)
						}
						return
					}
				}
			})
		}
		all.Wait()
		t.Logf("%d of %d used by %d requests; %d were refused as busy", used.Load(), limit, served.Load(), busy.Load())
	})
}

// leaver is a client that disconnects when it has received so many bytes of the body.
type leaver struct {
	*httptest.ResponseRecorder
	left   int
	cancel func()
}

func (l *leaver) Write(p []byte) (int, error) {
	if l.left < 0 {
		return 0, errors.New("the client has disconnected")
	}
	if l.left -= len(p); l.left <= 0 {
		l.cancel()
		l.left = -1
		time.Sleep(time.Microsecond) // so that others notice
	}
	return l.ResponseRecorder.Write(p)
}

// spoken is a response of a provider. Its true cost is 40 tokens of input and 60 of output.
var spoken = map[string]struct {
	answer, request string
	stream          bool
	pieces          []string
}{
	"chat": {"openai", `{"messages":[{"role":"user","content":"hi"}],"max_tokens":60,"stream":true}`, true, []string{
		"data: {\"id\":\"c\",\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}],\"usage\":null}\n\n",
		"data: {\"id\":\"c\",\"choices\":[{\"delta\":{\"content\":\"Hello \\\"you\\\"\"}}]}\n\n", "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n",
		"data: {\"choices\":[],\"usage\":{\"prompt_tokens\":40,\"completion_tokens\":60}}\n\n", "data: [DONE]\n\n",
	}},
	"chat, whole": {"openai", `{"messages":[{"role":"user","content":"hi"}],"max_tokens":60}`, false, []string{
		`{"choices":[{"message":{"content":"Hello"}}],`, `"usage":{"prompt_tokens":40,"completion_tokens":60}}`,
	}},
	"responses": {"openai", `{"input":"hi","max_output_tokens":60,"stream":true}`, true, []string{
		"event: response.output_text.delta\ndata: {\"type\":\"response.output_text.delta\",\"delta\":\"Hello\"}\n\n",
		"event: response.completed\ndata: {\"type\":\"response.completed\",\"response\":{\"usage\":{\"input_tokens\":40,\"output_tokens\":60}}}\n\n",
	}},
	"messages": {"anthropic", `{"messages":[{"role":"user","content":"hi"}],"max_tokens":60,"stream":true}`, true, []string{
		"event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":40,\"output_tokens\":1}}}\n\n",
		"event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"delta\":{\"type\":\"text_delta\",\"text\":\"Hello\"}}\n\n",
		"event: message_delta\ndata: {\"type\":\"message_delta\",\"usage\":{\"output_tokens\":60}}\n\n", "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
	}},
	"messages, whole": {"anthropic", `{"messages":[{"role":"user","content":"hi"}],"max_tokens":60}`, false, []string{
		`{"content":[{"type":"text","text":"Hello"}],`, `"usage":{"input_tokens":40,"output_tokens":60}}`,
	}},
	"gemini": {"gemini", `{"contents":[{"parts":[{"text":"hi"}]}],"generationConfig":{"maxOutputTokens":60}}`, true, []string{
		"data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"Hello\"}]}}],\"usageMetadata\":{\"promptTokenCount\":40,\"candidatesTokenCount\":2}}\r\n\r\n",
		"data: {\"candidates\":[{\"finishReason\":\"STOP\"}],\"usageMetadata\":{\"promptTokenCount\":40,\"candidatesTokenCount\":60}}\r\n\r\n",
	}},
	"gemini, whole": {"gemini", `{"contents":[{"parts":[{"text":"hi"}]}],"generationConfig":{"maxOutputTokens":60}}`, false, []string{
		`{"candidates":[{"content":{"parts":[{"text":"Hello"}]}}],`, `"usageMetadata":{"promptTokenCount":40,"candidatesTokenCount":60}}`,
	}},
}

// TestLeaveAtEveryByte has a client that disconnects after each byte of a response. It never pays less than one that
// stays. A stream that has begun is read on, so it then pays the same.
func TestLeaveAtEveryByte(t *testing.T) {
	t.Parallel()
	for name, s := range spoken {
		for _, after := range []string{"0", "10s"} {
			synctest.Test(t, func(t *testing.T) {
				var charged int64
				l, err := diana.Options{OnDone: func(d *diana.Decision) { charged, _ = d.Settled() }}.New(parsed(t, fmt.Sprintf(
					`{url: /, rules: [{unit: total, algo: W, rpu: 100000000, cost: {answer: %s, after: %s, reserve: {output: auto, or: 60, input: bytes, set: true, bound: strict},
						weights: {input: 1, output: 2, cached: 1}}}]}`, s.answer, after)))
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = l.Close() }()
				read := 0
				h := l.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if s.stream {
						w.Header().Set("Content-Type", "text/event-stream")
					} else {
						w.Header().Set("Content-Length", fmt.Sprint(len(strings.Join(s.pieces, ""))))
					}
					read = 0
					for _, piece := range s.pieces {
						for i := range len(piece) { // as the network may cut it
							if _, err := w.Write([]byte(piece[i : i+1])); err != nil || r.Context().Err() != nil {
								return
							}
							read++
						}
						_ = http.NewResponseController(w).Flush()
						time.Sleep(time.Second)
					}
				}))
				const stays = 40 + 2*60
				for at := 1; at <= len(strings.Join(s.pieces, "")); at++ {
					ctx, cancel := context.WithCancel(t.Context())
					w := &leaver{httptest.NewRecorder(), at, cancel}
					h.ServeHTTP(w, httptest.NewRequest("POST", "/", strings.NewReader(s.request)).WithContext(ctx))
					if charged < stays || after != "0" && s.stream && charged != stays {
						t.Errorf("%s, after %s: the client left at byte %d and paid %d, want %d; %d bytes were read", name, after, at, charged, stays, read)
						break
					}
					cancel()
				}
			})
		}
	}
}

// TestLeaveHoldsSlots keeps the slot of a request while its stream is read on, and ends that after the time. At most four
// streams of an account are read on, and 256 in all.
func TestLeaveHoldsSlots(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l, err := diana.Options{}.New(parsed(t, `{identity: {account: ["header:X-Account"]}, limits: [{url: /, rules: [
			{algo: C, rpu: 1000}, {unit: total, algo: W, rpu: 100000000, cost: {answer: openai, reserve: 10, include_usage: false}}]}]}`))
		if err != nil {
			t.Fatal(err)
		}
		var inside atomic.Int64
		h := l.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			inside.Add(1)
			defer inside.Add(-1)
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = w.Write([]byte("data: {\"choices\":[{\"delta\":{\"content\":\"" + strings.Repeat("x", 30) + "\"}}]}\n\n"))
			<-r.Context().Done() // it never ends by itself
		}))
		leave := func(account string) {
			ctx, cancel := context.WithCancel(t.Context())
			r := httptest.NewRequest("POST", "/", nil).WithContext(ctx)
			r.Header.Set("X-Account", account)
			go h.ServeHTTP(&leaver{httptest.NewRecorder(), 1, cancel}, r)
			time.Sleep(time.Millisecond)
			synctest.Wait()
		}
		for range 6 {
			leave("one")
		}
		if n := inside.Load(); n != 4 {
			t.Errorf("%d streams of one account are read on, want 4", n)
		}
		for i := range 100 {
			for range 4 {
				leave(fmt.Sprint("account ", i))
			}
		}
		if n := inside.Load(); n != 256 {
			t.Errorf("%d streams are read on, want 256", n)
		}
		left := func(i int) int64 {
			d, err := l.Peek(t.Context(), diana.Request{Path: "/"})
			if err != nil {
				t.Fatal(err)
			}
			return d.Verdicts[i].Remaining
		}
		if n := left(0); n != 1000-256 {
			t.Errorf("%d slots are free, want %d", n, 1000-256)
		}
		time.Sleep(9 * time.Second)
		if n := inside.Load(); n != 256 {
			t.Errorf("%d streams are read on after 9 s, want 256", n)
		}
		time.Sleep(2 * time.Second)
		if n := inside.Load(); n != 0 || left(0) != 1000 {
			t.Errorf("%d streams are read on after 11 s, and %d slots are free", n, left(0))
		}
		if n := left(1); n != 100000000-406*30 { // the text that was passed on
			t.Errorf("%d tokens are charged, want %d", 100000000-n, 406*30)
		}
		leave("one")
		_ = l.Close() // ends the reading
		synctest.Wait()
		if n := inside.Load(); n != 0 {
			t.Errorf("%d streams are read on after Close", n)
		}
	})
}

// TestFailuresAreFree charges a failed response what it says it has cost, which is nothing if it says nothing.
func TestFailuresAreFree(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		rule, body string
		status     int
		want       int64
	}{
		{`cost: {answer: openai, reserve: 10}`, `{"error":{}}`, 500, 0},
		{`cost: {answer: openai, reserve: 10}`, `{"error":{}}`, 302, 0},
		{`cost: {answer: openai, reserve: 10}`, ``, 429, 0},
		{`cost: {answer: openai, reserve: 10}`, `{"usage":{"prompt_tokens":3}}`, 500, 3},
		{`cost: {answer: openai, reserve: 10}`, `{}`, 200, 10},
		{`cost: {answer: openai, reserve: 10}`, ``, 101, 10},
		{`cost: {answer: openai, reserve: 10}, charge: all`, `{}`, 500, 10},
		{`cost: {answer: openai, reserve: 10}, charge: [200]`, `{"usage":{"prompt_tokens":3}}`, 500, 0},
		{`cost: {answer: openai, reserve: 10}, charge: [500]`, `{}`, 500, 10},
		{`cost: {answer: gemini, reserve: 10}`, `{}`, 503, 0},
		{`cost: {answer: /usage/cost, reserve: 10}`, `{}`, 400, 0},
		{`cost: {answer: /usage/cost, reserve: 10, scale: 1000000}`, `{"usage":{"cost":0.0000012345678901}}`, 200, 2},
		{`cost: {answer: /usage/cost, reserve: 10, scale: 1000000}`, `{"usage":{"cost":0.123456}}`, 200, 123456},
		{`cost: {answer: /usage/cost, reserve: 10, scale: 1000000}`, `{"usage":{"cost":0.1234560000000001}}`, 200, 123457},
		{`cost: {answer: /usage/cost, reserve: 10}`, `{"usage":{"cost":0.2}}`, 200, 1},
		{`cost: {answer: bytes, reserve: 10}`, `xyz`, 500, 3},
		{`cost: {answer: "header:X-Cost", reserve: 10}`, ``, 500, 10},
	} {
		l := limiter(t, "{url: /, rules: [{unit: total, algo: W, rpu: 1000000, "+tc.rule+"}]}")
		h := l.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(tc.status)
			_, _ = w.Write([]byte(tc.body))
		}))
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("POST", "/", nil))
		if got := 1000000 - remaining(t, l); got != tc.want {
			t.Errorf("%s: %d %s cost %d, want %d", tc.rule, tc.status, tc.body, got, tc.want)
		}
	}
}

// TestUsageIsDropped passes on a stream as the client has asked for it.
func TestUsageIsDropped(t *testing.T) {
	t.Parallel()
	const first = "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}],\"usage\":null}\n\n"
	const usage = "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":4}}\n\n"
	const last = "data: [DONE]\n\n"
	for body, want := range map[string]string{
		`{"stream":true,"messages":[]}`:                                          first + last,
		`{"stream":true,"messages":[],"stream_options":{"include_usage":false}}`: first + last,
		`{"stream":true,"messages":[],"stream_options":{"include_usage":true}}`:  first + usage + last,
		`{"input":"x","stream":true}`:                                            first + usage + last,
	} {
		for _, lines := range []string{"\n", "\r\n", "\r"} {
			text, want := strings.ReplaceAll(first+usage+last, "\n", lines), strings.ReplaceAll(want, "\n", lines)
			l := limiter(t, "{url: /, rules: [{unit: total, algo: W, rpu: 1000000, cost: {answer: openai}}]}")
			for cut := range len(text) {
				before := remaining(t, l)
				w := httptest.NewRecorder()
				l.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
					_, _ = w.Write([]byte(text[:cut]))
					_, _ = w.Write([]byte(text[cut:]))
				})).ServeHTTP(w, httptest.NewRequest("POST", "/", strings.NewReader(body)))
				if got := w.Body.String(); got != want || remaining(t, l) != before-7 {
					t.Fatalf("%s, cut at %d: got %q with %d left, want %q", body, cut, got, remaining(t, l), want)
				}
			}
		}
	}
}

// by takes a request of an account.
func by(t *testing.T, l *diana.Limiter, account string) diana.Decision {
	t.Helper()
	d, err := l.Take(t.Context(), diana.Request{Path: "/", Actors: map[string]string{"account": account}})
	if err != nil || !d.Allowed {
		t.Fatalf("%s: %v, %+v", account, err, d.Verdicts)
	}
	return d
}

func wantSpent(t *testing.T, l *diana.Limiter, cost, reserved int64, ratio float64) {
	t.Helper()
	r := l.Status().Rules[0]
	if d := r.SpentRatio - ratio; r.Cost != cost || r.Reserved != reserved || d < -1e-9 || d > 1e-9 {
		t.Errorf("cost %d, reserved %d, spent %v, want %d, %d and %v", r.Cost, r.Reserved, r.SpentRatio, cost, reserved, ratio)
	}
}

// A rule knows what it was charged, what is reserved, and the fullest of its actors, in each order of requests.
func TestSpent(t *testing.T) {
	t.Parallel()
	for _, algo := range settling {
		synctest.Test(t, func(t *testing.T) {
			l := limiter(t, "{url: /, rules: [{actor: account, unit: hour, rpu: 1000, algo: "+algo+", cost: {answer: /n, reserve: 100}}]}")
			time.Sleep(time.Hour) // windows begin with the clock
			wantSpent(t, l, 0, 0, 0)
			a, b := by(t, l, "a"), by(t, l, "b")
			wantSpent(t, l, 0, 200, 0)
			a.Settle(300)
			wantSpent(t, l, 0, 100, 0.3)
			a.Done()
			wantSpent(t, l, 300, 100, 0.3)
			b.Settle(50)
			b.Done()
			wantSpent(t, l, 350, 0, 0.3)
			c := by(t, l, "b")
			c.Done() // it keeps its reservation
			wantSpent(t, l, 450, 0, 0.3)
			again := by(t, l, "b")
			again.Settle(10)
			again.Settle(350) // a later one replaces it
			again.Done()
			wantSpent(t, l, 800, 0, 0.5)
			over := by(t, l, "b")
			over.Settle(5000)
			over.Done()
			wantSpent(t, l, 5800, 0, 1)
			explained, _, err := l.PeekActor(t.Context(), l.Status().Rules[0].Name, "a")
			held := by(t, l, "a")
			now, _, err2 := l.PeekActor(t.Context(), l.Status().Rules[0].Name, "a")
			if held.Done(); err != nil || err2 != nil || explained[0].Reserved != 0 || now[0].Reserved != 100 {
				t.Errorf("reserved by a: %d and then %d, want 0 and 100; %v %v", explained[0].Reserved, now[0].Reserved, err, err2)
			}
			if err := l.Reset(t.Context(), l.Status().Rules[0].Name, "b"); err != nil {
				t.Fatal(err)
			}
			wantSpent(t, l, 5900, 0, 0)
			by2 := by(t, l, "a")
			wantSpent(t, l, 5900, 100, 0.4)
			by2.Settle(0)
			by2.Done()
			time.Sleep(6 * time.Hour)
			wantSpent(t, l, 5900, 0, 0)
		})
	}
}

// The fullest actor is known across changes of the configuration, and keeps no earlier one in memory.
func TestSpentAcrossChanges(t *testing.T) {
	t.Parallel()
	var known []weak.Pointer[rule.Rule] // of each configuration
	configured := func(more string) *config.Config {
		c := parsed(t, "{url: /, rules: [{name: tokens, actor: account, unit: month, algo: W, cost: {answer: /n, reserve: 100}, "+more+"}]}")
		known = append(known, weak.Make(&c.Limits[0].Rules[0]))
		return c
	}
	l, err := diana.Options{Logger: slog.New(slog.DiscardHandler)}.New(configured("rpu: 1000, overrides: {vip: {rpu: 5000}}"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	change := func(more string, cost int64, ratio float64) {
		t.Helper()
		if err := l.Update(configured(more)); err != nil {
			t.Fatal(err)
		}
		wantSpent(t, l, cost, 0, ratio)
	}
	spend := func(account string, cost int64) {
		d := by(t, l, account)
		d.Settle(cost)
		d.Done()
	}
	spend("a", 300)
	spend("vip", 2500)
	wantSpent(t, l, 2800, 0, 0.5)
	change("rpu: 2000, overrides: {vip: {rpu: 5000}}", 2800, 0.5)
	change("rpu: 2000, overrides: {vip: {rpu: 10000}}", 2800, 0) // nobody knows whose limit has changed
	spend("b", 1200)
	wantSpent(t, l, 4000, 0, 0.6)
	change("rpu: 4000", 4000, 0.3)
	change("rpu: 4000, class: header:Plan, classes: {gold: {rpu: 8000}}", 4000, 0.3)
	change("rpu: 4000, zone: Asia/Shanghai", 4000, 0) // with other counters
	for _, gone := range known[:len(known)-1] {
		testproc.Eventually(t, func() bool { // a pool forgets after the second collection
			runtime.GC()
			return gone.Value() == nil
		})
	}
	runtime.KeepAlive(l)
}

// A response that is free costs nothing.
func TestSpentByStatus(t *testing.T) {
	t.Parallel()
	l := limiter(t, "{url: /, rules: [{unit: hour, rpu: 1000, algo: W, charge: [200], cost: {answer: /n, reserve: 100}}]}")
	d := take(t, l)
	d.SetStatus(500)
	d.Done()
	wantSpent(t, l, 0, 0, 0)
}

// In Redis other gateways spend too. Each gateway knows what its decisions say, and forgets it with the window.
func TestSpentInRedis(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	yaml := "redis: {url: " + redis.URL() + ", timeout: 1s}\nlimits: [{url: /, rules: [{actor: account, unit: hour, rpu: 1000, algo: W, scope: global, align: first, cost: {answer: /n, reserve: 100}}]}]"
	one, other := limiter(t, yaml), limiter(t, yaml)
	testproc.Eventually(t, func() bool { return !one.Status().Degraded && !other.Status().Degraded })
	redis.Freeze()
	d, err := one.Take(t.Context(), diana.Request{Path: "/", Actors: map[string]string{"account": "b"}})
	if d.Done(); err != nil || !d.Degraded {
		t.Fatalf("%v, %+v", err, d)
	}
	testproc.Eventually(t, func() bool { return one.Status().Degraded && other.Status().Degraded })
	redis.Thaw()
	testproc.Eventually(t, func() bool { return !one.Status().Degraded && !other.Status().Degraded })
	wantSpent(t, one, 100, 0, 0) // a share says nothing of the whole limit
	a, b := by(t, one, "a"), by(t, other, "a")
	wantSpent(t, one, 100, 100, 0)
	a.Settle(10)
	a.Settle(400)
	a.Done()
	wantSpent(t, one, 500, 0, 0.4)
	b.Settle(200)
	b.Done()
	c := by(t, one, "a")
	c.Settle(50)
	c.Done()
	wantSpent(t, one, 550, 0, 0.65)
	if err := other.Reset(t.Context(), other.Status().Rules[0].Name, "a"); err != nil {
		t.Fatal(err)
	}
	testproc.Eventually(t, func() bool { return one.Status().Rules[0].SpentRatio == 0 })
}

// No time renews a total, so what an actor has spent stays known, also in Redis.
func TestSpentTotalInRedis(t *testing.T) {
	t.Parallel()
	l := limiter(t, "redis: {url: "+redistest.Start(t).URL()+", timeout: 1s}\nlimits: [{url: /, rules: [{actor: account, unit: total, rpu: 1000, algo: W, scope: global, cost: {answer: /n, reserve: 100}}]}]")
	testproc.Eventually(t, func() bool { return !l.Status().Degraded })
	d := by(t, l, "a")
	d.Settle(400)
	d.Done()
	wantSpent(t, l, 400, 0, 0.4)
}

// The sum of what many requests at the same time cost is exact, and nothing stays reserved.
func TestSpentIsExact(t *testing.T) {
	t.Parallel()
	l := limiter(t, "{url: /, rules: [{actor: account, unit: total, rpu: 1000000, algo: W, cost: {answer: /n, reserve: 10}}]}")
	var clients sync.WaitGroup
	for c := range 8 {
		clients.Go(func() {
			for i := range 250 {
				d := by(t, l, fmt.Sprint(i%5))
				if (c+i)%4 > 0 {
					d.Settle(int64(i % 4 * 10))
				}
				d.Done()
			}
		})
	}
	clients.Wait()
	want, most := int64(0), int64(0)
	of := map[int]int64{}
	for c := range 8 {
		for i := range 250 {
			n := int64(10)
			if (c+i)%4 > 0 {
				n = int64(i % 4 * 10)
			}
			want += n
			of[i%5] += n
			most = max(most, of[i%5])
		}
	}
	r := l.Status().Rules[0]
	if r.Cost != want || r.Reserved != 0 || r.SpentRatio > float64(most)/1e6 {
		t.Errorf("cost %d, reserved %d, spent %v, want %d, 0 and at most %v", r.Cost, r.Reserved, r.SpentRatio, want, float64(most)/1e6)
	}
}
