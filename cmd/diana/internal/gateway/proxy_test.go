// SPDX-License-Identifier: MIT

package gateway

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/textproto"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/diana-limiter/diana/cmd/diana/internal/exchange"
	"github.com/diana-limiter/diana/cmd/diana/internal/logs"
)

// An answer reaches the client piece by piece, while the upstream still writes it.
func TestStreams(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"text/plain", "text/event-stream", "application/octet-stream"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			more := make(chan struct{})
			r := start(t, generous, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", kind)
				if kind == "application/octet-stream" {
					w.Header().Set("Content-Length", "11")
				}
				_, _ = io.WriteString(w, "first")
				_ = http.NewResponseController(w).Flush()
				<-more
				_, _ = io.WriteString(w, "second")
			}))
			response, err := http.Get(r.url)
			if err != nil {
				t.Fatal(err)
			}
			defer response.Body.Close()
			first := make([]byte, 5)
			if _, err := io.ReadFull(response.Body, first); err != nil || string(first) != "first" {
				t.Fatalf("%q, %v", first, err)
			}
			close(more)
			if rest, err := io.ReadAll(response.Body); err != nil || string(rest) != "second" {
				t.Errorf("%q, %v", rest, err)
			}
			r.logged("status=200 bytes=11")
		})
	}
}

// The body of a request reaches the upstream piece by piece, too.
func TestStreamsRequest(t *testing.T) {
	t.Parallel()
	got := make(chan string)
	r := start(t, generous, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		first := make([]byte, 5)
		_, _ = io.ReadFull(r.Body, first)
		got <- string(first)
		rest, _ := io.ReadAll(r.Body)
		got <- string(rest)
	}))
	body, send := io.Pipe()
	go func() {
		_, _ = io.WriteString(send, "first")
		if g := <-got; g != "first" {
			t.Errorf("%q", g)
		}
		_, _ = io.WriteString(send, "second")
		send.Close()
		if g := <-got; g != "second" {
			t.Errorf("%q", g)
		}
	}()
	request, _ := http.NewRequest(http.MethodPost, r.url, body)
	if a := r.do(request); a.Status != http.StatusOK {
		t.Error(a)
	}
}

func echoWebSocket(w http.ResponseWriter, r *http.Request) {
	ws, err := websocket.Accept(w, r, &websocket.AcceptOptions{InsecureSkipVerify: true})
	if err != nil {
		return
	}
	defer ws.CloseNow()
	for {
		kind, data, err := ws.Read(r.Context())
		if err != nil {
			return
		}
		if err := ws.Write(r.Context(), kind, data); err != nil {
			return
		}
	}
}

// dial opens a WebSocket through the gateway.
func (r *running) dial(path string) (*websocket.Conn, http.Header) {
	r.t.Helper()
	ws, response, err := websocket.Dial(r.t.Context(), "ws://"+r.host+path, nil) //nolint:bodyclose // it has no body but the WebSocket
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = ws.CloseNow() })
	return ws, response.Header
}

// echoed sends a message over a WebSocket, and returns the one that comes back.
func echoed(t *testing.T, ws *websocket.Conn, text string) string {
	t.Helper()
	if err := ws.Write(t.Context(), websocket.MessageText, []byte(text)); err != nil {
		t.Fatal(err)
	}
	_, data, err := ws.Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestWebSocket(t *testing.T) {
	t.Parallel()
	r := start(t, generous, http.HandlerFunc(echoWebSocket))
	ws, header := r.dial("/chat")
	if header.Get("Ratelimit") == "" || header.Get(logs.RequestIDField) == "" {
		t.Error(header)
	}
	for i := range 3 {
		text := fmt.Sprint("message ", i)
		if got := echoed(t, ws, text); got != text {
			t.Error(got)
		}
	}
	if err := ws.Close(websocket.StatusNormalClosure, ""); err != nil {
		t.Error(err)
	}
	r.logged("path=/chat status=101")
}

func TestTrailers(t *testing.T) {
	t.Parallel()
	r := start(t, generous, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Trailer", "X-Announced")
		_, _ = io.WriteString(w, "body")
		w.Header().Set("X-Announced", "a "+r.Trailer.Get("X-Asked"))
		w.Header().Set(http.TrailerPrefix+"X-Surprise", "s")
	}))
	request, _ := http.NewRequest(http.MethodPost, r.url, io.NopCloser(strings.NewReader("body")))
	request.Trailer = http.Header{"X-Asked": {"q"}}
	a := r.do(request)
	if a.Body != "body" || a.Trailer.Get("X-Announced") != "a q" || a.Trailer.Get("X-Surprise") != "s" {
		t.Error(a)
	}
}

