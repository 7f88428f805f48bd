// SPDX-License-Identifier: MIT

package gateway

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

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/cmd/diana/internal/admin"
	"github.com/diana-limiter/diana/cmd/diana/internal/chain"
	"github.com/diana-limiter/diana/cmd/diana/internal/decoders"
	"github.com/diana-limiter/diana/cmd/diana/internal/exchange"
	"github.com/diana-limiter/diana/cmd/diana/internal/logs"
	"github.com/diana-limiter/diana/cmd/diana/internal/upstream"
	"github.com/diana-limiter/diana/config"
	"github.com/diana-limiter/diana/internal/testproc"
	dianaprom "github.com/diana-limiter/diana/prometheus"
)

// generous is a configuration that refuses no request of these tests.
const generous = "url: /\nrules: [{name: generous, rpu: 1000000}]"

// running is a gateway in front of a real server.
type running struct {
	decoders decoders.Decoders
	*Gateway
	t       *testing.T
	limiter *diana.Limiter
	url     string // of the gateway
	admin   string
	host    string // of url
	log     testproc.Buffer
	signals chan os.Signal
	ended   chan error
}

// start runs a gateway with this configuration until the test ends.
func start(t *testing.T, text string, behind http.Handler) *running {
	t.Helper()
	server := httptest.NewServer(behind)
	t.Cleanup(server.Close)
	return startTo(t, text, server.URL)
}

func startTo(t *testing.T, text, behind string) *running {
	t.Helper()
	return startWith(t, text, behind, usualTimeouts)
}

// usualTimeouts are the defaults of serve.
var usualTimeouts = Timeouts{
	Header: 10 * time.Second,
	Read:   time.Minute,
	Write:  time.Minute,
	Idle:   75 * time.Second,
	Timeouts: upstream.Timeouts{
		Upstream: time.Minute,
		Dial:     5 * time.Second,
		TLS:      10 * time.Second,
		Unused:   time.Minute,
	},
	Drain: 30 * time.Second,
}

func startWith(t *testing.T, text, behind string, timeouts Timeouts) *running {
	t.Helper()
	c, err := config.Parse("test.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	target, err := url.Parse(behind)
	if err != nil {
		t.Fatal(err)
	}
	r := &running{t: t, signals: make(chan os.Signal, 2), ended: make(chan error, 1)}
	logger := slog.New(slog.NewTextHandler(&r.log, nil))
	upgrades := upstream.NewUpgrades(nil, logger)
	elsewhere := upstream.Diverted(timeouts.Timeouts, func() *config.Config { return r.limiter.Config() }, upgrades, logger)
	if r.limiter, err = (diana.Options{Logger: logger, Upstream: elsewhere, Decoders: r.decoders.ByCoding()}).New(c); err != nil {
		t.Fatal(err)
	}
	last, _ := (&upstream.Flags{URLs: []*url.URL{target}}).Proxy(timeouts.Timeouts, r.limiter.Config, upgrades, logger)
	r.Gateway = assembled(r.limiter, r.decoders.Spare(last), timeouts, logger)
	if err := r.listen(listenAt{requests: "127.0.0.1:0", admin: "127.0.0.1:0"}); err != nil {
		t.Fatal(err)
	}
	r.host = r.open[0].Addr().String()
	r.url = "http://" + r.host
	r.admin = "http://" + r.open[1].Addr().String()
	go func() { r.ended <- r.Run(context.Background(), r.signals, func() {}) }()
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

// assembled returns a gateway that is built of a limiter and of what answers allowed requests.
func assembled(limiter *diana.Limiter, last http.Handler, t Timeouts, logger *slog.Logger, api ...func(*http.ServeMux)) *Gateway {
	p := partsOf(&Flags{Timeouts: t}, limiter, last, logger)
	p.api = api
	return assemble(p)
}

// partsOf returns the parts without which there is no gateway.
func partsOf(f *Flags, limiter *diana.Limiter, last http.Handler, logger *slog.Logger) parts {
	return parts{
		flags: f, logger: logger, limiter: limiter, last: last, rejected: newRejections(logger),
		metrics: admin.NewRegistry(limiter, dianaprom.NewRedisCalls()), reset: limiter.Reset,
	}
}

// get sends a GET request to the gateway.
func (r *running) get(path string, fields ...string) exchange.Answer {
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

func (r *running) do(request *http.Request) exchange.Answer {
	r.t.Helper()
	return exchange.RoundTrip(r.t, request)
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

func TestFiltersInOrder(t *testing.T) {
	t.Parallel()
	var order []string
	named := func(name string) chain.Filter {
		return func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				order = append(order, name)
				next.ServeHTTP(w, r)
			})
		}
	}
	last := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { order = append(order, "last") })
	chain.Of(last, named("first"), named("second")).ServeHTTP(nil, nil)
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
	if a.Status != http.StatusServiceUnavailable || !strings.Contains(a.Body, `"violated-policies":["none"]`) {
		t.Error(a)
	}
	if a.Header.Get(logs.RequestIDField) == "" || r.log.String() != "" {
		t.Errorf("header %v, log %q", a.Header, r.log.String())
	}
}

// A WebSocket is a request in flight, although net/http does not know its connection any more.
func TestDrainWaitsForWebSocket(t *testing.T) {
	t.Parallel()
	r := start(t, generous, http.HandlerFunc(echoWebSocket))
	ws, _ := r.dial("/")
	r.signals <- syscall.SIGTERM
	readyz, _ := http.NewRequest(http.MethodGet, r.admin+"/readyz", nil)
	if !testproc.Becomes(func() bool { return r.do(readyz).Status == http.StatusServiceUnavailable }) {
		t.Fatal("still ready")
	}
	if got := echoed(t, ws, "still here"); got != "still here" {
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
	hangs, inside := exchange.Blocking(t)
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
	hangs, inside := exchange.Blocking(t)
	r := start(t, generous, hangs)
	_, answer := r.raw("GET / HTTP/1.1\r\nHost: here\r\n\r\n")
	<-inside
	r.cut()
	if text, err := io.ReadAll(answer); len(text) > 0 {
		t.Errorf("%q, %v", text, err)
	}
	r.logged("status=499")
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
