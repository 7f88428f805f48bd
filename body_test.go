// SPDX-License-Identifier: MIT

package diana_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/config"
	"github.com/diana-limiter/diana/internal/testproc"
)

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
	l := limiter(t, "{url: /, rules: [{name: models, unit: day, rpu: 100, actor: 'body:/model', cost: {answer: openai, reserve: 'body:/max_tokens', or: 5}}]}")
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
	others := limiter(t, "{url: /, rules: [{unit: day, rpu: 1000, actor: 'body:/model', cost: {answer: openai}}]}")
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
