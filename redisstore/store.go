// SPDX-License-Identifier: MIT

package redisstore

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash/maphash"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unique"

	"github.com/diana-limiter/diana/internal/redisfault"
	"github.com/diana-limiter/diana/limit"
)

// ErrUnavailable means that Redis could not be asked, or did not answer in time. Nothing is
// charged, as far as is known.
var ErrUnavailable = errors.New("redisstore: Redis is out of reach")

// errForeign means that a key with our prefix holds a value of another program.
var errForeign = fmt.Errorf("%w: %w", ErrUnavailable, redisfault.ErrForeign)

// Store is a limit.Store in Redis. Open starts goroutines, which Close ends.
type Store struct {
	options  Options
	timeout  atomic.Int64 // nanoseconds, see SetTimeout
	long     atomic.Bool  // tests let driver.lua decide short calls too
	id       int64        // the number of this Store, also within one gateway
	gateway  gateway
	keys     keyspace
	scripts  scripts
	link     link
	batchers batchers  // one, unless Redis is a Cluster
	took     durations // of calls
	refused  refusals
	leases   leases
	debts    debts
	memory   *memory
	schedule schedule
	named    sync.Map     // the newest *counters by name
	calls    inFlight     // calls to Redis
	ahead    atomic.Int64 // microseconds by which Redis' clock is ahead of this process'

	ready chan struct{} // closed when Redis is reachable for the first time
	once  sync.Once     // closes it
	close sync.Once
	stop  chan struct{} // closed by Close
	done  sync.WaitGroup
}

// counters is the handle that Store.Counters returns.
type counters struct {
	name   unique.Handle[string]
	meter  limit.Meter
	sum    [sha256.Size]byte // of the name
	script int               // its number in scripts
	args   []int64
	around func(now int64) []int64 // limit.Script.Around
	salt   uint64                  // of the name; separates the actors of several counters
	held   bool                    // slots, on which this gateway has a lease

	// Equal requests of these counters are separate entries of a batch in two cases. With queue
	// or reserver each request has its own scheduled time. With apart each request that costs
	// more than 1 needs its own evaluation.
	queue, reserver, apart bool
}

// Open returns a Store. It does not wait for Redis: until Redis answers, Take returns
// ErrUnavailable at once. The error is for invalid Options.
func Open(o Options) (*Store, error) {
	s := &Store{
		options: o, id: newGateway(),
		ready: make(chan struct{}), stop: make(chan struct{}),
	}
	if s.options.Timeout == 0 {
		s.options.Timeout = 50 * time.Millisecond
	}
	if err := s.link.configure(s.options); err != nil {
		return nil, err
	}
	s.timeout.Store(int64(s.options.Timeout))
	if s.gateway.number = o.Gateway; s.gateway.number == 0 {
		s.gateway.number = newGateway()
	}
	if s.keys = (keyspace{o.Prefix, s.id}); s.keys.prefix == "" {
		s.keys.prefix = "diana"
	}
	s.memory = newMemory(o)
	s.refused.seed = maphash.MakeSeed()
	s.scripts.script.Store(newScript(nil))
	if s.options.Tags == 0 {
		s.options.Tags = usualTags
	}
	if !s.link.cluster() {
		s.options.Tags = 1
	}
	for _, tag := range tags(s.options.Tags) {
		s.batchers = append(s.batchers, newBatcher(s, tag))
	}
	first := s.batchers[0].tag
	s.gateway.store, s.gateway.link, s.gateway.keys = s, &s.link, []string{
		s.keys.gateways(first), s.keys.resets(first), s.keys.epoch(first), s.keys.tags(first),
	}
	s.gateway.reports.source = o.Minutes
	s.leases.init(s.batchers)
	s.debts.store = s
	s.done.Go(newWatcher(s).run)
	return s, nil
}

// newGateway returns a random number for Options.Gateway.
func newGateway() int64 { return 1 + rand.Int64N(1<<53-1) }

// now returns the moment by Redis' clock, as far as it is known.
func (s *Store) now() int64 { return time.Now().UnixMicro() + s.ahead.Load() }

// reconciled reports what is settled of an outage.
func (s *Store) reconciled(debited int64, unknown int) {
	if f := s.options.Reconciled; f != nil && (debited > 0 || unknown > 0) {
		f(debited, unknown)
	}
}

// requestTimeout is how long a request waits for Redis.
func (s *Store) requestTimeout() time.Duration { return time.Duration(s.timeout.Load()) }

