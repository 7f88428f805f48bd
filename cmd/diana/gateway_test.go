// SPDX-License-Identifier: MIT

package main

import (
	"bufio"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/coder/websocket"
	"go.uber.org/goleak"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/config"
	"github.com/diana-limiter/diana/internal/testproc"
	dianaprom "github.com/diana-limiter/diana/prometheus"
)

// generous is a configuration that refuses no request of these tests.
const generous = "url: /\nrules: [{name: generous, rpu: 1000000}]"

// running is a gateway in front of a real server.
type running struct {
	*gateway
	t       *testing.T
	limiter *diana.Limiter
	url     string // of the gateway
	admin   string
	host    string // of url
	log     lockedBuffer
	signals chan os.Signal
	ended   chan error
}

// start runs a gateway with this configuration until the test ends.
func start(t *testing.T, text string, upstream http.Handler) *running {
	t.Helper()
	server := httptest.NewServer(upstream)
	t.Cleanup(server.Close)
	return startTo(t, text, server.URL)
}

func startTo(t *testing.T, text, upstream string) *running {
	t.Helper()
	return startWith(t, text, upstream, usualTimeouts)
}

// usualTimeouts are the defaults of serve.
var usualTimeouts = timeouts{
	Header:   10 * time.Second,
	Read:     time.Minute,
	Write:    time.Minute,
	Idle:     75 * time.Second,
	Upstream: time.Minute,
	Dial:     5 * time.Second,
	TLS:      10 * time.Second,
	Unused:   time.Minute,
	Drain:    30 * time.Second,
}

func startWith(t *testing.T, text, upstream string, timeouts timeouts) *running {
	t.Helper()
	c, err := config.Parse("test.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	target, err := url.Parse(upstream)
	if err != nil {
		t.Fatal(err)
	}
	r := &running{t: t, signals: make(chan os.Signal, 2), ended: make(chan error, 1)}
	logger := slog.New(slog.NewTextHandler(&r.log, nil))
	elsewhere := newDiverted(timeouts, logger)
	if r.limiter, err = (diana.Options{Logger: logger, Upstream: elsewhere.to, Decoders: decoders()}).New(c); err != nil {
		t.Fatal(err)
	}
	elsewhere.limiter = r.limiter
	last, _ := (&upstreamFlags{Upstream: []*url.URL{target}}).proxy(timeouts, r.limiter.Config, logger)
	r.gateway = newGateway(r.limiter, last, timeouts, logger, newRegistry(r.limiter, dianaprom.NewRedisCalls()))
	if err := r.listen(listenAt{requests: "127.0.0.1:0", admin: "127.0.0.1:0"}); err != nil {
		t.Fatal(err)
	}
	r.host = r.open[0].Addr().String()
	r.url = "http://" + r.host
	r.admin = "http://" + r.open[1].Addr().String()
	go func() { r.ended <- r.run(context.Background(), r.signals, nil) }()
	t.Cleanup(func() {
		r.signals <- syscall.SIGTERM
		r.signals <- syscall.SIGTERM
		if err := <-r.ended; err != nil {
			t.Log("the gateway ended with", err)
		}
		if t.Failed() {
			lines := strings.Split(r.log.String(), "\n")
			t.Log("end of the gateway's log:\n" + strings.Join(lines[max(len(lines)-20, 0):], "\n"))
		}
	})
	return r
}

// answer is the answer of a gateway.
type answer struct {
	status          int
	header, trailer http.Header
	body            string
}

// get sends a GET request to the gateway.
func (r *running) get(path string, fields ...string) answer {
	r.t.Helper()
	request, err := http.NewRequest(http.MethodGet, r.url+path, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	for _, f := range fields {
		name, value, _ := strings.Cut(f, ": ")
		request.Header.Add(name, value)
	}
	return r.do(request)
}

func (r *running) do(request *http.Request) answer {
	r.t.Helper()
	return roundTrip(r.t, request)
}

func roundTrip(t *testing.T, request *http.Request) answer {
	t.Helper()
	response, err := http.DefaultTransport.RoundTrip(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{response.StatusCode, response.Header, response.Trailer, string(body)}
}

// raw opens a connection to the gateway and sends text.
func (r *running) raw(text string) (net.Conn, *bufio.Reader) {
	r.t.Helper()
	conn, err := net.Dial("tcp", r.host)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { conn.Close() })
	if _, err := io.WriteString(conn, text); err != nil {
		r.t.Fatal(err)
	}
	return conn, bufio.NewReader(conn)
}

// logged waits for a text in the log.
func (r *running) logged(text string) {
	r.t.Helper()
	if !testproc.Becomes(func() bool { return strings.Contains(r.log.String(), text) }) {
		r.t.Fatalf("not logged: %s\n%s", text, r.log.String())
	}
}

// blocking returns a handler that signals when it has a request, and holds the request until it or
// the test ends.
func blocking(t *testing.T) (h http.Handler, inside <-chan struct{}) {
	entered, release := make(chan struct{}, 100), make(chan struct{})
	t.Cleanup(func() { close(release) })
	return http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		entered <- struct{}{}
		select {
		case <-release:
		case <-r.Context().Done():
		}
	}), entered
}

