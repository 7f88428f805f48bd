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
// # Outages
//
// Requests ask Redis only while it answers in time, see health.go. What a gateway allows
// without Redis is debited later: see debts.go, and receipts.go for how a debit is made once.
// Slots of concurrency are held by leases, see leases.go.
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

	// Gateway tells this gateway from others. Stores of one gateway that take each other's
	// place have the same, so that it counts once. 0 means a random number.
	Gateway int64

	// Gateways is how many were last seen alive by an earlier Store, this one included. Health
	// tells that until Redis has been asked. 0 means that there was none.
	Gateways int

	// StillCounts returns how much of n still counts at this moment that was debited to an
	// actor of the counters of that name while Redis was out of reach: tokens drip in, and
	// windows end. May be nil: all of it does. It is called by one goroutine.
	StillCounts func(counters string, key []byte, n int64) int64

	// Changed is called when Redis comes within reach or out of it, with the reason, when
	// it has forgotten, and when the number of gateways changes. It is called by one
	// goroutine. May be nil.
	Changed func(Health)

	// Reset is called when an actor's counter has been reset, by this Store or by another
	// gateway, so that the caller can forget what it keeps of the actor. It is called once for
	// each reset, by any goroutine, and within a second while Redis is within reach. May be nil.
	Reset func(counters string, key []byte)

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

	// Forgot says that Redis does not remember what this Store had counted there: it has
	// restarted empty, or from an old copy.
	Forgot bool
}

// Store is a limit.Store in Redis. It starts goroutines, which Close ends.
type Store struct {
	options Options
	timeout atomic.Int64 // nanoseconds, see SetTimeout
	prefix  string
	gateway int64 // tells this one from others
	id      int64 // tells this Store from others, also of the same gateway
	link    link
	lanes   []*lane // one, but for a Cluster
	refused refusals
	leases  leases
	debts   debts
	turns   turns
	calls   underWay     // calls to Redis
	ahead   atomic.Int64 // microseconds by which Redis' clock is ahead of this process'

	mu      sync.Mutex             // guards scripts, and changes of script
	scripts []string               // sources, by number
	script  atomic.Pointer[script] // of them all

	leaving atomic.Bool // see Leave
	closing atomic.Bool // requests no longer ask

	ready chan struct{} // closed when Redis is within reach for the first time
	once  sync.Once     // closes it
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
	s := &Store{
		options: o, prefix: o.Prefix, gateway: o.Gateway, id: NewGateway(),
		ready: make(chan struct{}), stop: make(chan struct{}),
	}
	if s.options.Timeout == 0 {
		s.options.Timeout = 50 * time.Millisecond
	}
	if err := s.link.configure(s.options); err != nil {
		return nil, err
	}
	s.timeout.Store(int64(s.options.Timeout))
	if s.gateway == 0 {
		s.gateway = NewGateway()
	}
	if s.prefix == "" {
		s.prefix = "diana"
	}
	s.refused.seed = maphash.MakeSeed()
	s.leases.held, s.leases.lost = map[actor]slots{}, map[actor]*counters{}
	s.script.Store(newScript(nil))
	for _, tag := range s.tags() {
		s.lanes = append(s.lanes, newLane(s, tag))
	}
	s.done.Go(s.watch)
	return s, nil
}

// NewGateway returns a random number for Options.Gateway.
func NewGateway() int64 { return 1 + rand.Int64N(1<<53-1) }

// patience is how long a request waits.
func (s *Store) patience() time.Duration { return time.Duration(s.timeout.Load()) }

// SetTimeout changes Options.Timeout of a Store in use. It reports false, and changes nothing,
// if that takes another connection.
func (s *Store) SetTimeout(d time.Duration) bool {
	if writeTimeout(d) != writeTimeout(s.options.Timeout) {
		return false
	}
	s.timeout.Store(int64(d))
	return true
}

// Ready is closed when Redis has answered and the gateways there were counted, for the first
// time.
func (s *Store) Ready() <-chan struct{} { return s.ready }

// flushTime is how long Close waits for what Redis has still to be told.
const flushTime = time.Second

// Close ends the store's goroutines. Requests that wait get ErrUnavailable, and so do all
// later ones. Before that, Close tells Redis what was debited, refunded and released, for at
// most a second; what could not be told is lost.
func (s *Store) Close() {
	s.close.Do(func() {
		s.closing.Store(true)
		s.flush()
		close(s.stop)
	})
	s.link.up.Store(false)
	for _, l := range s.lanes {
		l.close()
	}
	s.done.Wait()
	s.calls.wait(nil)
	s.link.close()
}

