// SPDX-License-Identifier: MIT

package gateway

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/diana-limiter/diana/cmd/diana/internal/logs"
)

// The upstream's own ID goes to the client, and the log has both. A refusal has the ID of the gateway.
func TestRequestIDOfTheUpstream(t *testing.T) {
	t.Parallel()
	r := start(t, "- {url: /, rules: [{rpu: 1000}]}\n- {url: /refused, rules: [{rpu: 0}]}", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(logs.RequestIDField, "own-1")
		switch r.URL.Path {
		case "/hints":
			w.WriteHeader(http.StatusEarlyHints)
		case "/switch":
			conn, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nX-Request-Id: own-1\r\n\r\n")
			conn.Close()
		}
	}))
	for _, path := range []string{"/", "/hints", "/switch"} {
		fields := []string{logs.RequestIDField + ": of-the-client"}
		if path == "/switch" {
			fields = append(fields, "Connection: Upgrade", "Upgrade: websocket")
		}
		if ids := r.get(path, fields...).Header[logs.RequestIDField]; len(ids) != 1 || ids[0] != "own-1" {
			t.Errorf("%s: %q", path, ids)
		}
		r.logged("path=" + path + " ")
		r.logged("request_id=of-the-client upstream_request_id=own-1")
	}
	for path, status := range map[string]int{"/refused": http.StatusServiceUnavailable, "/%zz": http.StatusBadRequest} {
		_, answer := r.raw("GET " + path + " HTTP/1.1\r\nHost: here\r\nX-Request-Id: mine\r\n\r\n")
		a, err := http.ReadResponse(answer, nil)
		if err != nil {
			t.Fatal(err)
		}
		a.Body.Close()
		if id := a.Header.Get(logs.RequestIDField); a.StatusCode != status || id != "mine" && path == "/refused" {
			t.Errorf("%s: %d with the ID %q", path, a.StatusCode, id)
		}
	}
}

// An upstream gets what a client sends before it knows whether the protocol changes.
func TestEarlyBytesOfAnUpgrade(t *testing.T) {
	t.Parallel()
	r := start(t, generous, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		all, _ := io.ReadAll(rw)
		_, _ = fmt.Fprintf(conn, "got %s", all)
	}))
	conn, answer := r.raw("GET / HTTP/1.1\r\nHost: here\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nearly, ")
	switched, err := http.ReadResponse(answer, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer switched.Body.Close()
	_, _ = io.WriteString(conn, "late")
	_ = conn.(*net.TCPConn).CloseWrite()
	if got, err := io.ReadAll(answer); string(got) != "got early, late" {
		t.Errorf("%q, %v", got, err)
	}
}

// Informational answers have no fields of the connection to the upstream, and clients of HTTP/1.0 get none.
func TestHintsOfAConnection(t *testing.T) {
	t.Parallel()
	r := start(t, generous, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "HTTP/1.1 103 Early Hints\r\nConnection: X-Hop\r\nX-Hop: 1\r\nKeep-Alive: 5\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ntext")
	}))
	for version, want := range map[string]string{"1.1": "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\n", "1.0": "HTTP/1.0 200 OK\r\n"} {
		_, answer := r.raw("GET / HTTP/" + version + "\r\nHost: here\r\nConnection: close\r\n\r\n")
		text, err := io.ReadAll(answer)
		if err != nil || !strings.HasPrefix(string(text), want) || !strings.HasSuffix(string(text), "text") {
			t.Errorf("HTTP/%s: %v %q, want %q first", version, err, text, want)
		}
	}
}