// The upstream reads the path that the limiter evaluated, in the spelling that the client used.
func TestPathIsKept(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ base, sent, want string }{
		{"", "/", "/"},
		{"", "/a/b?x=1", "/a/b?x=1"},
		{"", "/a%2Fb", "/a%2Fb"},
		{"", "/a%2fb%41", "/a%2fb%41"},
		{"", "/a%20b+c", "/a%20b+c"},
		{"", "//a///b/", "//a///b/"},
		{"", "/a/./b/../c", "/a/./b/../c"},
		{"", "/a;v=1/b", "/a;v=1/b"},
		{"", "/%E2%82%AC", "/%E2%82%AC"},
		{"", "/a:b@c!$&'()*,=~", "/a:b@c!$&'()*,=~"},
		{"", "/?", "/?"},
		{"", "/?a=b;c&d=%zz&e=[]", "/?a=b;c&d=%zz&e=[]"},
		{"", "http://other.example/a%2Fb?c", "/a%2Fb?c"},
		{"/base", "/", "/base/"},
		{"/base/", "/a%2Fb/", "/base/a%2Fb/"},
		{"/base%2F1", "/a", "/base%2F1/a"},
		{"/base", "//a", "/base//a"},
		// Characters that are not valid in a path are encoded: an upstream might cut the path
		// there, and serve /admin for what was evaluated as /admin#x.
		{"", "/admin#x", "/admin%23x"},
		{"", `/a"b|c\d`, "/a%22b%7Cc%5Cd"},
		{"", "/éa%2Fb/z", "/%C3%A9a%2Fb/z"},
		{"/base", "/éa%2Fb/z", "/base/%C3%A9a%2Fb/z"},
	} {
		t.Run(test.base+" "+test.sent, func(t *testing.T) {
			t.Parallel()
			got := make(chan string, 1)
			server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got <- r.RequestURI }))
			defer server.Close()
			r := startTo(t, generous, server.URL+test.base)
			_, answer := r.raw("GET " + test.sent + " HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n")
			if text, err := io.ReadAll(answer); err != nil || !bytes.HasPrefix(text, []byte("HTTP/1.1 200")) {
				t.Fatalf("%s, %v", text, err)
			}
			if g := <-got; g != test.want {
				t.Errorf("sent on as %s, expected %s", g, test.want)
			}
		})
	}
}

// The final answer keeps its fields after an informational answer, beside those of the upstream.
func TestEarlyHints(t *testing.T) {
	t.Parallel()
	r := start(t, generous, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Link", "</style.css>; rel=preload")
		w.WriteHeader(http.StatusEarlyHints)
		w.Header().Del("Link")
		w.Header().Set("RateLimit", "of the upstream")
		_, _ = io.WriteString(w, "body")
	}))
	hints := make(chan textproto.MIMEHeader, 1)
	request, _ := http.NewRequest(http.MethodGet, r.url, nil)
	a := r.do(request.WithContext(httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
		Got1xxResponse: func(_ int, header textproto.MIMEHeader) error {
			hints <- header
			return nil
		},
	})))
	if h := <-hints; h.Get("Link") == "" {
		t.Error("no hint:", h)
	}
	h := a.Header
	if a.Body != "body" || len(h["Ratelimit"]) != 2 || h["Ratelimit"][1] != "of the upstream" || h.Get("Ratelimit-Policy") == "" || len(h[logs.RequestIDField]) != 1 || h.Get("Link") != "" {
		t.Error(a)
	}
	r.logged("status=200 bytes=4")
}

// The answer and the upstream have the same ID, whether the client or the gateway made it.
func TestRequestIDGoesOn(t *testing.T) {
	t.Parallel()
	r := start(t, generous, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, strings.Join(r.Header[logs.RequestIDField], "|"))
	}))
	for _, sent := range []string{"abc-1", ""} {
		a := r.get("/", logs.RequestIDField+": "+sent, "Connection: "+logs.RequestIDField)
		ids := a.Header[logs.RequestIDField]
		if len(ids) != 1 || ids[0] != a.Body || sent != "" && a.Body != sent || a.Body == "" {
			t.Errorf("sent %q, upstream %q, answer %q", sent, a.Body, ids)
		}
		r.logged("request_id=" + a.Body)
	}
}

func TestTunnelsAreRefused(t *testing.T) {
	t.Parallel()
	r := start(t, generous, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		t.Error("it reached the upstream")
	}))
	for _, first := range []string{"CONNECT example.com:443 HTTP/1.1", "TRACE / HTTP/1.1"} {
		_, answer := r.raw(first + "\r\nHost: example.com\r\nConnection: close\r\n\r\n")
		if line, err := answer.ReadString('\n'); err != nil || !strings.HasPrefix(line, "HTTP/1.1 405 ") {
			t.Error(first, line, err)
		}
	}
}

