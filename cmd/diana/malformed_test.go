// SPDX-License-Identifier: MIT

package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/diana-limiter/diana/cmd/diana/internal/exchange"
	"github.com/diana-limiter/diana/cmd/diana/internal/upstream"
	"github.com/diana-limiter/diana/internal/testproc"
)

// raw sends text over a connection of its own, and returns the status of the answer.
func (s *served) raw(t *testing.T, text string) int {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
	answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	return answer.StatusCode
}

// startH2C starts an upstream that speaks HTTP/2 without TLS, and takes headers of about 4 KiB.
func startH2C(t *testing.T) (url string) {
	t.Helper()
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	s.Config.MaxHeaderBytes = 4 << 10
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	s.Start()
	t.Cleanup(s.Close)
	return strings.Replace(s.URL, "http:", "h2c:", 1)
}

// No request that only its client has spoiled counts as a failure of an upstream.
func TestClientSpoilsNoUpstream(t *testing.T) {
	t.Parallel()
	const chunk = "Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n"
	post := func(fields string) func(*testing.T, *served) int {
		return func(t *testing.T, g *served) int {
			return g.raw(t, "POST / HTTP/1.1\r\nHost: here\r\n"+fields+"\r\n"+chunk)
		}
	}
	overHTTP2 := func(method, host, path string, status int) func(*testing.T, *served) int {
		return func(t *testing.T, g *served) int {
			f := dialFrames(t, g.url)
			f.authority = host
			f.request(1, method, path, true)
			f.await(1, fmt.Sprint(status))
			return status
		}
	}
	for name, test := range map[string]struct {
		h2c    bool // of the upstreams
		keep   bool // --host keep
		send   func(*testing.T, *served) int
		status int
	}{
		"name of a trailer":    {false, false, post("Trailer: Fo o"), 400},
		"trailer to HTTP/2":    {true, false, post("Trailer: Fo o"), 400},
		"method":               {false, false, overHTTP2("GET /x", "here", "/", 400), 400},
		"method to HTTP/2":     {true, false, overHTTP2("GET /x", "here", "/", 400), 400},
		"host":                 {false, true, overHTTP2("GET", "xn--a\x80", "/", 400), 400},
		"space in the query":   {false, false, overHTTP2("GET", "here", "/?a b", 400), 400},
		"upgrade":              {false, false, post("Connection: Upgrade\r\nUpgrade: \xff"), 400},
		"upgrade to HTTP/2":    {true, false, post("Connection: Upgrade\r\nUpgrade: websocket"), 501},
		"a long header":        {true, false, post("X-Long: " + strings.Repeat("x", 8<<10)), 431},
		"name that is no word": {false, false, post("X y: z"), 400},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, b := newMember(t, "a").URL, newMember(t, "b").URL
			if test.h2c {
				a, b = startH2C(t), startH2C(t)
			}
			flags := []string{"--upstream", b, "--h2c"}
			if test.keep {
				flags = append(flags, "--host", "keep")
			}
			g := serve(t, "limits: []", a, flags...)
			for range 2 { // an upstream over HTTP/2 says with its first answer how long a header may be
				if status, _ := g.send(t, "GET", ""); status != 200 {
					t.Fatal(status)
				}
			}
			for range 2 * upstream.FailuresInRow {
				if status := test.send(t, g); status != test.status {
					t.Errorf("%d, want %d", status, test.status)
				}
			}
			for _, u := range []string{a, b} {
				of := func(metric string) float64 {
					return g.metric(t, fmt.Sprintf(`diana_upstream_%s{upstream="%s"}`, metric, u))
				}
				if of("up") != 1 || of("failures_total") != 0 || of("retries_total") != 0 || of("requests_total") != 1 {
					t.Errorf("up %v, %v failures, %v retries, %v requests", of("up"), of("failures_total"), of("retries_total"), of("requests_total"))
				}
			}
			if strings.Contains(g.log.String(), "level=ERROR") {
				t.Error(g.log.String())
			}
		})
	}
}

// The mistakes of clients that net/http reports are for debugging.
func TestMistakesOfClientsAreNoErrors(t *testing.T) {
	t.Parallel()
	g := serve(t, "limits: []", newMember(t, "a").URL, "--h2c", "--log-level", "debug")
	f := dialFrames(t, g.url)
	if err := f.WriteWindowUpdate(0, 1<<31-1); err != nil { // the window overflows
		t.Fatal(err)
	}
	f = dialFrames(t, g.url)
	if err := f.WriteRawFrame(0x0, 0, 0, []byte("data of no stream")); err != nil {
		t.Fatal(err)
	}
	if !testproc.Becomes(func() bool { return strings.Contains(g.log.String(), `msg="http2: server connection error`) }) {
		t.Errorf("no line: %s", g.log.String())
	}
	if strings.Contains(g.log.String(), "level=ERROR") {
		t.Error(g.log.String())
	}
}

// An upstream fails if it answers in a way that no client can get.
func TestInvalidAnswerIsAFailure(t *testing.T) {
	t.Parallel()
	for _, answer := range []string{
		"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n",
		"HTTP/1.1 099 Odd\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
	} {
		odd, a := "http://"+exchange.Answering(t, answer), newMember(t, "a")
		g := serve(t, "limits: []", odd, "--upstream", a.URL)
		for range 2 * upstream.FailuresInRow {
			_, _ = g.send(t, "POST", "")
		}
		if up := g.metric(t, fmt.Sprintf(`diana_upstream_up{upstream="%s"}`, odd)); up != 0 {
			t.Errorf("%q: the upstream is in service", answer)
		}
	}
}
