// SPDX-License-Identifier: MIT

package redisstore

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/diana-limiter/diana/internal/redisfault"
	"github.com/diana-limiter/diana/internal/redistest"
	"github.com/diana-limiter/diana/internal/testproc"
	"github.com/diana-limiter/diana/limit"
)

// watched is a Store and its reports about Redis.
type watched struct {
	*testing.T
	*Store
	counters any
	ups      atomic.Int64 // how often Redis became reachable
	forgot   atomic.Int64 // how often it had lost its memory
	calls    atomic.Int64

	mu   sync.Mutex
	told []error // why it was unreachable, each time
}

func (w *watched) reasons() []error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.told
}

func watch(t *testing.T, o Options) *watched {
	t.Helper()
	w := &watched{T: t}
	before := false
	o.Changed = func(h Health) {
		if h.Up && !before {
			w.ups.Add(1)
		}
		before = h.Up
		if h.Forgot {
			w.forgot.Add(1)
		}
		if h.Reason != nil {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.told = append(w.told, h.Reason)
		}
	}
	o.Observed = func(time.Duration) { w.calls.Add(1) }
	if o.Timeout == 0 {
		o.Timeout = 10 * time.Second
	}
	var err error
	if w.Store, err = Open(o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	w.counters = w.at(t, limit.TokenBucket(), limit.Limit{N: 1_000_000, Unit: time.Hour})
	testproc.Eventually(t, w.Up)
	return w
}

func (w *watched) take() error {
	_, err := w.Take(context.Background(), 0, []limit.Charge{{Counters: w.counters, Key: []byte("x"), Cost: 1}})
	return err
}

// If Redis answers anything but a decision, requests work without it from the first such answer on. Redis
// does not count as healthy before that ends.
func TestFaults(t *testing.T) {
	t.Parallel()
	busy := func(r *redistest.Server) {
		r.Must("CONFIG", "SET", "busy-reply-threshold", "50")
		go func() { _, _ = r.Do("EVAL", "while true do end", "0") }()
	}
	loading := func(r *redistest.Server) {
		r.Must("DEBUG", "POPULATE", "200000")
		r.Must("CONFIG", "SET", "key-load-delay", "1000") // microseconds for each key
		r.Must("CONFIG", "SET", "loading-process-events-interval-bytes", "1024")
		go func() { _, _ = r.Do("DEBUG", "RELOAD") }()
	}
	set := func(args ...string) func(*redistest.Server) {
		return func(r *redistest.Server) { r.Must(args...) }
	}
	for kind, fault := range map[string]struct{ harm, heal func(*redistest.Server) }{
		"oom":        {set("CONFIG", "SET", "maxmemory", "1"), set("CONFIG", "SET", "maxmemory", "0")},
		"readonly":   {set("REPLICAOF", "127.0.0.1", "1"), set("REPLICAOF", "NO", "ONE")},
		"noperm":     {set("ACL", "SETUSER", "default", "-evalsha", "-eval"), set("ACL", "SETUSER", "default", "+@all")},
		"busy":       {busy, set("SCRIPT", "KILL")},
		"loading":    {loading, set("CONFIG", "SET", "key-load-delay", "0")},
		"timeout":    {(*redistest.Server).Freeze, (*redistest.Server).Thaw},
		"connection": {(*redistest.Server).Kill, (*redistest.Server).Restart},
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			r := redistest.Start(t)
			w := watch(t, Options{URL: r.URL()})
			testproc.Eventually(t, func() bool { return w.take() == nil })
			told := len(w.reasons())
			fault.harm(r)
			var err error
			testproc.Eventually(t, func() bool { err = w.take(); return err != nil })
			if !errors.Is(err, ErrUnavailable) {
				t.Errorf("the first request got %v", err)
			}
			// The request or the probe, whichever failed first, has reported the reason.
			testproc.Eventually(t, func() bool { return len(w.reasons()) > told })
			for _, err := range []error{w.reasons()[told], w.take()} {
				if !errors.Is(err, ErrUnavailable) || redisfault.Kind(err) != kind && redisfault.Kind(err) != "timeout" {
					t.Errorf("out of reach because %v, of kind %q", err, redisfault.Kind(err))
				}
			}
			before, ups := w.calls.Load(), w.ups.Load()
			testproc.Eventually(t, func() bool { return w.calls.Load() >= before+4 || kind == "connection" })
			if n := w.ups.Load() - ups; n != 0 {
				t.Errorf("Redis was found healthy %d times meanwhile", n)
			}
			fault.heal(r)
			testproc.Eventually(t, func() bool { return w.take() == nil })
		})
	}
}