func TestFiltersInOrder(t *testing.T) {
	t.Parallel()
	var order []string
	named := func(name string) filter {
		return func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				order = append(order, name)
				next.ServeHTTP(w, r)
			})
		}
	}
	last := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { order = append(order, "last") })
	chain(last, named("first"), named("second")).ServeHTTP(nil, nil)
	if got := strings.Join(order, " "); got != "first second last" {
		t.Error(got)
	}
}

// A refused request reaches neither the log of requests nor the upstream.
func TestRefusedGoesNoFurther(t *testing.T) {
	t.Parallel()
	r := start(t, "url: /\nrules: [{name: none, rpu: 0}]", http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		t.Error("it reached the upstream")
	}))
	a := r.get("/")
	if a.status != http.StatusServiceUnavailable || !strings.Contains(a.body, `"violated-policies":["none"]`) {
		t.Error(a)
	}
	if a.header.Get(requestIDField) != "" || r.log.String() != "" {
		t.Errorf("header %v, log %q", a.header, r.log.String())
	}
}

// A WebSocket is a request in flight, although net/http does not know its connection any more.
func TestDrainWaitsForWebSocket(t *testing.T) {
	t.Parallel()
	r := start(t, generous, http.HandlerFunc(echoWebSocket))
	ws, _ := r.dial("/")
	r.signals <- syscall.SIGTERM
	readyz, _ := http.NewRequest(http.MethodGet, r.admin+"/readyz", nil)
	if !testproc.Becomes(func() bool { return r.do(readyz).status == http.StatusServiceUnavailable }) {
		t.Fatal("still ready")
	}
	if got := exchange(t, ws, "still here"); got != "still here" {
		t.Error(got)
	}
	select {
	case err := <-r.ended:
		t.Fatal("it did not wait:", err)
	default:
	}
	if err := ws.Close(websocket.StatusNormalClosure, ""); err != nil {
		t.Error(err)
	}
	err := <-r.ended
	r.ended <- err // for the cleanup
	if err != nil {
		t.Error(err)
	}
	r.logged("msg=drained")
}

// The second signal ends a WebSocket that neither side closes.
func TestSecondSignalCuts(t *testing.T) {
	t.Parallel()
	r := start(t, generous, http.HandlerFunc(echoWebSocket))
	ws, _ := r.dial("/")
	r.signals <- syscall.SIGTERM
	r.logged("msg=draining")
	r.signals <- syscall.SIGINT
	err := <-r.ended
	r.ended <- err
	if err != nil {
		t.Error(err)
	}
	if _, _, err := ws.Read(t.Context()); err == nil {
		t.Error("the WebSocket goes on")
	}
	r.logged("reason=interrupt")
}

// Requests that take too long are cut off, so a drain ends by itself.
func TestDrainIsBounded(t *testing.T) {
	t.Parallel()
	hangs, inside := blocking(t)
	r := start(t, generous, hangs)
	r.timeouts.Drain = time.Millisecond
	_, answer := r.raw("GET / HTTP/1.1\r\nHost: here\r\n\r\n")
	<-inside
	r.signals <- syscall.SIGTERM
	err := <-r.ended
	r.ended <- err
	if err != nil {
		t.Error(err)
	}
	if _, err := answer.ReadByte(); err == nil {
		t.Error("there is an answer")
	}
	r.logged(`reason="they took too long"`)
}

// A request that the gateway cuts off gets no answer, in particular not 499, which is for the log.
func TestCutOffWithoutAnswer(t *testing.T) {
	t.Parallel()
	hangs, inside := blocking(t)
	r := start(t, generous, hangs)
	_, answer := r.raw("GET / HTTP/1.1\r\nHost: here\r\n\r\n")
	<-inside
	r.cut()
	if text, err := io.ReadAll(answer); len(text) > 0 {
		t.Errorf("%q, %v", text, err)
	}
	r.logged("status=499")
}

// serve leaves nothing behind when it ends. The test must not run beside others.
func TestServeLeavesNothing(t *testing.T) {
	before := goleak.IgnoreCurrent()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var out, log lockedBuffer
	status := make(chan int, 1)
	go func() {
		status <- run(ctx, []string{"serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"}, &out, &log)
	}()
	if !testproc.Becomes(func() bool { return addresses.MatchString(out.String()) }) {
		t.Fatal(out.String(), log.String())
	}
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	for _, base := range addresses.FindStringSubmatch(out.String())[1:] {
		request, _ := http.NewRequest(http.MethodGet, base+"/healthz", nil)
		response, err := transport.RoundTrip(request)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode != http.StatusOK {
			t.Error(base, response.Status)
		}
	}
	transport.CloseIdleConnections()
	stop()
	if s := <-status; s != statusGood {
		t.Error("status", s, log.String())
	}
	goleak.VerifyNone(t, before)
}

// A listener that fails ends the program with the reason.
func TestListenerFails(t *testing.T) {
	t.Parallel()
	r := start(t, generous, http.NotFoundHandler())
	r.open[0].Close()
	err := <-r.ended
	r.ended <- err
	if !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
}
