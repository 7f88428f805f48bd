// SPDX-License-Identifier: MIT

package main

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/diana-limiter/diana/cmd/diana/internal/exchange"
	"github.com/diana-limiter/diana/internal/testproc"
)

// answersFirst is an upstream that answers before it has read the body, and then reads it.
func answersFirst(w http.ResponseWriter, r *http.Request) {
	_ = http.NewResponseController(w).EnableFullDuplex()
	_, _ = io.WriteString(w, "first")
	_ = http.NewResponseController(w).Flush()
	_, _ = io.Copy(io.Discard, r.Body) // until the gateway disconnects
}

// This test runs the program with sockets: clients that are slow in every way hold all slots until
// their timeouts, and no longer. TestSlowClientsFreeTheirSlots tests the same in fake time.
func TestServeCutsSlowClients(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		text     string
		upstream http.HandlerFunc
		answer   string // how it begins; "": whatever
	}{
		"no body":                 {"POST / HTTP/1.1\r\nHost: here\r\nContent-Length: 9\r\n\r\n", exchange.ReadsAll, "HTTP/1.1 408 "},
		"half a body":             {"POST / HTTP/1.1\r\nHost: here\r\nContent-Length: 9\r\n\r\nhalf", exchange.ReadsAll, "HTTP/1.1 408 "},
		"half a chunk":            {"POST / HTTP/1.1\r\nHost: here\r\nTransfer-Encoding: chunked\r\n\r\n8\r\nhalf", exchange.ReadsAll, "HTTP/1.1 408 "},
		"the answer comes first":  {"POST / HTTP/1.1\r\nHost: here\r\nContent-Length: 9\r\n\r\nhalf", answersFirst, ""},
		"reads nothing":           {"GET / HTTP/1.1\r\nHost: here\r\n\r\n", exchange.Endless, "HTTP/1.1 200 "},
		"reads nothing, HTTP/1.0": {"GET / HTTP/1.0\r\n\r\n", exchange.Endless, "HTTP/1.0 200 "},
		"reads no large answer":   {"GET / HTTP/1.1\r\nHost: here\r\n\r\n", large, "HTTP/1.1 200 "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inside := make(chan struct{}, 10)
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/next" {
					return
				}
				inside <- struct{}{}
				test.upstream(w, r)
			}))
			t.Cleanup(server.Close)
			gateway := serve(t, exchange.FewSlots, server.URL, "--read-timeout", "1s", "--write-timeout", "1s")
			next := func() int {
				request, _ := http.NewRequest(http.MethodGet, gateway.url+"/next", nil)
				return exchange.RoundTrip(t, request).Status
			}
			var clients []net.Conn
			for range 4 {
				conn, err := net.Dial("tcp", strings.TrimPrefix(gateway.url, "http://"))
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
				_ = conn.(*net.TCPConn).SetReadBuffer(4 << 10)
				_, _ = io.WriteString(conn, test.text)
				clients = append(clients, conn)
				<-inside
			}
			if status := next(); status != http.StatusServiceUnavailable {
				t.Error("a fifth request gets", status)
			}
			if !testproc.Becomes(func() bool { return next() == http.StatusOK }) {
				t.Fatal("no slot is ever free again")
			}
			for _, c := range clients {
				answer := make([]byte, len(test.answer))
				if _, err := io.ReadFull(c, answer); err != nil || string(answer) != test.answer {
					t.Errorf("%q, %v, want %s", answer, err, test.answer)
				}
			}
		})
	}
}

// large is an upstream whose answer fits no socket's buffer.
func large(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Length", "50000000")
	for range 50 {
		_, _ = w.Write(make([]byte, 1_000_000))
	}
}
