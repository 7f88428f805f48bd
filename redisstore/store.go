// SPDX-License-Identifier: MIT

// Package redisstore counts in Redis, for all gateways together.
//
// # Gathering
//
// One call to Redis is under way at a time. Requests that arrive meanwhile are
// gathered in a batch, and go together in the next call; those that charge the same
// counters by the same costs stand in it once, with their number. The script decides
// the batch in order, each request all or nothing, and grants of n equal requests as
// many as there is room for. So the result is that of one call each, and a request that
// comes alone waits for nothing.
//
//	arrive   a  b b c b     a   c c c
//	call     |--a--|        |
//	               |--3b,c--|
//	                        |--a,3c--|
//
// # Keys
//
// A key is the store's prefix, a hash of the counters' name and one of the actor: an
// identity can be a secret, and as long as it likes.
//
// Redis' clock decides. Every key has a time to live, rounded up.
package redisstore

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/diana-limiter/diana/limit"
)

// ErrUnavailable says that Redis could not be asked, or has not answered in time.
// Nothing is charged, as far as is known.
var ErrUnavailable = errors.New("redisstore: Redis is out of reach")

// errForeign says that a key of ours holds a value that is not ours.
var errForeign = fmt.Errorf("%w: a key holds a foreign value", ErrUnavailable)

// Options configure a Store.
type Options struct {
	URL       string   // redis:// or rediss://, one server; or
	Addresses []string // host:port: of Sentinels, with Master
	Master    string   // the name of the master that the Sentinels watch

	Credentials         func() (username, password string, err error) // asked at each new connection; nil: what the URL says
	SentinelCredentials func() (username, password string, err error) // those of the Sentinels; nil: none
	TLS                 *tls.Config                                   // of servers and Sentinels; nil: none, unless the URL begins with rediss

	Timeout time.Duration // most that a request waits; 0 means 50 ms
	Prefix  string        // of every key; empty means "diana"

	// Changed is called when Redis comes within reach or out of it, with the reason,
	// and when the number of gateways changes. It is called by one goroutine. May be nil.
	Changed func(Health)

	// Observed is called after each call to Redis with how long it took. May be nil.
	Observed func(time.Duration)
}

// Health is how things stand between a Store and Redis.
type Health struct {
	Up       bool
	Reason   error // why it is not up
	Gateways int   // last seen alive, this one included; at least 1
}

// Store is a limit.Store in Redis. It starts two goroutines, which Close ends.
type Store struct {
	options Options
	timeout time.Duration
	prefix  string
	gateway int64 // tells this one from others
	link    link

	callerClock bool  // tests decide what time it is
	moment      int64 // which they said last; guarded by mu

	mu      sync.Mutex // guards the rest
	scripts []string   // sources, by number
	script  script     // of them all
	next    *batch     // of requests that wait for the call under way to end
	held    map[heldKey]int64
	closed  bool

	wake chan struct{} // gets a value when next is no longer empty
	stop chan struct{} // closed by Close
	done sync.WaitGroup
}

// counters is the limit.Counters of this store.
type counters struct {
	script int // in Store.scripts, from 1
	args   []int64
	name   [8]byte // hash of the name
	single bool    // equal requests are not the same: each has its own wait
	held   bool    // places, on which this gateway has a lease
}

// heldKey is an actor's places that this gateway holds.
type heldKey struct {
	c     *counters
	actor string
}

// Open returns a Store. It does not wait for Redis: until that answers, Take fails at
// once. The error is for Options that are wrong.
func Open(o Options) (*Store, error) {
	s := &Store{
		options: o, timeout: o.Timeout, prefix: o.Prefix, gateway: rand.Int64N(1 << 53),
		held: map[heldKey]int64{},
		wake: make(chan struct{}, 1), stop: make(chan struct{}),
	}
	if err := s.link.configure(o); err != nil {
		return nil, err
	}
	if s.timeout == 0 {
		s.timeout = 50 * time.Millisecond
	}
	if s.prefix == "" {
		s.prefix = "diana"
	}
	s.next = newBatch()
	s.script = newScript(nil)
	s.done.Go(s.work)
	s.done.Go(s.watch)
	return s, nil
}

// Close ends the store's goroutines. Requests that wait get ErrUnavailable, and so do
// all that come later.
func (s *Store) Close() {
	s.mu.Lock()
	if !s.closed {
		s.closed = true
		close(s.wake)
		close(s.stop)
	}
	s.mu.Unlock()
	s.done.Wait()
	s.link.close()
}

// Up reports whether Redis is within reach: whether it is worth while to Take.
func (s *Store) Up() bool { return s.link.up.Load() }