// SetTimeout changes Options.Timeout of a Store in use. It returns false, and changes nothing,
// if the new timeout needs another connection.
func (s *Store) SetTimeout(d time.Duration) bool {
	if writeTimeout(d) != writeTimeout(s.options.Timeout) {
		return false
	}
	s.timeout.Store(int64(d))
	return true
}

// Ready returns a channel that is closed when Redis has answered for the first time, and the
// number of gateways is known.
func (s *Store) Ready() <-chan struct{} { return s.ready }

// flushTime is how long Close waits for pending debits, refunds and releases.
const flushTime = time.Second

// Close ends the store's goroutines. Waiting and later requests get ErrUnavailable. Before
// that, Close sends pending debits, refunds and releases to Redis, and then what Options.Minutes
// returns, each for at most a second. It drops what it could not send, and tells Options.Lost of debits.
func (s *Store) Close() {
	s.close.Do(func() {
		s.gateway.closing.Store(true)
		s.flush()
		close(s.stop)
	})
	defer s.lose()
	s.link.up.Store(false)
	for _, br := range s.batchers {
		br.close()
	}
	s.done.Wait()
	s.calls.wait(nil)
	s.link.close()
}

// lose drops the debts that are left when the Store is closed.
func (s *Store) lose() {
	s.debts.mu.Lock()
	s.debts.next = nil // Redis may carry out later what is unknown now
	s.debts.mu.Unlock()
	for _, br := range s.batchers {
		br.receipts.abandon()
	}
	if s.options.Lost != nil {
		left := s.debts.left()
		for _, name := range slices.Sorted(maps.Keys(left)) {
			s.options.Lost(name, left[name].actors, left[name].sum)
		}
	}
	s.debts.some(maxDebts)
}

// Flush waits until Redis has what was charged without it, or until ctx ends. The error is that of ctx.
func (s *Store) Flush(ctx context.Context) error {
	tick := time.NewTicker(flushEvery)
	defer tick.Stop()
	for s.debts.len() > 0 || s.batchers.anyOpen() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	s.calls.wait(nil) // each has a deadline
	if s.debts.len() > 0 || s.batchers.anyOpen() {
		return s.Flush(ctx)
	}
	return nil
}

// flushEvery is how often Flush looks at what is left.
const flushEvery = 20 * time.Millisecond

// flush sends what is pending, and announces that this gateway has ended.
func (s *Store) flush() {
	if !s.Up() {
		return
	}
	end := time.NewTimer(flushTime)
	defer end.Stop()
	_ = s.debts.send(time.Now().Add(flushTime), 0) // no caller is left that could handle an error
	s.calls.wait(end.C)
	if !s.gateway.leaving.Load() {
		ctx, cancel := context.WithTimeout(context.Background(), flushTime)
		defer cancel()
		for more := true; more; {
			_, err := s.gateway.announce(ctx, 0)
			more = err == nil && s.gateway.reports.pending()
		}
	}
}

// Leave closes the Store when no request holds a slot any more, or when ctx ends. Until then
// slots count, and can be released. After Close the slots of this Store become free when its
// lease ends. Use Leave for a Store that another Store of the same gateway has replaced.
func (s *Store) Leave(ctx context.Context) {
	defer s.Close()
	s.gateway.leaving.Store(true)
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

// leaveEvery is how often Leave checks whether slots are held. Requests
// can release their slots in the first pause.
const leaveEvery = time.Second

// Up reports whether Redis is reachable, and so whether a Take makes sense.
func (s *Store) Up() bool { return s.link.up.Load() }

// Counters implements limit.Store. It returns an error for a Meter that is not limit.Scripted.
func (s *Store) Counters(name string, m limit.Meter) (any, error) {
	scripted, ok := m.(limit.Scripted)
	if !ok {
		return nil, fmt.Errorf("redisstore: %s: the algorithm has no script, it can only be local", name)
	}
	source := scripted.Script()
	_, queue := m.(limit.Queue)
	_, reserver := m.(limit.Reserver)
	c := &counters{
		name: unique.Make(name), meter: m, sum: sha256.Sum256([]byte(name)),
		script: s.scripts.number(source.Source, source.Short), args: source.Args, around: source.Around, salt: s.refused.salt(name),
		held: source.Leased, queue: queue, reserver: reserver, apart: source.Apart,
	}
	s.named.Store(name, c)
	return c, nil
}

// Retire implements limit.Store. Keys in Redis expire by themselves.
func (s *Store) Retire(h any) { s.named.CompareAndDelete(h.(*counters).name.Value(), h) }
