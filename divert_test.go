// SPDX-License-Identifier: MIT

package diana_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/internal/redistest"
	"github.com/diana-limiter/diana/internal/testproc"
)

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
