// SPDX-License-Identifier: MIT

package main

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
)

// An answer of the upstream is slowed, complete, and keeps its trailers. An upgraded connection is
// not slowed. The status of the upstream decides which rules charge the request.
func TestSlowed(t *testing.T) {
	t.Parallel()
	body := strings.Repeat("0123456789", 20_000)
	r := start(t, `
- {url: /, bandwidth: 400k}
- {url: /login, rules: [{algo: W, unit: day, rpu: 2, charge: [401]}]}
- {url: /chat, bandwidth: 1k}
`, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/chat":
			echoWebSocket(w, r)
		case "/login":
			if r.URL.RawQuery == "wrong" {
				w.WriteHeader(http.StatusUnauthorized)
			}
		default:
			w.Header().Set("Trailer", "X-Sum")
			_, _ = io.WriteString(w, body)
			w.Header().Set("X-Sum", "7")
		}
	}))
	began := time.Now()
	if a := r.get("/file"); a.body != body || a.trailer.Get("X-Sum") != "7" {
		t.Errorf("%d bytes, trailer %v", len(a.body), a.trailer)
	}
	if took := time.Since(began); took < 250*time.Millisecond {
		t.Errorf("half a second's worth took %v", took)
	}
	for i, row := range []struct {
		query string
		want  int
	}{{"", 200}, {"", 200}, {"wrong", 401}, {"", 200}, {"wrong", 401}, {"", 503}} {
		if a := r.get("/login?" + row.query); a.status != row.want {
			t.Errorf("login %d: %d, want %d", i, a.status, row.want)
		}
	}
	began = time.Now()
	ws, _ := r.dial("/chat")
	text := strings.Repeat("x", 20_000) // 20 s of the bandwidth
	if got := exchange(t, ws, text); got != text {
		t.Errorf("%d bytes came back", len(got))
	}
	_ = ws.Close(websocket.StatusNormalClosure, "")
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("a WebSocket was slowed: %v", took)
	}
}