// Counters implements limit.Store. It fails for a Meter that is not limit.Scripted.
func (s *Store) Counters(name string, m limit.Meter) (limit.Counters, error) {
	scripted, ok := m.(limit.Scripted)
	if !ok {
		return nil, fmt.Errorf("redisstore: %s: the algorithm has no script, it can only be local", name)
	}
	source := scripted.Script()
	c := &counters{args: source.Args}
	sum := sha256.Sum256([]byte(name))
	copy(c.name[:], sum[:])
	_, c.single = m.(limit.Queue)
	c.held = source.Leased

	s.mu.Lock()
	defer s.mu.Unlock()
	for i, have := range s.scripts {
		if have == source.Source {
			c.script = i + 1
			return c, nil
		}
	}
	s.scripts = append(s.scripts, source.Source)
	s.script = newScript(s.scripts)
	c.script = len(s.scripts)
	return c, nil
}

// Retire implements limit.Store. What is in Redis goes by itself, with time.
func (s *Store) Retire(limit.Counters) {}

// key returns the name in Redis of an actor's counter.
func (s *Store) key(c *counters, actor []byte) string {
	h := sha256.New()
	h.Write(c.name[:])
	h.Write(actor)
	var sum [sha256.Size]byte
	h.Sum(sum[:0])
	b := make([]byte, 0, len(s.prefix)+40)
	b = append(append(b, s.prefix...), ':')
	b = base64.RawURLEncoding.AppendEncode(b, c.name[:])
	b = append(b, ':')
	return string(base64.RawURLEncoding.AppendEncode(b, sum[:16]))
}

// Take implements limit.Store. The error is ErrUnavailable, or ctx's. If ctx ends while
// the request waits, the charges are given back as soon as Redis has answered.
func (s *Store) Take(ctx context.Context, now int64, charges []limit.Charge) (bool, error) {
	if !s.Up() {
		return false, ErrUnavailable
	}
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return false, ErrUnavailable
	}
	if s.callerClock {
		s.moment = now
	}
	b := s.next
	g, i := b.add(s, charges)
	s.ringLocked()
	s.mu.Unlock()

	select {
	case <-b.done:
	case <-ctx.Done():
		own := append([]limit.Charge(nil), charges...)
		go func() { // ends with the batch, which ends in time
			<-b.done
			if allowed, err := g.outcome(b, i, own); err == nil && allowed {
				s.hold(own, 1)
				s.Give(own)
			}
		}()
		return false, ctx.Err()
	}
	allowed, err := g.outcome(b, i, charges)
	if allowed {
		s.hold(charges, 1)
	}
	return allowed, err
}

// hold counts the places that this gateway holds, or with a sign of -1 no longer holds.
func (s *Store) hold(charges []limit.Charge, sign int64) {
	for i := range charges {
		ch := &charges[i]
		if c := ch.Counters.(*counters); c.held && ch.Outcome.Allowed {
			k := heldKey{c, string(ch.Key)}
			s.mu.Lock()
			if s.held[k] += sign * ch.Cost; s.held[k] <= 0 {
				delete(s.held, k)
			}
			s.mu.Unlock()
		}
	}
}

// Give implements limit.Store. It does not wait for Redis.
func (s *Store) Give(charges []limit.Charge) {
	s.hold(charges, -1)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	for i := range charges {
		if charges[i].Outcome.Allowed {
			s.next.give(s, &charges[i])
		}
	}
	s.ringLocked()
}

// Await implements limit.Store. Turns are reserved in Redis: one that leaves early
// gives its own back, which those who come later can have.
func (s *Store) Await(ctx context.Context, charges []limit.Charge) error {
	var wait time.Duration
	for i := range charges {
		if o := charges[i].Outcome; o.Allowed && !charges[i].Shadow {
			wait = max(wait, time.Duration(o.Wait)*time.Microsecond)
		}
	}
	if wait == 0 {
		return nil
	}
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// ringLocked tells the goroutine that there is something to do. s.mu is held.
func (s *Store) ringLocked() {
	if s.closed {
		return
	}
	select {
	case s.wake <- struct{}{}:
	default: // it knows
	}
}

// work sends one batch after another.
func (s *Store) work() {
	for range s.wake {
		s.mu.Lock()
		b, script := s.next, s.script
		s.next = newBatch()
		b.now = s.moment
		s.mu.Unlock()
		switch {
		case b.empty():
		case s.Up():
			b.send(s, script)
		default: // it has waited for a call that failed, and does not wait for another
			b.err = ErrUnavailable
			close(b.done)
		}
	}
	s.mu.Lock()
	b := s.next
	s.mu.Unlock()
	b.err = ErrUnavailable
	close(b.done)
}
