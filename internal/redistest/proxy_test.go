// SPDX-License-Identifier: MIT

package redistest_test

import (
	"errors"
	"net"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/diana-limiter/diana/internal/redistest"
	"github.com/diana-limiter/diana/internal/testproc"
)

func TestProxy(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	p := redistest.StartProxy(t, s.Addr())
	conn := dial(t, p.Addr())
	want(t, send(t, conn, "INCR n\r\n"), ":1\r\n")
	if got, want := p.Traffic(), (redistest.Traffic{Connections: 1, Up: 8, Down: 4}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}

	// The question arrives at once, and only its answer is late. Two answers are late together.
	const latency = 300 * time.Millisecond
	p.SetLatency(latency)
	begin := time.Now()
	one, other := send(t, conn, "INCR n\r\n"), send(t, dial(t, p.Addr()), "INCR m\r\n")
	testproc.Eventually(t, func() bool { return s.Must("GET", "n") == "2" })
	want(t, one, ":2\r\n")
	want(t, other, ":1\r\n")
	if took := time.Since(begin); took < latency {
		t.Errorf("answered in %v", took)
	}
	p.SetLatency(0)

	p.Freeze()
	p.Freeze()
	old, fresh := send(t, conn, "INCR n\r\n"), send(t, dial(t, p.Addr()), "INCR m\r\n")
	wantSilence(t, old)
	wantSilence(t, fresh)
	if n, m := s.Must("GET", "n"), s.Must("GET", "m"); n != "2" || m != "1" {
		t.Errorf("it went through: n is %v, m is %v", n, m)
	}
	p.Resume()
	want(t, old, ":3\r\n")
	want(t, fresh, ":2\r\n")

	p.Refuse()
	p.Refuse()
	want(t, send(t, conn, "INCR n\r\n"), "")
	if _, err := net.Dial("tcp", p.Addr()); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("a connection that should be refused: %v", err)
	}
	p.Resume()
	want(t, send(t, dial(t, p.Addr()), "INCR n\r\n"), ":4\r\n")

	// A connection that is lost does not say so.
	silent := dial(t, p.Addr())
	want(t, send(t, silent, "PING\r\n"), "+PONG\r\n")
	p.Lose()
	wantSilence(t, send(t, silent, "INCR n\r\n"))
	want(t, send(t, dial(t, p.Addr()), "STRLEN n\r\n"), ":1\r\n")

	// An answer that is lost, of a question that was not.
	p.SetLatency(time.Hour)
	lost := send(t, dial(t, p.Addr()), "INCR n\r\n")
	testproc.Eventually(t, func() bool { return s.Must("GET", "n") == "5" })
	p.Refuse()
	want(t, lost, "")
	p.SetLatency(0)
	p.Resume()

	// The server's end is the client's.
	last := dial(t, p.Addr())
	want(t, send(t, last, "PING\r\n"), "+PONG\r\n")
	s.Kill()
	if _, err := last.Read(make([]byte, 1)); err == nil {
		t.Error("the connection outlives the server")
	}
}

// Not parallel, because it counts what the whole program has.
func TestLeavesNothing(t *testing.T) {
	before := runtime.NumGoroutine()
	t.Run("used", func(t *testing.T) {
		s := redistest.Start(t)
		frozen := redistest.StartProxy(t, s.Addr())
		slow := redistest.StartProxy(t, s.Addr())
		slow.SetLatency(time.Hour)
		for range 10 {
			send(t, dial(t, slow.Addr()), "PING\r\n")
			conn := dial(t, frozen.Addr())
			want(t, send(t, conn, "PING\r\n"), "+PONG\r\n")
		}
		frozen.Freeze()
		for range 10 {
			send(t, dial(t, frozen.Addr()), "PING\r\n")
		}
	})
	var stacks []byte
	defer func() {
		if t.Failed() {
			t.Logf("%s", stacks)
		}
	}()
	testproc.Eventually(t, func() bool {
		stacks = make([]byte, 1<<20)
		stacks = stacks[:runtime.Stack(stacks, true)]
		return !strings.Contains(string(stacks), "redistest.(*") && runtime.NumGoroutine() <= before
	})
}
