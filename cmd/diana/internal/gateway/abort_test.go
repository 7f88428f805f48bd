// SPDX-License-Identifier: MIT

package gateway

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/coder/websocket"

	"github.com/diana-limiter/diana/cmd/diana/internal/exchange"
	"github.com/diana-limiter/diana/internal/testproc"
)

// A client that disconnects causes no error in the log.
func TestClientGoesAway(t *testing.T) {
	t.Parallel()
	hangs, inside := exchange.Blocking(t)
	r := start(t, generous, hangs)
	conn, _ := r.raw("GET /hangs HTTP/1.1\r\nHost: here\r\n\r\n")
	<-inside
	conn.Close()
	r.logged("path=/hangs status=499")
	r.wantQuiet()
}

// The same if it disconnects in the middle of the answer.
func TestClientGoesAwayReading(t *testing.T) {
	t.Parallel()
	gone := make(chan struct{})
	r := start(t, generous, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for r.Context().Err() == nil {
			_, _ = io.WriteString(w, strings.Repeat("x", 1000))
			_ = http.NewResponseController(w).Flush()
		}
		close(gone)
	}))
	conn, answer := r.raw("GET /endless HTTP/1.1\r\nHost: here\r\n\r\n")
	if _, err := answer.ReadString('x'); err != nil {
		t.Fatal(err)
	}
	conn.Close()
	<-gone // the upstream notices that
	r.logged("path=/endless status=200")
	r.logged("aborted=true")
	r.wantQuiet()
}

// The same if it disconnects in the middle of the request's body.
func TestClientGoesAwaySending(t *testing.T) {
	t.Parallel()
	begun := make(chan struct{})
	r := start(t, generous, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.ReadFull(r.Body, make([]byte, 4))
		close(begun)
		_, _ = io.Copy(io.Discard, r.Body)
	}))
	conn, _ := r.raw("POST /upload HTTP/1.1\r\nHost: here\r\nContent-Length: 100\r\n\r\nhalf")
	<-begun
	conn.Close()
	r.logged("path=/upload status=4")
	r.wantQuiet()
}

// A body that cannot be read is the client's mistake.
func TestMalformedBody(t *testing.T) {
	t.Parallel()
	r := start(t, generous, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
	}))
	_, answer := r.raw("POST / HTTP/1.1\r\nHost: here\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\nzz\r\n")
	if line, err := answer.ReadString('\n'); err != nil || !strings.HasPrefix(line, "HTTP/1.1 400 ") {
		t.Error(line, err)
	}
	r.wantQuiet()
}

// wantQuiet fails the test if anything is logged as an error or a warning.
func (r *running) wantQuiet() {
	r.t.Helper()
	if log := r.log.String(); strings.Contains(log, "level=ERROR") || strings.Contains(log, "level=WARN") {
		r.t.Error(log)
	}
}

// A request releases its slot of a concurrency limit, however it ends.
func TestPlaceIsFreed(t *testing.T) {
	t.Parallel()
	const one = "url: /\nrules: [{name: one, algo: C, rpu: 1}]"

	for _, test := range []struct {
		name string
		use  func(t *testing.T, r *running, inside <-chan struct{}, leave func())
	}{{
		name: "normal end",
		use: func(t *testing.T, r *running, inside <-chan struct{}, leave func()) {
			_, answer := r.raw("GET /use/ HTTP/1.1\r\nHost: here\r\n\r\n")
			<-inside
			r.wantFull()
			leave()
			if line, err := answer.ReadString('\n'); err != nil || !strings.HasPrefix(line, "HTTP/1.1 200 ") {
				t.Error(line, err)
			}
		},
	}, {
		name: "upstream aborts",
		use: func(_ *testing.T, r *running, inside <-chan struct{}, leave func()) {
			r.raw("GET /use/abort HTTP/1.1\r\nHost: here\r\n\r\n")
			<-inside
			r.wantFull()
			leave()
		},
	}, {
		name: "upstream aborts in the middle of the answer",
		use: func(_ *testing.T, r *running, inside <-chan struct{}, leave func()) {
			r.raw("GET /use/half HTTP/1.1\r\nHost: here\r\n\r\n")
			<-inside
			r.wantFull()
			leave()
		},
	}, {
		name: "client breaks off",
		use: func(_ *testing.T, r *running, inside <-chan struct{}, _ func()) {
			conn, _ := r.raw("GET /use/ HTTP/1.1\r\nHost: here\r\n\r\n")
			<-inside
			r.wantFull()
			conn.Close()
		},
	}, {
		name: "client breaks off while sending",
		use: func(_ *testing.T, r *running, inside <-chan struct{}, _ func()) {
			conn, _ := r.raw("POST /use/ HTTP/1.1\r\nHost: here\r\nContent-Length: 9\r\n\r\nhalf")
			<-inside
			r.wantFull()
			conn.Close()
		},
	}, {
		name: "WebSocket closes",
		use: func(t *testing.T, r *running, _ <-chan struct{}, _ func()) {
			ws, _ := r.dial("/ws")
			if got := echoed(t, ws, "hello"); got != "hello" {
				t.Error(got)
			}
			r.wantFull()
			if err := ws.Close(websocket.StatusNormalClosure, ""); err != nil {
				t.Error(err)
			}
		},
	}, {
		name: "WebSocket breaks",
		use: func(_ *testing.T, r *running, _ <-chan struct{}, _ func()) {
			ws, _ := r.dial("/ws")
			r.wantFull()
			_ = ws.CloseNow()
		},
	}} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			inside := make(chan struct{})
			leaving, leave := context.WithCancel(t.Context())
			t.Cleanup(leave)
			mux := http.NewServeMux()
			mux.HandleFunc("/use/", func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/use/half" {
					_, _ = io.WriteString(w, "half")
					_ = http.NewResponseController(w).Flush()
				}
				inside <- struct{}{}
				select {
				case <-leaving.Done():
				case <-r.Context().Done():
				}
				if r.URL.Path != "/use/" {
					panic(http.ErrAbortHandler)
				}
			})
			mux.HandleFunc("/ws", echoWebSocket)
			mux.HandleFunc("/next", func(http.ResponseWriter, *http.Request) {})
			r := start(t, one, mux)
			test.use(t, r, inside, leave)
			if !testproc.Becomes(func() bool { return r.get("/next").Status == http.StatusOK }) {
				t.Error("the place is never free again")
			}
		})
	}
}

// wantFull fails the test if a slot is free.
func (r *running) wantFull() {
	r.t.Helper()
	if a := r.get("/next"); a.Status != http.StatusServiceUnavailable {
		r.t.Error("there is a place:", a)
	}
}