// A slow Redis is not used until it is fast again.
func TestSlow(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t)
	p := redistest.StartProxy(t, r.Addr())
	w := watch(t, Options{URL: "redis://" + p.Addr(), Timeout: 200 * time.Millisecond})
	p.SetLatency(150 * time.Millisecond) // in time, but too slow for a first use
	if err := w.take(); err != nil {
		t.Logf("busy machine: %v", err)
	}
	p.SetLatency(300 * time.Millisecond)
	if err := w.take(); !errors.Is(err, ErrUnavailable) {
		t.Errorf("slower than the timeout: %v", err)
	}
	p.SetLatency(150 * time.Millisecond)
	before, ups := w.calls.Load(), w.ups.Load()
	testproc.Eventually(t, func() bool { return w.calls.Load() >= before+5 })
	if n := w.ups.Load() - ups; n > 0 {
		t.Errorf("Redis was found healthy %d times while it was slow", n)
	}
	p.SetLatency(0)
	testproc.Eventually(t, func() bool { return w.take() == nil })
}

// A distant Redis is used again when the connection was lost, although a new connection takes several
// round trips.
func TestFarReconnects(t *testing.T) {
	t.Parallel()
	p := redistest.StartProxy(t, redistest.Start(t).Addr())
	p.SetLatency(150 * time.Millisecond)
	w := watch(t, Options{URL: "redis://" + p.Addr(), Timeout: 450 * time.Millisecond})
	p.Refuse()
	testproc.Eventually(t, func() bool { return !w.Up() })
	p.Resume()
	testproc.Eventually(t, w.Up)
}

// A gateway that was announced by a clock that was ahead does not count as alive until then.
func TestGatewayOfAnotherClock(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t)
	w := watch(t, Options{URL: r.URL()})
	ahead := time.Now().Add(time.Hour).UnixMicro()
	r.Must("ZADD", "diana:gateways", fmt.Sprint(ahead), "dead")
	if n, err := w.gateway.announce(context.Background(), 0); n.gateways != 1 || err != nil {
		t.Errorf("%d gateways, %v, want 1", n.gateways, err)
	}
}

