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
// In a Cluster there are as many lanes of this kind as there are tags in keys: see
// cluster.go. What Redis has refused for a known time is not asked again, see
// refusals.go.
//
// # Keys
//
// A key is the store's prefix and a hash of the counters' name and the actor: an identity
// can be a secret, and as long as it likes.
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
	"hash/maphash"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
	"unique"

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
	Addresses []string // host:port: of Sentinels, with Master, or of nodes of a Cluster
	Master    string   // the name of the master that the Sentinels watch; empty: Addresses are a Cluster's

	// Credentials is asked at each new connection; nil: what the URL says, if anything.
	// SentinelCredentials are those of the Sentinels themselves; nil: none.
	Credentials         func() (username, password string, err error)
	SentinelCredentials func() (username, password string, err error)

	TLS *tls.Config // nil: none, unless the URL begins with rediss

	Timeout time.Duration // most that a request waits; 0 means 50 ms
	Prefix  string        // of every key; empty means "diana"

	// Gateways is how many were last seen alive by an earlier Store, this one included. Health
	// tells that until Redis has been asked. 0 means that there was none.
	Gateways int

	// Changed is called when Redis comes within reach or out of it, with the reason,
	// and when the number of gateways changes. It is called by one goroutine. May be nil.
	Changed func(Health)

	// Observed is called after each call to Redis with how long it took, by any
	// goroutine. May be nil.
	Observed func(time.Duration)

	// CallerClock has requests judged at the moment that Take is given, and not by Redis'
	// clock. It is for tests that make one request at a time, such as storetest.Agree.
	CallerClock bool
}

// Health is how things stand between a Store and Redis.
type Health struct {
	Up       bool
	Reason   error // why it is not up
	Gateways int   // last seen alive, this one included; at least 1
}

// Store is a limit.Store in Redis. It starts goroutines, which Close ends.
type Store struct {
	options Options
	timeout time.Duration
	prefix  string
	gateway int64 // tells this one from others
	link    link
	lanes   []*lane // one, but for a Cluster
	refused refusals
	leases  leases

	mu      sync.Mutex             // guards scripts, and changes of script
	scripts []string               // sources, by number
	script  atomic.Pointer[script] // of them all

	leaving atomic.Bool // see Leave

	close sync.Once
	stop  chan struct{} // closed by Close
	done  sync.WaitGroup
}

// counters is the limit.Counters of this store.
type counters struct {
	name   unique.Handle[string]
	sum    [sha256.Size]byte // of the name
	script int               // in Store.scripts, from 1
	args   []int64
	salt   uint64 // of the name; spreads the actors of several counters apart
	held   bool   // places, on which this gateway has a lease

	// What tells equal requests apart: each has a turn, in a queue or under a limit.Reserver,
	// or is judged by itself if it costs more than 1.
	queue, reserver, apart bool
}

// Open returns a Store. It does not wait for Redis: until that answers, Take fails at
// once. The error is for Options that are wrong.
func Open(o Options) (*Store, error) {
	s := &Store{options: o, timeout: o.Timeout, prefix: o.Prefix, gateway: rand.Int64N(1 << 53), stop: make(chan struct{})}
	if err := s.link.configure(o); err != nil {
		return nil, err
	}
	if s.timeout == 0 {
		s.timeout = 50 * time.Millisecond
	}
	if s.prefix == "" {
		s.prefix = "diana"
	}
	s.refused.seed = maphash.MakeSeed()
	s.leases.rename()
	s.leases.former.Store(s.leases.name.Load())
	s.leases.held, s.leases.lost = map[actor]places{}, map[actor]*counters{}
	s.script.Store(newScript(nil))
	for _, tag := range s.tags() {
		s.lanes = append(s.lanes, newLane(s, tag))
	}
	s.done.Go(s.watch)
	return s, nil
}

// Close ends the store's goroutines. Requests that wait get ErrUnavailable, and so do
// all that come later.
func (s *Store) Close() {
	s.close.Do(func() { close(s.stop) })
	for _, l := range s.lanes {
		l.close()
	}
	s.done.Wait()
	s.link.close()
}

// Leave is Close when nobody holds a place any more, or when ctx ends. Until then the places
// are counted, and can be given back; those of a closed Store are free for others when its
// lease has ended, whoever is inside. It is for a Store that another has taken the place of,
// and counts no more among the gateways.
func (s *Store) Leave(ctx context.Context) {
	defer s.Close()
	s.leaving.Store(true)
	tick := time.NewTicker(leaveEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		if !s.leases.any() {
			return
		}
	}
}

