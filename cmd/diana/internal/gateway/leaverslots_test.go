// SPDX-License-Identifier: MIT

package gateway

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/cmd/diana/internal/upstream"
	"github.com/diana-limiter/diana/internal/testproc"
)

// heldConn is a connection whose Close waits for the test.
type heldConn struct {
	net.Conn
	closing chan<- struct{}
	release <-chan struct{}
}

func (c heldConn) Close() error {
	c.closing <- struct{}{}
	<-c.release
	return c.Conn.Close()
}

// A client that disconnects releases its slot when the connection to the upstream is closed, and not before. net/http
// sees to that over HTTP/1.1: it closes the connection before the answer ends, unless the connection was upgraded.
func TestSlotOfALeaverOutlivesItsConnection(t *testing.T) {
	t.Parallel()
	for _, answer := range []string{"none", "begun", "endless", "upgraded"} {
		inside := make(chan struct{}, 9)
		behind := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if answer == "upgraded" {
				conn, _, err := http.NewResponseController(w).Hijack()
				if err != nil {
					t.Error(err)
					return
				}
				defer conn.Close()
				_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
				inside <- struct{}{}
				_, _ = io.Copy(io.Discard, conn)
				return
			}
			if answer != "none" {
				_, _ = io.WriteString(w, "begun")
				_ = http.NewResponseController(w).Flush()
			}
			inside <- struct{}{}
			for answer == "endless" && r.Context().Err() == nil {
				_, _ = io.WriteString(w, strings.Repeat("x", 1000))
			}
			<-r.Context().Done()
		}))
		t.Cleanup(behind.Close)
		closing, release := make(chan struct{}, 9), make(chan struct{})
		r := start(t, "limits: [{url: /, rules: [{name: one, algo: C, rpu: 1}]}]", http.NotFoundHandler())
		transport := upstream.NewTransport(usualTimeouts.Timeouts)
		dial := transport.DialContext
		transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
			c, err := dial(ctx, network, address)
			return heldConn{c, closing, release}, err
		}
		to, err := url.Parse(behind.URL)
		if err != nil {
			t.Fatal(err)
		}
		logger := slog.New(slog.DiscardHandler)
		r.server.Handler = r.inFrontOf(upstream.NewProxy(to, false, upstream.RetryCancelled(transport), time.Minute, r.limiter.Config, upstream.NewUpgrades(nil, logger), logger))
		request := "GET / HTTP/1.1\r\nHost: here\r\n\r\n"
		if answer == "upgraded" {
			request = "GET / HTTP/1.1\r\nHost: here\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
		}
		conn, begin := r.raw(request)
		<-inside
		if answer != "none" {
			_, _ = begin.ReadByte()
		}
		conn.Close()
		<-closing // net/http is about to close the connection
		for range 20 {
			if d, err := r.limiter.Peek(t.Context(), diana.Request{Path: "/"}); err != nil || d.Allowed {
				t.Fatalf("%s: the slot is free while the upstream's connection is open (%v)", answer, err)
			}
			time.Sleep(time.Millisecond) // for a defect to show
		}
		close(release)
		testproc.Eventually(t, func() bool {
			d, err := r.limiter.Peek(t.Context(), diana.Request{Path: "/"})
			return err == nil && d.Allowed
		})
	}
}
