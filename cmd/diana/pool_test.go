// SPDX-License-Identifier: MIT

package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/diana-limiter/diana/cmd/diana/internal/exchange"
	"github.com/diana-limiter/diana/cmd/diana/internal/upstream"
	"github.com/diana-limiter/diana/internal/testproc"
)

// testMember is an upstream that answers with its name, and counts its requests.
type testMember struct {
	*httptest.Server
	requests atomic.Int64
	status   atomic.Int64 // of its answers; 0 is 200
}

func newMember(t *testing.T, name string) *testMember {
	t.Helper()
	m := &testMember{}
	m.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		m.requests.Add(1)
		if status := m.status.Load(); status != 0 {
			w.WriteHeader(int(status))
		}
		body, _ := io.ReadAll(r.Body)
		_, _ = fmt.Fprintf(w, "%s %s %s", name, r.Host, body)
	}))
	t.Cleanup(m.Close)
	return m
}

// breaking is an upstream that closes each connection when it has the header of a request.
func breaking(t *testing.T) (address string, requests *atomic.Int64) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	requests = new(atomic.Int64)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			if r, err := http.ReadRequest(bufio.NewReader(conn)); err == nil {
				_, _ = io.Copy(io.Discard, r.Body)
				requests.Add(1)
			}
			conn.Close()
		}
	}()
	return "http://" + l.Addr().String(), requests
}

// unused returns the URL of an address at which nothing listens. It keeps the port, so that no server of another
// test gets it.
func unused(t *testing.T) string {
	t.Helper()
	socket, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Close(socket) })
	syscall.CloseOnExec(socket)
	if err := syscall.Bind(socket, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	address, err := syscall.Getsockname(socket)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("http://127.0.0.1:%d", address.(*syscall.SockaddrInet4).Port)
}

// send sends a request and returns the status and the body of the answer.
func (s *served) send(t *testing.T, method, body string, fields ...string) (int, string) {
	t.Helper()
	request, err := http.NewRequest(method, s.url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(fields); i += 2 {
		request.Header.Set(fields[i], fields[i+1])
	}
	a := exchange.RoundTrip(t, request)
	return a.Status, a.Body
}

// The gateway uses several upstreams in turn.
func TestUpstreamsInTurn(t *testing.T) {
	t.Parallel()
	a, b := newMember(t, "a"), newMember(t, "b")
	g := serve(t, "limits: []", a.URL, "--upstream", b.URL)
	for range 20 {
		status, body := g.send(t, "GET", "")
		if name, host, _ := strings.Cut(strings.TrimSpace(body), " "); status != 200 || host != map[string]string{"a": a.Listener.Addr().String(), "b": b.Listener.Addr().String()}[name] {
			t.Errorf("%d %q", status, body)
		}
	}
	if a.requests.Load() != 10 || b.requests.Load() != 10 {
		t.Errorf("%d and %d requests", a.requests.Load(), b.requests.Load())
	}
}

// With --host keep the upstream gets the Host of the client.
func TestKeepHost(t *testing.T) {
	t.Parallel()
	a, b := newMember(t, "a"), newMember(t, "b")
	for _, more := range [][]string{nil, {"--upstream", b.URL}} {
		g := serve(t, "limits: []", a.URL, append(more, "--host", "keep")...)
		for range 2 {
			if _, body := g.send(t, "GET", ""); !strings.Contains(body, " "+strings.TrimPrefix(g.url, "http://")+" ") {
				t.Errorf("%q", body)
			}
		}
	}
}

// A request goes to a second upstream only if the first one cannot have carried it out, or may do so twice.
func TestRetryOnAnotherUpstream(t *testing.T) {
	t.Parallel()
	t.Run("no connection", func(t *testing.T) {
		t.Parallel()
		a := newMember(t, "a")
		g := serve(t, "limits: []", unused(t), "--upstream", a.URL)
		for _, method := range []string{"GET", "POST", "PATCH", "DELETE"} {
			for range 4 {
				if status, body := g.send(t, method, "a body"); status != 200 || !strings.HasSuffix(body, " a body") {
					t.Errorf("%s: %d %q", method, status, body)
				}
			}
		}
		if n := strings.Count(g.log.String(), `msg="upstream out of service"`); n != 1 {
			t.Errorf("%d lines say that an upstream is out of service", n)
		}
	})
	t.Run("no TLS", func(t *testing.T) {
		t.Parallel()
		a := newMember(t, "a")
		g := serve(t, "limits: []", strings.Replace(a.URL, "http:", "https:", 1), "--upstream", a.URL)
		for range 4 {
			if status, body := g.send(t, "POST", "a body"); status != 200 || !strings.HasSuffix(body, " a body") {
				t.Errorf("%d %q", status, body)
			}
		}
	})
	t.Run("no answer", func(t *testing.T) {
		t.Parallel()
		for _, test := range []struct {
			method, body string
			fields       []string
			status       int
		}{
			{"GET", "", nil, 200},
			{"HEAD", "", nil, 200},
			{"PUT", "", nil, 200},
			{"DELETE", "", nil, 200},
			{"POST", "", nil, 502},
			{"PATCH", "", nil, 502},
			{"POST", "", []string{"Idempotency-Key", "k"}, 200},
			{"PUT", "a body", nil, 502}, // the first upstream has got a part of the body
		} {
			a := newMember(t, "a")
			address, broken := breaking(t)
			g := serve(t, "limits: []", address, "--upstream", a.URL)
			status, _ := g.send(t, test.method, test.body, test.fields...)
			if status != test.status || broken.Load() != 1 || a.requests.Load() != int64((502-status)/302) {
				t.Errorf("%s %q: %d, want %d; %d and %d requests", test.method, test.body, status, test.status, broken.Load(), a.requests.Load())
			}
		}
	})
	t.Run("an answer", func(t *testing.T) {
		t.Parallel()
		a, b := newMember(t, "a"), newMember(t, "b")
		a.status.Store(503)
		g := serve(t, "limits: []", a.URL, "--upstream", b.URL)
		if status, body := g.send(t, "GET", ""); status != 503 || !strings.HasPrefix(body, "a ") || b.requests.Load() != 0 {
			t.Errorf("%d %q", status, body)
		}
	})
	t.Run("no upstream", func(t *testing.T) {
		t.Parallel()
		g := serve(t, "limits: []", unused(t), "--upstream", unused(t))
		for range 8 {
			if status, _ := g.send(t, "GET", ""); status != 502 {
				t.Error(status)
			}
		}
	})
}

// An upstream that fails several times in a row gets no requests for a while, and comes back.
func TestUpstreamOutOfService(t *testing.T) {
	t.Parallel()
	a, b := newMember(t, "a"), newMember(t, "b")
	g := serve(t, "limits: []", a.URL, "--upstream", b.URL)
	up := func() float64 { return g.metric(t, fmt.Sprintf(`diana_upstream_up{upstream="%s"}`, a.URL)) }
	a.status.Store(502)
	for range 2 * upstream.FailuresInRow {
		_, _ = g.send(t, "GET", "")
	}
	if n := a.requests.Load(); n != upstream.FailuresInRow || up() != 0 {
		t.Fatalf("%d requests, and the metric is %v", n, up())
	}
	a.status.Store(0)
	testproc.Eventually(t, func() bool {
		status, _ := g.send(t, "GET", "")
		return status == 200 && up() == 1
	})
	for _, line := range []string{`level=WARN msg="upstream out of service" upstream=` + a.URL + ` reason="502 Bad Gateway" for=1s`, `level=INFO msg="upstream back in service" upstream=` + a.URL} {
		if n := strings.Count(g.log.String(), line); n != 1 {
			t.Errorf("%d times: %s", n, line)
		}
	}
	if n := g.metric(t, fmt.Sprintf(`diana_upstream_failures_total{upstream="%s"}`, a.URL)); n < upstream.FailuresInRow {
		t.Errorf("the metric counts %v failures", n)
	}
}

// killableMain is a server of its own process, which a test can kill.
func killableMain() {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	fmt.Println("http://" + l.Addr().String())
	_ = http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "here") }))
}