// leaveEvery is how often a Store that is left looks whether it is still needed. It has the
// first of these for what has just been given back.
const leaveEvery = time.Second

// Up reports whether Redis is within reach: whether it is worth while to Take.
func (s *Store) Up() bool { return s.link.up.Load() }

// Counters implements limit.Store. It fails for a Meter that is not limit.Scripted.
func (s *Store) Counters(name string, m limit.Meter) (limit.Counters, error) {
	scripted, ok := m.(limit.Scripted)
	if !ok {
		return nil, fmt.Errorf("redisstore: %s: the algorithm has no script, it can only be local", name)
	}
	source := scripted.Script()
	_, queue := m.(limit.Queue)
	_, reserver := m.(limit.Reserver)
	return &counters{
		name: unique.Make(name), sum: sha256.Sum256([]byte(name)),
		script: s.number(source.Source), args: source.Args, salt: maphash.String(s.refused.seed, name),
		held: source.Leased, queue: queue, reserver: reserver, apart: source.Apart,
	}, nil
}

// number returns the number of a source, which becomes part of the script.
func (s *Store) number(source string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, have := range s.scripts {
		if have == source {
			return i + 1
		}
	}
	s.scripts = append(s.scripts, source)
	s.script.Store(newScript(s.scripts))
	return len(s.scripts)
}

// Retire implements limit.Store. What is in Redis goes by itself, with time.
func (s *Store) Retire(limit.Counters) {}

// key returns the name in Redis of an actor's counter: 128 bits of a hash, which no two
// actors share, and nobody can choose.
func (s *Store) key(l *lane, k key) string {
	var room [256]byte
	sum := sha256.Sum256(append(append(room[:0], k.c.sum[:]...), k.key...))
	b := append(room[:0], s.prefix...)
	b = append(append(b, ':'), l.tag...)
	return string(base64.RawURLEncoding.AppendEncode(b, sum[:16]))
}

// Take implements limit.Store. The error is ErrUnavailable, or ctx's. If ctx ends while the
// request waits for a call of others, it leaves, and the charges are given back as soon as
// Redis has answered. The call that it makes itself it sees to the end.
func (s *Store) Take(ctx context.Context, now int64, charges []limit.Charge) (bool, error) {
	if !s.Up() {
		return false, ErrUnavailable
	}
	if s.refused.certain(now, charges) {
		return false, nil
	}
	parts := s.part(charges)
	if parts != nil {
		return s.takeParts(ctx, now, charges, parts)
	}
	p, err := s.lane(charges).submit(now, charges, true)
	if err != nil {
		return false, err
	}
	if err := p.wait(ctx); err != nil {
		s.giveLater(p, charges)
		return false, err
	}
	return s.settle(p, now, charges)
}

// settle fills in what has become of a request.
func (s *Store) settle(p place, now int64, charges []limit.Charge) (bool, error) {
	allowed, err := p.outcome(charges)
	switch {
	case err != nil:
	case allowed:
		s.leases.hold(charges, 1)
	case !s.options.CallerClock:
		s.refused.remember(now, p.given, charges)
	}
	return allowed, err
}

// giveLater gives back what a request has been granted that did not wait for it.
func (s *Store) giveLater(p place, charges []limit.Charge) {
	own := append([]limit.Charge(nil), charges...)
	for i := range own { // the caller's memory may become another's
		own[i].Key = append([]byte(nil), own[i].Key...)
	}
	go func() { // ends with the batch, which ends in time
		<-p.done
		if allowed, err := p.outcome(own); err == nil && allowed {
			s.leases.hold(own, 1)
			s.Give(own)
		}
	}()
}

// Give implements limit.Store. It does not wait for Redis.
func (s *Store) Give(charges []limit.Charge) {
	s.leases.hold(charges, -1)
	for i := range charges {
		if ch := &charges[i]; ch.Outcome.Allowed {
			s.lane(charges[i:]).add(func(b *batch) { b.give(ch) })
			s.refused.forget(ch) // now that whoever asks from here on is judged after it
		}
	}
}

// Await implements limit.Store. Turns are reserved in Redis: who leaves early gives its own
// back if nobody has come after. Otherwise it passes unused, as those behind, in whichever
// gateway, wait for the turns that they were told, and no two may go on at one.
func (s *Store) Await(ctx context.Context, charges []limit.Charge) error {
	var wait time.Duration
	for i := range charges {
		if o := charges[i].Outcome; o.Allowed && !charges[i].Shadow && !charges[i].Counters.(*counters).reserver {
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
