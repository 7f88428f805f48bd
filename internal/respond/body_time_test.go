// SPDX-License-Identifier: MIT

package respond

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// oneConn is a listener with one connection.
type oneConn chan net.Conn

func (l oneConn) Accept() (net.Conn, error) {
	c, ok := <-l
	if !ok {
		return nil, net.ErrClosed
	}
	return c, nil
}

func (l oneConn) Close() error   { return nil }
func (l oneConn) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "unix"} }

// A client that sends a byte now and then gets 408 after a minute, at once, and holds no memory any more.
func TestBodyArrival(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const pause = 20 * time.Second
		var b Bodies
		s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, err := readAt(&b, r, []string{"/m"})
			if !Reject(w, nil, err, "") {
				t.Errorf("%v, want a body that did not arrive in time", err)
			}
			b.Release(r.Body)
			if n := b.held.Load(); n != 0 {
				t.Errorf("%d bytes are held", n)
			}
		})}
		client, server := net.Pipe()
		l := make(oneConn, 1)
		l <- server
		go func() { _ = s.Serve(l) }()
		began := time.Now()
		answered := make(chan string)
		go func() {
			line, _ := bufio.NewReader(client).ReadString('\n')
			answered <- strings.TrimSpace(line)
			_, _ = io.Copy(io.Discard, client)
		}()
		_, _ = fmt.Fprintf(client, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n", 1000)
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			for ctx.Err() == nil {
				if _, err := io.WriteString(client, " "); err != nil {
					return
				}
				time.Sleep(pause)
			}
		}()
		if line := <-answered; line != "HTTP/1.1 408 Request Timeout" {
			t.Errorf("answer %q", line)
		}
		if took := time.Since(began); took < MaxArrival || took > MaxArrival+pause {
			t.Errorf("answered after %v", took)
		}
		cancel()
		close(l)
		_ = s.Close()
		_ = client.Close()
		time.Sleep(pause) // the goroutines of the test end
	})
}
