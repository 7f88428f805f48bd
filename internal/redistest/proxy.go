// SPDX-License-Identifier: MIT

package redistest

import (
	"context"
	"errors"
	"maps"
	"net"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/diana-limiter/diana/internal/testproc"
)

// Proxy forwards connections to a server, with the faults of a network. Each proxy has its own
// connections, so one client can be cut off and others not. Any goroutine may call its methods.
type Proxy struct {
	t       testing.TB
	addr    string
	target  string
	latency atomic.Int64   // nanoseconds
	running sync.WaitGroup // all goroutines

	connections, up, down atomic.Int64

	mu       sync.Mutex         // guards the rest
	listener net.Listener       // nil while the proxy refuses connections
	gate     chan struct{}      // closed unless frozen
	links    map[*link]struct{} // forwarded connections
}

// Traffic is what a proxy has forwarded.
type Traffic struct {
	Connections int64 // all connections to the target, including closed ones
	Up, Down    int64 // bytes sent to the target and to clients
}

// StartProxy starts a proxy to a TCP server, host:port. It ends with the test.
func StartProxy(t testing.TB, target string) *Proxy {
	t.Helper()
	p := &Proxy{t: t, target: target, gate: make(chan struct{}), links: map[*link]struct{}{}}
	close(p.gate)
	err := errors.New("not tried")
	for tries := 0; tries < 20 && err != nil; tries++ {
		p.addr = net.JoinHostPort("127.0.0.1", strconv.Itoa(testproc.FreePort(t)))
		err = p.listenLocked() // no other goroutine has p yet
	}
	if err != nil {
		t.Fatalf("redistest: %v", err)
	}
	t.Cleanup(func() {
		p.Refuse()
		p.running.Wait()
	})
	return p
}

// Addr returns host:port, which stays the same.
func (p *Proxy) Addr() string { return p.addr }

// SetLatency delays all that the target sends from now on. It adds to the time of an answer, not to
// the time between two answers.
func (p *Proxy) SetLatency(d time.Duration) { p.latency.Store(int64(d)) }

// Freeze holds back all data in both directions from now on, like a network that loses everything.
// Connections can still be made.
func (p *Proxy) Freeze() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.openLocked() {
		p.gate = make(chan struct{})
	}
}

// Refuse closes all connections and refuses new ones, as if the server had ended. It drops data that
// was held back.
func (p *Proxy) Refuse() {
	p.mu.Lock()
	if p.listener != nil {
		_ = p.listener.Close() // nothing to lose
		p.listener = nil
	}
	links := slices.Collect(maps.Keys(p.links))
	p.mu.Unlock()
	for _, l := range links {
		l.cut()
		<-l.done
	}
}

// Lose stops all data on existing connections, even their end, like a middlebox that has lost its
// state. It forwards new connections.
func (p *Proxy) Lose() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		l.lost.Store(true)
	}
}

// Resume ends Freeze and Refuse. Data that was held back arrives now. The latency stays.
func (p *Proxy) Resume() {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.openLocked() {
		close(p.gate)
	}
	if p.listener == nil {
		if err := p.listenLocked(); err != nil {
			p.t.Errorf("redistest: resuming: %v", err)
		}
	}
}

// Traffic returns what the proxy has forwarded.
func (p *Proxy) Traffic() Traffic {
	return Traffic{Connections: p.connections.Load(), Up: p.up.Load(), Down: p.down.Load()}
}

// openLocked reports whether data may pass.
func (p *Proxy) openLocked() bool {
	select {
	case <-p.gate:
		return true
	default:
		return false
	}
}

func (p *Proxy) listenLocked() error {
	l, err := net.Listen("tcp", p.addr)
	if err != nil {
		return err
	}
	p.listener = l
	p.running.Go(func() { p.accept(l) })
	return nil
}

func (p *Proxy) accept(from net.Listener) {
	for {
		client, err := from.Accept()
		if err != nil {
			if !errors.Is(err, net.ErrClosed) {
				p.t.Errorf("redistest: the proxy accepts no more: %v", err)
			}
			return
		}
		l := &link{client: client, done: make(chan struct{})}
		l.ctx, l.cut = context.WithCancel(p.t.Context())
		p.mu.Lock()
		refused := p.listener != from
		if !refused {
			p.links[l] = struct{}{}
			p.running.Go(func() { p.carry(l) })
		}
		p.mu.Unlock()
		if refused {
			l.cut()
			_ = client.Close()
		}
	}
}

// link is a client's connection through a proxy.
type link struct {
	client net.Conn
	ctx    context.Context // ends with the connection
	cut    context.CancelFunc
	lost   atomic.Bool   // nothing passes any more
	done   chan struct{} // closed when both ends are closed
}

// chunk is data that was read at once.
type chunk struct {
	data []byte
	due  time.Time // when to forward it
}

// carry owns a link. It connects to the target, starts the goroutines that copy, and closes both sides
// when one of them or the proxy closes.
func (p *Proxy) carry(l *link) {
	defer close(l.done)
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.links, l)
	}()
	defer l.cut()
	defer func() { _ = l.client.Close() }()
	if !p.pass(l, time.Time{}) {
		return
	}
	server, err := (&net.Dialer{Timeout: testproc.Patience}).DialContext(l.ctx, "tcp", p.target)
	if err != nil {
		return
	}
	defer func() { _ = server.Close() }()
	p.connections.Add(1)

	answers := make(chan chunk, 1024) // chunks in flight
	p.running.Go(func() {
		defer l.cut()
		p.ask(l, server)
	})
	p.running.Go(func() {
		defer close(answers)
		p.receive(l, server, answers)
	})
	p.running.Go(func() {
		defer l.cut()
		p.answer(l, answers)
	})
	<-l.ctx.Done()
}

// ask copies from the client to the server.
func (p *Proxy) ask(l *link, server net.Conn) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := l.client.Read(buffer)
		if err != nil || !p.pass(l, time.Time{}) {
			return
		}
		p.up.Add(int64(n)) // first, so that a question is counted before its answer
		if _, err := server.Write(buffer[:n]); err != nil {
			return
		}
	}
}

// receive reads what the server sends until the end.
func (p *Proxy) receive(l *link, server net.Conn, answers chan<- chunk) {
	for {
		buffer := make([]byte, 4<<10)
		n, err := server.Read(buffer)
		if err != nil {
			return
		}
		select {
		case answers <- chunk{buffer[:n], time.Now().Add(time.Duration(p.latency.Load()))}:
		case <-l.ctx.Done():
			return
		}
	}
}

// answer writes chunks to the client, each when it is due.
func (p *Proxy) answer(l *link, answers <-chan chunk) {
	for c := range answers {
		if !p.pass(l, c.due) {
			return
		}
		p.down.Add(int64(len(c.data)))
		if _, err := l.client.Write(c.data); err != nil {
			return
		}
	}
	if l.lost.Load() { // the client must not notice the server's end
		<-l.ctx.Done()
	}
}

// pass waits until data with that due time may pass. It returns false if the data never may.
func (p *Proxy) pass(l *link, due time.Time) bool {
	ctx := l.ctx
	if wait := time.Until(due); wait > 0 {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
	}
	p.mu.Lock()
	gate := p.gate
	p.mu.Unlock()
	select {
	case <-gate:
	case <-ctx.Done():
	}
	if l.lost.Load() {
		<-ctx.Done()
	}
	return ctx.Err() == nil
}
