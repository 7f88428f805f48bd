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
	"time"

	upstreams "github.com/diana-limiter/diana/cmd/diana/internal/upstream"
	"github.com/diana-limiter/diana/internal/testproc"
)

// everyProtocol calls test with a client for each protocol, and with a gateway that speaks it.
func everyProtocol(t *testing.T, upstream string, test func(t *testing.T, client *http.Client, g *served)) {
	files := writePair(t, t.TempDir(), "first", inAnHour())
	for _, name := range []string{"HTTP/1.1", "HTTP/1.1 over TLS", "HTTP/2 over TLS", "HTTP/2"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			flags, client := []string{"--h2c"}, h2cClient(t)
			switch name {
			case "HTTP/1.1":
				client = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
			case "HTTP/1.1 over TLS", "HTTP/2 over TLS":
				flags, client = []string{"--tls-cert", files.cert, "--tls-key", files.key}, over(t, strings.Contains(name, "2"))
			}
			test(t, client, serve(t, "limits: []", upstream, flags...))
		})
	}
}

// An answer that breaks off begins all the same, so that its client does not send the request again.
func TestBrokenAnswerBegins(t *testing.T) {
	t.Parallel()
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		switch r.URL.Path {
		case "/body":
			_, _ = io.WriteString(conn, "HTTP/1.1 201 Created\r\nContent-Length: 100\r\nX-Own: field\r\n\r\n0123456789")
		case "/fields":
			_, _ = io.WriteString(conn, "HTTP/1.1 201 Created\r\nContent-Length: 100\r\nX-Own: field\r\n\r\n")
		case "/status":
			_, _ = io.WriteString(conn, "HTTP/1.1 201 Cre")
		}
	}))
	t.Cleanup(upstream.Close)
	everyProtocol(t, upstream.URL, func(t *testing.T, client *http.Client, g *served) {
		for path, want := range map[string]string{"/body": "0123456789", "/fields": ""} {
			answer, err := client.Post(g.url+path, "text/plain", strings.NewReader("once"))
			if err != nil {
				t.Error(path, err)
				continue
			}
			body, err := io.ReadAll(answer.Body)
			answer.Body.Close()
			if answer.StatusCode != http.StatusCreated || answer.Header.Get("X-Own") != "field" || string(body) != want || err == nil {
				t.Errorf("%s: %d %v %q, %v", path, answer.StatusCode, answer.Header, body, err)
			}
		}
		answer, err := client.Post(g.url+"/status", "text/plain", strings.NewReader("once"))
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		if answer.StatusCode != http.StatusBadGateway {
			t.Errorf("without a status: %d", answer.StatusCode)
		}
	})
}

// The gateway guesses no Content-Type.
func TestNoContentTypeIsInvented(t *testing.T) {
	t.Parallel()
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header()["Content-Type"] = nil
		if r.URL.Path == "/hints" {
			w.WriteHeader(http.StatusEarlyHints)
			w.Header()["Content-Type"] = nil
		}
		_, _ = io.WriteString(w, "<html><title>text</title>")
	}))
	t.Cleanup(upstream.Close)
	everyProtocol(t, upstream.URL, func(t *testing.T, client *http.Client, g *served) {
		for _, path := range []string{"/", "/hints"} {
			answer, err := client.Get(g.url + path)
			if err != nil {
				t.Fatal(err)
			}
			answer.Body.Close()
			if kind, ok := answer.Header["Content-Type"]; ok {
				t.Errorf("%s: the gateway has added %q", path, kind)
			}
		}
	})
}

// A client may change to WebSocket and to what the operator allows. Any other wish is ignored.
func TestUpgrades(t *testing.T) {
	t.Parallel()
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked := r.Header.Get("Upgrade")
		if asked == "" {
			_, _ = fmt.Fprintf(w, "%q", r.Header["Connection"])
			return
		}
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		_, _ = fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n", asked)
		line, _ := rw.ReadString('\n')
		_, _ = io.WriteString(conn, "again "+line)
	}))
	t.Cleanup(upstream.Close)
	g := serve(t, "limits: []", upstream.URL, "--upgrade", "echo/1", "--upgrade", "irc", "--log-level", "debug")
	for asked, want := range map[string]string{
		"websocket": "websocket", "WebSocket": "WebSocket", "Echo/1": "Echo/1", "h2c, echo/1": "echo/1",
		"h2c\r\nUpgrade: echo/1": "echo/1", "echo/2, IRC/6.9": "IRC/6.9",
		"h2c": "", "echo": "", "TLS/1.0": "",
	} {
		conn, err := net.Dial("tcp", strings.TrimPrefix(g.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_, _ = fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: here\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n", asked)
		_ = conn.SetDeadline(time.Now().Add(testproc.Patience))
		r := bufio.NewReader(conn)
		answer, err := http.ReadResponse(r, nil)
		if err != nil {
			t.Fatal(asked, err)
		}
		defer answer.Body.Close()
		if want == "" {
			if body, _ := io.ReadAll(io.LimitReader(answer.Body, 2)); answer.StatusCode != http.StatusOK || string(body) != "[]" {
				t.Errorf("%s: %s %s", asked, answer.Status, body)
			}
			continue
		}
		_, _ = io.WriteString(conn, "hello\n")
		line, _ := r.ReadString('\n')
		if answer.StatusCode != http.StatusSwitchingProtocols || answer.Header.Get("Upgrade") != want || line != "again hello\n" {
			t.Errorf("%s: %s to %q, %q", asked, answer.Status, answer.Header.Get("Upgrade"), line)
		}
	}
	if !testproc.Becomes(func() bool { return strings.Contains(g.log.String(), `msg="upgrade ignored" upgrade=TLS/1.0`) }) {
		t.Error("an ignored upgrade is not in the log")
	}
	if n := g.metric(t, "diana_upgrades_ignored_total"); n != 3 {
		t.Errorf("%v upgrades are counted as ignored, want 3", n)
	}
	for _, name := range []string{"h2c", "HTTP/2.0", "tls/1.3", "a b", ""} {
		if err := (&upstreams.Flags{Upgrade: []string{name}}).Valid(); err == nil || !strings.Contains(err.Error(), "expected") {
			t.Errorf("%q: %v", name, err)
		}
	}
}