// flush tells Redis what it does not know yet, and that this gateway no longer lives.
func (s *Store) flush() {
	if !s.Up() {
		return
	}
	end := time.NewTimer(flushTime)
	defer end.Stop()
	_ = s.tellDebts(time.Now().Add(flushTime), 0) // there is nobody left to tell of an error
	s.calls.wait(end.C)
	if !s.leaving.Load() {
		ctx, cancel := context.WithTimeout(context.Background(), flushTime)
		defer cancel()
		_, _ = s.announce(ctx, 0)
	}
}

// Leave is Close when nobody holds a slot any more, or when ctx ends. Until then the slots
// are counted, and can be released; the slots of a closed Store are free for others when its
// lease has ended. It is for a Store that another one of the same gateway has replaced.
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

// leaveEvery is how often a replaced Store looks whether it is still needed. The first of
// these gives requests the time to release their slots.
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
		script: s.number(source.Source), args: source.Args, salt: s.refused.salt(name),
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
//
// After ErrUnavailable it is not known whether Redis has made the charges. A caller that
// allows the request by itself hands the same charges to Debit, which finds out.
func (s *Store) Take(ctx context.Context, now int64, charges []limit.Charge) (bool, error) {
	if !s.Up() || s.closing.Load() {
		for i := range charges {
			charges[i].Ticket = nil
		}
		return false, ErrUnavailable
	}
	if s.refused.certain(now, charges) {
		return false, nil
	}
	parts := s.part(charges)
	if parts != nil {
		return s.takeParts(ctx, now, charges, parts)
	}
	p, err := s.lane(charges).submit(now, charges, true, (*batch).take)
	if err != nil {
		return false, err
	}
	if err := p.wait(ctx); err != nil {
		s.giveLater(p, charges)
		return false, err
	}
	allowed, err := s.settle(p, now, charges)
	if allowed {
		s.turns.join(charges)
	}
	return allowed, err
}

// Peek implements limit.Store. Redis evaluates the charges: refusals that this gateway remembers
// do not count. The error is ErrUnavailable, or ctx's.
func (s *Store) Peek(ctx context.Context, now int64, charges []limit.Charge) error {
	if s.closing.Load() {
		return ErrUnavailable
	}
	parts := s.part(charges)
	if parts == nil {
		return s.peek(ctx, now, s.lane(charges), charges)
	}
	errs := make([]error, len(parts))
	var all sync.WaitGroup
	for i, p := range parts {
		all.Go(func() { errs[i] = s.peek(ctx, now, s.lanes[p.lane], p.charges) })
	}
	all.Wait()
	for _, p := range parts {
		p.merge(charges)
	}
	return errors.Join(errs...)
}

// peek evaluates charges of one lane.
func (s *Store) peek(ctx context.Context, now int64, l *lane, charges []limit.Charge) error {
	p, err := l.submit(now, charges, true, (*batch).peek)
	if err != nil {
		return err
	}
	if err := p.wait(ctx); err != nil {
		return err
	}
	_, err = p.outcome(charges)
	return err
}

// settle fills in what has become of a request.
func (s *Store) settle(p place, now int64, charges []limit.Charge) (bool, error) {
	allowed, err := p.outcome(charges)
	switch {
	case err != nil:
		for i := range charges {
			charges[i].Ticket = p.batch // for Debit
		}
	case !allowed && !s.options.CallerClock:
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
	s.calls.begin()
	go func() { // ends with the batch, which ends in time
		defer s.calls.end()
		<-p.done
		if allowed, err := p.outcome(own); err == nil && allowed {
			s.Refund(own)
		}
	}()
}

// Refund implements limit.Store. It does not wait for Redis.
func (s *Store) Refund(charges []limit.Charge) {
	s.turns.leave(charges)
	for i := range charges {
		ch := &charges[i]
		if !ch.Outcome.Allowed {
			continue
		}
		c := ch.Counters.(*counters)
		if s.lane(charges[i:]).add(func(b *batch) {
			s.leases.hold(c, ch.Key, -ch.Cost)
			b.give(ch)
		}) == nil {
			s.leases.hold(c, ch.Key, -ch.Cost) // which a closed lane does not tell
		}
		if !c.fleeting() {
			s.refused.forget(actor{c.name, string(ch.Key)}) // now that each request from here on is judged after it
		}
	}
}
