// SPDX-License-Identifier: MIT

package diana_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/diana-limiter/diana"
)

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