// startUpstream starts a server in its own process.
func startUpstream(t *testing.T) (url string, process *os.Process) {
	t.Helper()
	cmd := exec.Command("killable")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(line), cmd.Process
}

// When one of two upstreams is killed under load, no idempotent request fails, and each is charged once.
func TestUpstreamKilledUnderLoad(t *testing.T) {
	t.Parallel()
	const clients, requests = 16, 200 // requests of each client
	killedURL, killed := startUpstream(t)
	url, _ := startUpstream(t)
	g := serve(t, "url: /\nrules: [{name: all, rpu: 1000000, unit: day}]", killedURL, "--upstream", url)
	var load sync.WaitGroup
	var sent atomic.Int64
	for i := range clients {
		load.Go(func() {
			method := []string{"GET", "HEAD", "PUT", "DELETE"}[i%4]
			for range requests {
				if sent.Add(1) == clients*requests/4 {
					if err := killed.Kill(); err != nil {
						t.Error(err)
					}
				}
				request, _ := http.NewRequest(method, g.url, nil)
				answer, err := http.DefaultClient.Do(request)
				if err != nil {
					t.Error(method, err)
					continue
				}
				_, err = io.Copy(io.Discard, answer.Body)
				answer.Body.Close()
				if err != nil || answer.StatusCode != 200 {
					t.Error(method, answer.StatusCode, err)
				}
			}
		})
	}
	load.Wait()
	if n := g.metric(t, `diana_requests_total{decision="allowed",rule="all"}`); n != clients*requests {
		t.Errorf("%d requests were charged %v times", clients*requests, n)
	}
	if n := g.metric(t, fmt.Sprintf(`diana_upstream_retries_total{upstream="%s"}`, killedURL)); n == 0 {
		t.Error("no request was sent again")
	}
}

// Clients that disconnect at any moment leave no slot behind, over each protocol of upstreams.
func TestLeaversReleaseSlots(t *testing.T) {
	t.Parallel()
	for _, scheme := range []string{"http", upstream.SchemeH2C} {
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, strings.Repeat("x", 10_000))
		}))
		server.Config.Protocols = new(http.Protocols)
		server.Config.Protocols.SetHTTP1(true)
		server.Config.Protocols.SetUnencryptedHTTP2(true)
		server.Start()
		t.Cleanup(server.Close)
		g := serve(t, "limits: [{url: /, rules: [{name: few, algo: C, rpu: 20}]}]", strings.Replace(server.URL, "http", scheme, 1))
		for n := range 200 {
			conn, err := net.Dial("tcp", strings.TrimPrefix(g.url, "http://"))
			if err != nil {
				t.Fatal(err)
			}
			_, _ = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: here\r\n\r\n")
			if n%3 > 0 {
				_, _ = conn.Read(make([]byte, 1+n*40))
			}
			conn.Close()
		}
		testproc.Eventually(t, func() bool {
			return strings.Contains(string(g.tell(t, "/api/v1/actor?rule=few&actor=all")), `"remaining":20`)
		})
	}
}
