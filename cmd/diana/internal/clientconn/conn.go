// SPDX-License-Identifier: MIT

package clientconn

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/diana-limiter/diana/cmd/diana/internal/chain"
)

// clientConn is a connection to a client that may not hold its request up. A request in flight can
// hold slots of concurrency limits. So a client that sends no body, or reads no answer, would
// otherwise keep other clients out for as long as it likes.
//
// The timeouts of http.Server cover a whole request and a whole answer, and would end long uploads
// and streams that are well. Those of a clientConn cover the time without progress:
//
//	each Write                    write timeout, again when the client has taken a part
//	each Read of a body           read timeout
//	each other Read               what net/http sets: header timeout, idle timeout, none
//	after Hijack                  none, such as for WebSockets
//
// No Write is pending while a stream is idle, so that takes as long as it likes. What net/http
// reads and writes by itself is covered too: "100 Continue", the rest of a body before the answer,
// and what is still buffered when the handler has returned.
//
// net/http calls SetReadDeadline when a body has ended, to notice in the background that the
// client disconnects, and before each header. That ends the reading of the body. Hijack calls
// SetDeadline, which ends both timeouts.
//
// Rejected: deadlines that the handler sets by http.ResponseController. It does not see the progress
// within a chunk, nor what net/http reads and writes by itself.
type clientConn struct {
	net.Conn
	write time.Duration

	mu       sync.Mutex    // guards the rest; one goroutine may read while another writes
	writeBy  time.Time     // the deadline of a Write that is or was pending
	fixed    time.Time     // of all Writes, as package tls has set it; zero: none
	read     time.Duration // of a body; 0: none is being read
	hijacked bool
	late     bool // the read timeout has passed
	cut      bool // the write timeout has passed
}

// Read reads, and has a deadline if it reads a body.
func (c *clientConn) Read(p []byte) (int, error) {
	body, err := c.extendRead()
	if err != nil {
		return 0, err
	}
	n, err := c.Conn.Read(p)
	if body && errors.Is(err, os.ErrDeadlineExceeded) {
		c.mu.Lock()
		c.late = true // before net/http ends the request's context
		c.mu.Unlock()
	}
	return n, err
}

// extendRead sets the deadline for a Read of a body, and reports whether it is one. A body that has
// been late once is not waited for again, such as by net/http in front of an answer.
func (c *clientConn) extendRead() (body bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.read == 0:
		return false, nil
	case c.late:
		return true, os.ErrDeadlineExceeded
	}
	_ = c.Conn.SetReadDeadline(time.Now().Add(c.read)) // if it fails, so does the Read
	return true, nil
}

// Write writes all of p, or until the client has taken nothing for the write timeout. A client that
// has been cut off once gets nothing more.
func (c *clientConn) Write(p []byte) (n int, err error) {
	now := time.Now()
	for progress := now; ; now = time.Now() {
		ends, err := c.extendWrite(now, progress.Add(c.write))
		if err != nil {
			return n, err
		}
		k, err := c.Conn.Write(p[n:])
		n += k
		switch {
		case !ends || !errors.Is(err, os.ErrDeadlineExceeded):
			return n, err
		case k > 0: // within this part
			progress = time.Now()
		case time.Since(progress) >= c.write:
			c.mu.Lock()
			c.cut = true
			c.mu.Unlock()
			return n, err
		}
	}
}

// extendWrite sets the deadline of a part of a Write, and reports whether it has one. The parts are
// short because a Write does not tell when the client took what it has taken.
//
// The part ends at last, when the write timeout has passed. A deadline that an earlier Write has left
// is kept while it is far enough, because most Writes take no time and setting one takes more. One that
// net/http has set and removed again can be too far.
func (c *clientConn) extendWrite(now, last time.Time) (ends bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.hijacked:
		return false, nil
	case c.cut, !c.fixed.IsZero() && !now.Before(c.fixed):
		return true, os.ErrDeadlineExceeded
	}
	part := max(c.write/32, time.Millisecond)
	if left := c.writeBy.Sub(now); left < part/2 || left > part {
		if c.writeBy = now.Add(part); c.writeBy.After(last) {
			c.writeBy = last
		}
		if !c.fixed.IsZero() && c.writeBy.After(c.fixed) {
			c.writeBy = c.fixed
		}
		_ = c.Conn.SetWriteDeadline(c.writeBy) // if it fails, so does the Write
	}
	return true, nil
}

// SetWriteDeadline is for net/http, which removes the deadline after each request. It stays, because
// extendWrite counts on it, and each Write sets one anyway. Package tls sets a deadline for its last record,
// and net/http one for the handshake. Neither is prolonged.
func (c *clientConn) SetWriteDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fixed = t
	if t.IsZero() && !c.hijacked {
		return nil
	}
	c.writeBy = t
	return c.Conn.SetWriteDeadline(t)
}

// SetReadDeadline is for net/http, which calls it when no body is being read.
func (c *clientConn) SetReadDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.read = 0
	return c.Conn.SetReadDeadline(t)
}

// SetDeadline is for net/http, which calls it when a handler takes the connection over.
func (c *clientConn) SetDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.read, c.hijacked = 0, true
	return c.Conn.SetDeadline(t)
}

// CloseWrite is for net/http and ReverseProxy, which look for it.
func (c *clientConn) CloseWrite() error {
	if w, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return w.CloseWrite()
	}
	return errors.ErrUnsupported
}

// beginBody sets the timeout for each Read until the body has ended.
func (c *clientConn) beginBody(timeout time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.read = timeout
}

// bodyLate reports whether a Read of the body has timed out.
func (c *clientConn) bodyLate() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.late
}

// listener makes clientConns.
type listener struct {
	net.Listener
	write time.Duration
}

// Accept waits for a client.
func (l listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &clientConn{Conn: c, write: l.write}, nil
}

// Listener returns a listener whose connections end when a client takes nothing for so long.
func Listener(l net.Listener, timeout time.Duration) net.Listener { return listener{l, timeout} }

type slowPeerKey struct{}

// slowPeer is the client of a request: a clientConn, or a stream of HTTP/2.
type slowPeer interface {
	bodyLate() bool
}

func withSlowPeer(ctx context.Context, p slowPeer) context.Context {
	return context.WithValue(ctx, slowPeerKey{}, p)
}

// Context is for http.Server.ConnContext. It finds the clientConn below TLS too.
func Context(ctx context.Context, c net.Conn) context.Context {
	if t, ok := c.(*tls.Conn); ok {
		c = t.NetConn()
	}
	if c, ok := c.(*clientConn); ok {
		return withSlowPeer(ctx, c)
	}
	return ctx
}

// Timeouts is a filter that gives requests their read timeout, and their write timeout over HTTP/2. A
// request without a connection, as in some tests, has none.
func Timeouts(read, write time.Duration) chain.Filter {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.ProtoMajor == 2 {
				serveStream(next, w, r, read, write)
				return
			}
			if r.Body != nil && r.Body != http.NoBody {
				if c, ok := r.Context().Value(slowPeerKey{}).(*clientConn); ok {
					c.beginBody(read)
				}
			}
			next.ServeHTTP(w, r)
		})
	}
}

// BodyLate reports whether the body of the request with this context has timed out.
func BodyLate(ctx context.Context) bool {
	p, ok := ctx.Value(slowPeerKey{}).(slowPeer)
	return ok && p.bodyLate()
}