func wantProblem(t *testing.T, a exchange.Answer, status int) {
	t.Helper()
	var p struct {
		Type, Title, Detail string
		Status              int
	}
	if err := json.Unmarshal([]byte(a.Body), &p); err != nil {
		t.Fatal(err, a)
	}
	if a.Status != status || p.Status != status || p.Title != http.StatusText(status) || p.Type == "" || p.Detail == "" {
		t.Error(a)
	}
	if kind := a.Header.Get("Content-Type"); kind != "application/problem+json" {
		t.Error(kind)
	}
	if strings.Contains(a.Body, "127.0.0.1") {
		t.Error("it tells strangers what lies behind:", a.Body)
	}
}

func TestUpstreamDown(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(nil)
	server.Close()
	r := startTo(t, generous, server.URL)
	a := r.get("/")
	wantProblem(t, a, http.StatusBadGateway)
	if a.Header.Get("Ratelimit") == "" || a.Header.Get(logs.RequestIDField) == "" {
		t.Error(a)
	}
	r.logged("level=ERROR msg=upstream error=")
	r.logged("request_id=" + a.Header.Get(logs.RequestIDField))
	r.logged("status=502")
}

// An upstream that disconnects without an answer counts as no upstream.
func TestUpstreamHangsUp(t *testing.T) {
	t.Parallel()
	r := start(t, generous, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
	wantProblem(t, r.get("/"), http.StatusBadGateway)
}

func TestUpstreamTooSlow(t *testing.T) {
	t.Parallel()
	hangs, _ := exchange.Blocking(t)
	server := httptest.NewServer(hangs)
	t.Cleanup(server.Close)
	short := usualTimeouts
	short.Upstream = 10 * time.Millisecond
	r := startWith(t, generous, server.URL, short)
	wantProblem(t, r.get("/"), http.StatusGatewayTimeout)
}

// An answer that breaks off at the upstream breaks off at the client.
func TestUpstreamBreaksOff(t *testing.T) {
	t.Parallel()
	r := start(t, generous, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "half an")
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}))
	response, err := http.Get(r.url)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if body, err := io.ReadAll(response.Body); err == nil {
		t.Errorf("%q looks whole", body)
	}
	r.logged("status=200 bytes=7")
	r.logged("aborted=true")
}

// Connections to the upstream are reused, one after another and under load.
func TestConnectionsAreReused(t *testing.T) {
	t.Parallel()
	var opened atomic.Int64
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(w, "body")
	}))
	server.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			opened.Add(1)
		}
	}
	server.Start()
	t.Cleanup(server.Close)
	r := startTo(t, generous, server.URL)
	ask := func() {
		request, _ := http.NewRequest(http.MethodPost, r.url, strings.NewReader("some body"))
		if a := r.do(request); a.Status != http.StatusOK || a.Body != "body" {
			t.Error(a)
		}
	}
	for range 100 {
		ask()
	}
	if n := opened.Load(); n > 10 { // 1, and some where the next request was quicker than the last one's end
		t.Errorf("%d connections for 100 requests in a row", n)
	}
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for range 50 {
				ask()
			}
		})
	}
	wg.Wait()
	if n := opened.Load(); n > 100 { // 16, and some that were begun in vain
		t.Errorf("%d connections for 800 requests, 16 at a time", n)
	}
}

// A refused request can be diverted to another server, by the same proxy.
func TestDivert(t *testing.T) {
	t.Parallel()
	cheap := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusEarlyHints)
		w.WriteHeader(http.StatusAccepted)
		_, _ = io.WriteString(w, r.URL.Path+" "+r.Header.Get("X-Forwarded-For")+" "+r.Header.Get("Forwarded"))
	}))
	defer cheap.Close()
	r := start(t, "{url: /, rules: [{unit: day, rpu: 1, algo: SL}], divert: {upstream: '"+cheap.URL+"/cheap'}}", http.NotFoundHandler())
	if a := r.get("/a"); a.Status != http.StatusNotFound {
		t.Error(a)
	}
	a := r.get("/a%2Fb", "Forwarded: for=forged", "X-Forwarded-For: 192.0.2.9")
	if a.Status != http.StatusAccepted || a.Body != "/cheap/a/b 127.0.0.1 " || a.Header.Get("Retry-After") == "" {
		t.Error(a)
	}
	cheap.Close()
	if a := r.get("/a"); a.Status != http.StatusBadGateway {
		t.Error(a)
	}
}