// Who learns that Redis is reachable can rely on it: the next request is counted there.
func TestReachableWhenReported(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t)
	opened, up, down := make(chan struct{}), make(chan bool, 100), make(chan bool, 100)
	var s *Store
	s, err := Open(Options{URL: r.URL(), Timeout: 10 * time.Second, Changed: func(h Health) {
		<-opened
		if h.Up {
			up <- s.Up()
		} else if h.Reason != nil {
			down <- true
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	close(opened)
	for range 2 { // at the start, and after an outage
		if !<-up {
			t.Error("Redis was reported reachable before requests use it")
		}
		r.Kill()
		<-down
		r.Restart()
	}
}

// A probe that was in flight when a request failed does not show that Redis is healthy, so the store asks
// again. One failure is no outage.
func TestFailureDuringProbe(t *testing.T) {
	t.Parallel()
	var s *Store
	var armed atomic.Bool
	changes := make(chan Health, 100)
	s, err := Open(Options{
		URL: redistest.Start(t).URL(), Timeout: 10 * time.Second,
		Changed: func(h Health) { changes <- h },
		Observed: func(time.Duration) { // all calls are probes
			if armed.CompareAndSwap(true, false) {
				s.link.fail(errors.New("a request has failed"))
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	told := func(up bool) {
		t.Helper()
		testproc.Eventually(t, func() bool {
			select {
			case h := <-changes:
				return h.Up == up
			default:
				return false
			}
		})
	}
	told(true)
	armed.Store(true)
	testproc.Eventually(t, func() bool { return !armed.Load() && s.Up() })
	if len(changes) > 0 {
		t.Errorf("one failure was reported: %+v", <-changes)
	}
}

// Slots are counted again when Redis is reachable again. That includes slots that were released meanwhile,
// whether or not the actor still holds another one.
func TestLeasesAfterOutage(t *testing.T) {
	t.Parallel()
	for held := 2; held <= 3; held++ {
		t.Run(fmt.Sprint(held), func(t *testing.T) {
			t.Parallel()
			r := redistest.Start(t)
			w := watch(t, Options{URL: r.URL()})
			c := w.at(t, limit.Concurrency(), limit.Limit{N: 3})
			enter := func() ([]limit.Charge, bool) {
				t.Helper()
				ch := []limit.Charge{{Counters: c, Key: []byte("x"), Cost: 1}}
				ok, err := w.Take(context.Background(), 0, ch)
				if err != nil {
					t.Fatal(err)
				}
				return ch, ok
			}
			var inside [][]limit.Charge
			for range held {
				ch, ok := enter()
				if !ok {
					t.Fatal("refused while there was a place")
				}
				inside = append(inside, ch)
			}
			r.Freeze()
			if err := w.take(); err == nil {
				t.Fatal("a frozen Redis answered")
			}
			w.Refund(inside[0])
			w.Refund(inside[1])
			r.Thaw()
			testproc.Eventually(t, w.Up)
			for n := held - 1; n <= 4; n++ {
				if _, ok := enter(); ok != (n <= 3) {
					t.Errorf("place %d of 3 after the outage: %v", n, ok)
				}
			}
		})
	}
}

// A slot is free that is released after the renewals of an outage, but before Redis is in use.
func TestLeasesReleasedLate(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t)
	p := redistest.StartProxy(t, r.Addr())
	var s *Store
	var late atomic.Pointer[[]limit.Charge]
	var down atomic.Bool
	s, err := Open(Options{URL: "redis://" + p.Addr(), Timeout: time.Second, Changed: func(h Health) {
		down.Store(!h.Up)
		if h.Gateways == 1 {
			return
		}
		ch := late.Swap(nil) // the last report before requests use Redis again
		if ch == nil {
			return
		}
		s.Refund(*ch)
		for lost := 0; lost == 0; time.Sleep(time.Millisecond) { // by a call that is not sent
			s.leases.mu.Lock()
			lost = len(s.leases.lost)
			s.leases.mu.Unlock()
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	testproc.Eventually(t, s.Up)
	c := s.at(t, limit.Concurrency(), limit.Limit{N: 2})
	enter := func() ([]limit.Charge, bool) {
		ch := []limit.Charge{{Counters: c, Key: []byte("x"), Cost: 1}}
		ok, err := s.Take(context.Background(), 0, ch)
		return ch, ok && err == nil
	}
	inside, ok := enter()
	if _, second := enter(); !ok || !second {
		t.Fatal("refused while there was a place")
	}
	p.Freeze()
	if _, ok := enter(); ok {
		t.Fatal("a frozen Redis answered")
	}
	late.Store(&inside)
	testproc.Eventually(t, func() bool { return down.Load() })
	watch(t, Options{URL: r.URL()}) // another gateway, of which this one learns now
	p.Resume()
	testproc.Eventually(t, s.Up)
	testproc.Eventually(t, func() bool { _, ok := enter(); return ok })
	if _, ok := enter(); ok {
		t.Error("three places of two")
	}
}

// Redis refuses a call that arrives after the gateway has asked for its fate. So no slot is held that the
// call would have taken, and its debits and refunds are sent again.
func TestLateCall(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t)
	w := watch(t, Options{URL: r.URL()})
	slots, window := w.at(t, limit.Concurrency(), limit.Limit{N: 3}), w.at(t, limit.FixedWindow(), limit.Limit{N: 3, Unit: time.Hour})
	charge := func(c any, n int64) []limit.Charge {
		return []limit.Charge{{Counters: c, Key: []byte("x"), Cost: n}}
	}
	if ok, err := w.Take(context.Background(), 0, charge(slots, 1)); !ok || err != nil {
		t.Fatal(ok, err)
	}
	l := w.batchers[0]
	late := newBatch(l, nil)
	takeIn(late, charge(slots, 1))
	late.debit(&limit.Charge{Counters: window, Key: []byte("x"), Cost: 2, At: w.now()}, nil)
	late.call, late.known, _ = l.receipts.next()
	names := []string{w.keys.counter(l.tag, late.keys[0].hash), w.keys.counter(l.tag, late.keys[1].hash), w.keys.epoch(l.tag), w.keys.receipts(l.tag)}
	told := late.pack()
	ups := w.ups.Load()
	w.link.fail(context.DeadlineExceeded) // because it got no answer
	late.end(context.DeadlineExceeded)
	testproc.Eventually(t, func() bool { return late.is(notCarriedOut) && w.Up() })
	if n := w.ups.Load() - ups; n != 0 {
		t.Errorf("one late call had the store say %d times that Redis is back", n)
	}
	if _, err := w.link.call(context.Background(), w.scripts.script.Load(), names, told); redisfault.Kind(err) != "late" {
		t.Errorf("a call that arrived late: %v, want an error that begins with LATE", err)
	}
	left := func(c any) (n int) {
		for ; ; n++ {
			if ok, err := w.Take(context.Background(), 0, charge(c, 1)); !ok {
				return n
			} else if err != nil {
				t.Fatal(err)
			}
		}
	}
	if n := left(slots); n != 2 {
		t.Errorf("%d of 3 slots are free beside one request, want 2", n)
	}
	if n := left(window); n != 1 {
		t.Errorf("%d of 3 are left after a debit of 2, want 1", n)
	}
}

// is reports whether a failed batch has that fate.
func (b *batch) is(f fate) bool {
	b.batcher.receipts.mu.Lock()
	defer b.batcher.receipts.mu.Unlock()
	return b.fate == f
}

// A call that Redis has carried out, but whose answer is lost, is not repeated.
func TestLostAnswer(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t)
	w := watch(t, Options{URL: r.URL()})
	c := w.at(t, limit.FixedWindow(), limit.Limit{N: 10, Unit: time.Hour})
	l := w.batchers[0]
	lost := newBatch(l, nil)
	lost.debit(&limit.Charge{Counters: c, Key: []byte("x"), Cost: 4, At: w.now()}, nil)
	lost.call, lost.known, _ = l.receipts.next()
	names := []string{w.keys.counter(l.tag, lost.keys[0].hash), w.keys.receipts(l.tag)}
	if _, err := w.link.call(context.Background(), w.scripts.script.Load(), names, lost.pack()); err != nil {
		t.Fatal(err)
	}
	lost.end(context.DeadlineExceeded)
	allowed := []limit.Charge{{Counters: c, Key: []byte("x"), Cost: 1, Ticket: lost}} // by the caller, after the failure
	w.Debit(0, allowed)
	w.link.fail(context.DeadlineExceeded)
	testproc.Eventually(t, func() bool { return lost.is(carriedOut) && w.Up() })
	ch := []limit.Charge{{Counters: c, Key: []byte("x"), Cost: 1}}
	if ok, err := w.Take(context.Background(), 0, ch); !ok || err != nil || ch[0].Outcome.Remaining != 5 {
		t.Errorf("%v, %v, %+v: want 5 left of 10 after a debit of 4 and a request", ok, err, ch[0].Outcome)
	}
}

// A call can fail just before Redis is taken into use again, so that the watcher does not notice. It asks
// for the receipt at the next heartbeat.
func TestUnnoticedFailure(t *testing.T) {
	t.Parallel()
	w := watch(t, Options{URL: redistest.Start(t).URL()})
	lost := newBatch(w.batchers[0], nil)
	lost.born = time.Now()
	lost.call, _, _ = w.batchers[0].receipts.next()
	lost.end(context.DeadlineExceeded)
	testproc.Eventually(t, func() bool { return lost.is(notCarriedOut) && w.Up() })
}

// An answer that comes late says nothing about a call, because it can be that of a master that was replaced while it hung.
func TestLateReceipts(t *testing.T) {
	t.Parallel()
	p := redistest.StartProxy(t, redistest.Start(t).Addr())
	w := watch(t, Options{URL: "redis://" + p.Addr(), Timeout: 50 * time.Millisecond})
	lost := newBatch(w.batchers[0], nil)
	lost.born = time.Now()
	lost.call, _, _ = w.batchers[0].receipts.next()
	p.SetLatency(300 * time.Millisecond)
	w.link.fail(context.DeadlineExceeded)
	lost.end(context.DeadlineExceeded)
	testproc.Eventually(t, func() bool { return len(w.reasons()) > 0 }) // from now on, questions wait for a second
	asked := w.calls.Load()
	testproc.Eventually(t, func() bool { return w.calls.Load() > asked+1 })
	if !lost.is(unknown) {
		t.Error("a late answer has concluded a call")
	}
	p.SetLatency(0)
	testproc.Eventually(t, func() bool { return lost.is(notCarriedOut) && w.Up() })
}

// A Redis that has lost its memory says so to the first call that changes something. The gateway then
// renews the slots that it holds, and reports the loss once.
func TestForgotten(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t)
	w := watch(t, Options{URL: r.URL()})
	c := w.at(t, limit.Concurrency(), limit.Limit{N: 3})
	enter := func() (bool, error) {
		return w.Take(context.Background(), 0, []limit.Charge{{Counters: c, Key: []byte("x"), Cost: 1}})
	}
	for range 2 {
		if ok, err := enter(); !ok || err != nil {
			t.Fatal(ok, err)
		}
	}
	r.Must("FLUSHALL")
	if _, err := enter(); !errors.Is(err, ErrUnavailable) {
		t.Errorf("a Redis that has forgotten: %v, want ErrUnavailable", err)
	}
	testproc.Eventually(t, w.Up)
	for want := range 2 {
		if ok, err := enter(); ok != (want == 0) || err != nil {
			t.Errorf("slot %d of 3: %v, %v", want+3, ok, err)
		}
	}
	if n := w.forgot.Load(); n != 1 {
		t.Errorf("the loss was reported %d times, want once", n)
	}
}

// A gateway that has not made a call yet also notices that Redis has lost its memory, by its fence.
func TestForgottenBeforeTheFirstCall(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t)
	var forgot atomic.Bool
	s, err := Open(Options{URL: r.URL(), Changed: func(h Health) {
		if h.Forgot {
			forgot.Store(true)
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	testproc.Eventually(t, s.Up)
	if forgot.Load() {
		t.Error("a gateway that has just started does not believe Redis")
	}
	r.Kill()
	testproc.Eventually(t, func() bool { return !s.Up() })
	r.Restart()
	testproc.Eventually(t, forgot.Load)
}

// Gateways that have ended without releasing their slots leave no permanent data.
func TestLeasesOfTheDead(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t)
	w := watch(t, Options{URL: r.URL()})
	c := w.at(t, limit.Concurrency(), limit.Limit{N: 1000})
	name := w.keys.counter(w.batchers[0].tag, hashOf(&limit.Charge{Counters: c, Key: []byte("x")}))
	value := []byte("C")
	for i := range 100 {
		for _, v := range []float64{float64(i), 1, 1} { // gateway, slots, and end of the lease
			value = binary.LittleEndian.AppendUint64(value, math.Float64bits(v))
		}
	}
	r.Must("SET", name, string(value))
	ch := []limit.Charge{{Counters: c, Key: []byte("x"), Cost: 1}}
	if ok, err := w.Take(context.Background(), 0, ch); !ok || err != nil || ch[0].Outcome.Remaining != 999 {
		t.Fatal(ok, err, ch[0].Outcome)
	}
	if n, _ := r.Must("STRLEN", name).(int64); n > 100 {
		t.Errorf("the value has %d bytes, for one gateway alive", n)
	}
}

// A gateway with many slots keeps them by calls that are short, because each renews only a few.
func TestManyLeases(t *testing.T) {
	t.Parallel()
	const held = 10 * renewAtOnce
	w := watch(t, Options{URL: redistest.Start(t).URL()})
	c := w.at(t, limit.Concurrency(), limit.Limit{N: 3}).(*counters)
	w.leases.mu.Lock()
	for i := range held {
		w.leases.held[actor{c.name, fmt.Sprint(i)}] = slots{c, 1}
	}
	w.leases.mu.Unlock()
	before := w.calls.Load()
	if err := w.leases.renewAll(false); err != nil {
		t.Error(err)
	}
	if n := w.calls.Load() - before; n < held/renewAtOnce {
		t.Errorf("%d slots in %d calls, want %d at most in each", held, n, renewAtOnce)
	}
}

// When a master is lost, requests go to the master that Sentinel names.
func TestSentinelFailover(t *testing.T) {
	t.Parallel()
	for name, harm := range map[string]func(*redistest.Server){
		"killed": (*redistest.Server).Kill, "frozen": (*redistest.Server).Freeze,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sentinel := redistest.StartSentinel(t)
			w := watch(t, Options{Addresses: sentinel.Addrs(), Master: sentinel.MasterName, Timeout: time.Second})
			if err := w.take(); err != nil {
				t.Fatal(err)
			}
			dead := sentinel.Master()
			harm(dead)
			sentinel.WaitFailover(dead)
			testproc.Eventually(t, func() bool { return w.take() == nil })
		})
	}
}

// Redis is unreachable for a gateway that is cut off, and the other gateways continue.
func TestPartition(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t)
	p := redistest.StartProxy(t, r.Addr())
	far, near := watch(t, Options{URL: "redis://" + p.Addr(), Timeout: time.Second}), watch(t, Options{URL: r.URL()})
	p.Freeze()
	if err := far.take(); !errors.Is(err, ErrUnavailable) {
		t.Errorf("cut off: %v", err)
	}
	if err := near.take(); err != nil || !near.Up() {
		t.Errorf("not cut off: %v", err)
	}
	p.Resume()
	testproc.Eventually(t, func() bool { return far.take() == nil })
}

// If another server answers at the address of Redis, Redis counts as unreachable.
func TestNotRedis(t *testing.T) {
	t.Parallel()
	for name, say := range map[string]struct{ first, then string }{
		"greets":       {first: "+OK ready\r\n", then: "-ERR what?\r\n"},
		"greets twice": {first: "+OK\r\n+OK\r\n", then: "+OK\r\n"},
		"web server":   {then: "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"},
		"promises":     {then: "$999999999999\r\n"},
		"agrees":       {then: "+PONG\r\n+PONG\r\n+PONG\r\n"},
		"echo":         {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = l.Close() })
			go func() {
				for {
					c, err := l.Accept()
					if err != nil {
						return
					}
					go func() {
						defer c.Close()
						_, _ = io.WriteString(c, say.first)
						if say.then == "" {
							_, _ = io.Copy(c, c)
							return
						}
						for b := make([]byte, 1000); ; {
							if _, err := c.Read(b); err != nil {
								return
							}
							_, _ = io.WriteString(c, say.then)
						}
					}()
				}
			}()
			reasons := make(chan error, 10)
			s, err := Open(Options{
				URL: "redis://" + l.Addr().String(), Timeout: 200 * time.Millisecond,
				Changed: func(h Health) { reasons <- h.Reason },
			})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			if reason := <-reasons; !errors.Is(reason, ErrUnavailable) {
				t.Errorf("out of reach because %v", reason)
			}
			time.Sleep(500 * time.Millisecond)
			if s.Up() {
				t.Error("it is taken for Redis")
			}
		})
	}
}

// A request never waits for a new connection: a server that hangs may answer the client's first command
// later than a request may wait.
func TestHangs(t *testing.T) {
	t.Parallel()
	late := 0
	const tries, timeout = 8, 50 * time.Millisecond
	for i := range tries {
		r := redistest.Start(t)
		w := watch(t, Options{URL: r.URL(), Timeout: timeout})
		r.Freeze()
		begin := time.Now()
		slept := make(chan time.Duration, 1) // the real duration on this machine
		go func() {
			time.Sleep(timeout)
			slept <- time.Since(begin)
		}()
		ch := []limit.Charge{{Counters: w.counters, Key: fmt.Append(nil, i), Cost: 1}}
		if _, err := w.Take(context.Background(), 0, ch); !errors.Is(err, ErrUnavailable) {
			t.Errorf("%v from a Redis that hangs", err)
		}
		if took := time.Since(begin); took > <-slept+connectTimeout/2 {
			late++ // a busy machine can be slow, but not always
		}
	}
	if late > 1 {
		t.Errorf("%d of %d requests waited for about a second, want 50 ms", late, tries)
	}
}

// arising is a meter that calls a function when the store asks what a debt still counts.
type arising struct {
	limit.Debtor
	asked func()
}

func (a arising) Used(s limit.State, now int64) int64 {
	a.asked()
	return a.Debtor.Used(s, now)
}

// Requests are allowed without Redis until it is in use again, and each is a new debt.
func TestReturnWhileDebtsArise(t *testing.T) {
	t.Parallel()
	var s *Store
	var c any
	actors := 0 // of debts
	debit := func() {
		actors++
		s.Debit(0, []limit.Charge{{Counters: c, Key: fmt.Append(nil, actors), Cost: 1}})
	}
	s = openBy(t, Options{URL: redistest.Start(t).URL()})
	c = s.at(t, limit.TokenBucket(), limit.Limit{N: 1, Unit: time.Hour})
	c.(*counters).meter = arising{c.(*counters).meter.(limit.Debtor), func() {
		if !s.Up() {
			debit() // of a request that arrives while this one is debited
		}
	}}
	s.link.up.Store(false) // so that the watcher learns of it only after the debt
	debit()
	s.link.down <- errors.New("a call has failed")
	testproc.Eventually(t, s.Up)
	testproc.Eventually(t, func() bool { return s.debts.len() == 0 })
	if ok, err := s.Take(t.Context(), 0, []limit.Charge{{Counters: c, Key: []byte("1"), Cost: 1}}); ok || err != nil {
		t.Errorf("allowed %v, %v; want that the only token was debited", ok, err)
	}
}

// All batchers of a Cluster share one client.
func TestConnectOnce(t *testing.T) {
	t.Parallel()
	s := openBy(t, Options{URL: redistest.Start(t).URL()})
	l := &link{option: s.link.option}
	t.Cleanup(l.close)
	clients := make(chan rueidis.Client, 32)
	for range cap(clients) {
		go func() {
			c, err := l.connect()
			if err != nil {
				t.Error(err)
			}
			clients <- c
		}()
	}
	first := <-clients
	for range cap(clients) - 1 {
		if c := <-clients; c != first {
			t.Fatal("a second client was made")
		}
	}
}
