// SPDX-License-Identifier: MIT

package compat

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/diana-limiter/diana/internal/testproc"
)

const usage20 = `{"id": "1", "choices": [], "usage": {"prompt_tokens": 12, "completion_tokens": 8}}`

// sse returns a stream with some data.
func sse(data ...string) string {
	var b strings.Builder
	for _, d := range data {
		fmt.Fprintf(&b, "data: %s\n\n", d)
	}
	return b.String()
}

// hostileProvider answers a request by the name in its model field.
func hostileProvider(t *testing.T) string {
	t.Helper()
	send := func(w http.ResponseWriter, contentType, text string) {
		w.Header().Set("Content-Type", contentType)
		_, _ = io.WriteString(w, text)
	}
	events := func(w http.ResponseWriter, text string) { send(w, "text/event-stream", text) }
	body := func(w http.ResponseWriter, text string) { send(w, "application/json", text) }
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		out := http.NewResponseController(w)
		switch name := string(text); name {
		case "usage twice":
			events(w, sse(`{"usage": {"prompt_tokens": 900, "completion_tokens": 900}}`, usage20, "[DONE]"))
		case "no usage":
			body(w, `{"choices": []}`)
		case "negative usage":
			body(w, `{"usage": {"prompt_tokens": -5, "completion_tokens": 8}}`)
		case "10^30":
			body(w, `{"usage": {"prompt_tokens": 1e30, "completion_tokens": 8}}`)
		case "broken stream":
			events(w, sse(`{"choices": []}`, `{"usage": {"prompt_tok`))
			_ = out.Flush()
			panic(http.ErrAbortHandler)
		case "pauses":
			for _, c := range sse(`{"choices": []}`, usage20, "[DONE]") {
				events(w, string(c))
				_ = out.Flush()
			}
		case "200 MB":
			body(w, `{"choices": [{"message": {"content": "`)
			piece := strings.Repeat("x", 1<<20)
			for range 200 {
				_, _ = io.WriteString(w, piece)
			}
			_, _ = io.WriteString(w, `"}}], "usage": {"prompt_tokens": 12, "completion_tokens": 8}}`)
		case "CRLF":
			events(w, strings.ReplaceAll(sse(usage20, "[DONE]"), "\n", "\r\n"))
		case "204":
			w.WriteHeader(http.StatusNoContent)
		case "500":
			w.WriteHeader(http.StatusInternalServerError)
			body(w, `{"error": {"message": "busy"}}`)
		case "429":
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusTooManyRequests)
			body(w, `{"error": {"message": "slow down"}}`)
		case "{}":
			w.WriteHeader(http.StatusBadRequest)
		case "":
		default: // a stream of so many events, with the usage so far in each
			n, _ := strconv.Atoi(name)
			for i := range n {
				events(w, sse(fmt.Sprintf(`{"choices": [], "usage": {"prompt_tokens": 40, "completion_tokens": %d}}`, i+1)))
				_ = out.Flush()
				select {
				case <-r.Context().Done():
					return
				case <-time.After(2 * time.Millisecond):
				}
			}
			events(w, sse("[DONE]"))
		}
	}))
	t.Cleanup(server.Close)
	return server.Listener.Addr().String()
}

// hostileRules charge also for errors of the provider, but not for the questions of charged.
const hostileRules = `
response: {status: 429}
identity: {account: ["header:Authorization"]}
limits: [{url: /v1/chat/completions, rules: [{name: chat, actor: account, unit: day, algo: W, align: first, rpu: 100000000, charge: [200, 204, 429, 500], cost: {answer: openai, reserve: 40, include_usage: false}}]}]
`

// TestTokensHostile: whatever a provider sends, the charge is clear, and once.
func TestTokensHostile(t *testing.T) {
	g := serveTokens(t, hostileProvider(t), hostileRules)
	for _, c := range []struct {
		name            string
		want, unsettled int
	}{
		{"usage twice", 20, 0},
		{"no usage", reserved, 1},
		{"negative usage", reserved, 1},
		{"10^30", 1_000_000_000, 0},
		{"broken stream", reserved, 1},
		{"pauses", 20, 0},
		{"200 MB", 20, 0},
		{"CRLF", 20, 0},
		{"204", reserved, 1},
		{"500", reserved, 1},
		{"429", reserved, 1},
		{"50", 90, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := g.unsettled(t, "chat")
			answer := ask(t, g.host, chatPath, c.name, c.name)
			_, _ = io.Copy(io.Discard, answer.Body)
			_ = answer.Body.Close()
			if !testproc.Becomes(func() bool { return g.unsettled(t, "chat") >= before+c.unsettled }) || g.unsettled(t, "chat") != before+c.unsettled {
				t.Errorf("%d unsettled, want %d", g.unsettled(t, "chat")-before, c.unsettled)
			}
			if got := g.charged(t, chatPath, c.name); got != min(c.want, quota-reserved) {
				t.Errorf("%d charged, want %d", got, c.want)
			}
		})
	}
	if got := g.metric(t, "diana_debt_saturated_total", "chat"); got != 0 {
		t.Errorf("%d debts are saturated, want none", got)
	}
}

// TestTokensHead: a HEAD is charged its reservation, because its response has no body.
func TestTokensHead(t *testing.T) {
	g := serveTokens(t, hostileProvider(t), hostileRules)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodHead, "http://"+g.host+chatPath, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer head")
	answer, err := raw.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	_ = answer.Body.Close()
	if got := g.charged(t, chatPath, "head"); got != reserved {
		t.Errorf("%d charged, want %d", got, reserved)
	}
}

// TestTokensCut: a client that leaves at any moment is charged at least what it has seen, and at least the
// reservation.
func TestTokensCut(t *testing.T) {
	g := serveTokens(t, hostileProvider(t), hostileRules)
	rnd := rand.New(rand.NewPCG(3, 4))
	floor := map[string]int{} // what each key must have been charged
	var mu sync.Mutex
	var all sync.WaitGroup
	for i := range 50 {
		moment := rnd.IntN(9000) // bytes
		all.Go(func() {
			key := fmt.Sprint("cut-", i)
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			r, _ := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+g.host+chatPath, strings.NewReader("100"))
			r.Header.Set("Authorization", "Bearer "+key)
			answer, err := raw.Do(r)
			if err != nil {
				t.Error(err)
				return
			}
			defer answer.Body.Close()
			text, _ := io.ReadAll(io.LimitReader(answer.Body, int64(moment)))
			leave()
			seen := 0
			if n := strings.Count(string(text), "}}\n\n"); n > 0 {
				seen = 40 + n
			}
			least := max(reserved, seen)
			testproc.Becomes(func() bool { return g.charged(t, chatPath, key) >= least })
			mu.Lock()
			floor[key] = least
			mu.Unlock()
		})
	}
	all.Wait()
	for key, least := range floor {
		if got := g.charged(t, chatPath, key); got < least || got > 140 {
			t.Errorf("%s: %d charged, want %d to 140", key, got, least)
		}
	}
	t.Logf("%d of 50 unsettled", g.unsettled(t, "chat"))
}
