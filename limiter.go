// SPDX-License-Identifier: MIT

package diana

import (
	"context"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/diana-limiter/diana/config"
	"github.com/diana-limiter/diana/internal/follow"
	"github.com/diana-limiter/diana/limit"
	"github.com/diana-limiter/diana/memstore"
	"github.com/diana-limiter/diana/redisstore"
	"github.com/diana-limiter/diana/rule"
)

// Options are what a program decides about a Limiter, beside its configuration. The
// zero value is ready to use.
type Options struct {
	// Vocabulary is what the words of configurations mean. The zero value is
	// the function of that name.
	Vocabulary rule.Vocabulary

	// RedisObserved is called after each call to Redis with how long it took, by the
	// goroutine that made it. May be nil.
	RedisObserved func(time.Duration)

	// Now takes the place of the system's clock, as for replaying what has been and for
	// tests. Nil means time.Now. With one no request is held that is to wait for its turn:
	// Decision.Delayed says for how long it would be, and is all that comes of it; and the
	// wait of a rule and a bandwidth have no effect. Redis goes by its own clock. Moments
	// must lie between the years 1970 and 2155.
	Now func() time.Time

	// Upstream returns what passes requests on to a server that an entry diverts them to. Nil
	// means an httputil.ReverseProxy, which tells X-Forwarded-For, -Host and -Proto.
	Upstream func(*url.URL) http.Handler

	// OnRefusal is called with the refusals that are worth a line in a log, at most 10 times a
	// second: see Refusal. It is called by the goroutine of the request or by another one, by
	// several at once, and must return soon. Nil: refusals are only counted.
	OnRefusal func(Refusal)

	// Logger gets one line for each change of state. Nil means slog.Default().
	Logger *slog.Logger
}

func (o Options) filled() Options {
	if len(o.Vocabulary.Algorithms) == 0 {
		o.Vocabulary = Vocabulary()
	}
	if o.Upstream == nil {
		o.Upstream = passTo
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	return o
}

// Limiter judges requests by the rules of the configuration that is active. It is
// safe for concurrent use. Close ends it.
type Limiter struct {
	options    Options
	local      *memstore.Store
	active     atomic.Pointer[active]
	judgements sync.Pool
	judges     atomic.Uint32 // judgements that were made
	lines      lines
	room       waitRoom       // of lines, and of requests that wait for a leaky bucket
	nobody     limit.Counters // refuse all; see judgement.look
	leaving    sync.WaitGroup // connections to Redis that are being closed
	closing    context.Context
	end        context.CancelFunc // of closing
	gateway    int64              // tells this one from others in Redis
	fallback   atomic.Int64       // requests whose Decision is Degraded
	rejected   rejected           // by reason
	refusals   refusals

	file     string           // of Open; empty: none
	follower *follow.Follower // nil: the program gives the configurations

	applying sync.Mutex // one change of configuration at a time, which may wait for Redis

	mu          sync.Mutex         // guards the rest, and changes of active
	records     map[string]*record // by rule; a rule keeps its own across configurations
	redisErrors map[string]int64   // by redisstore.Kind
	redis       *connection        // of active; nil before there is one
}

// longestBoth bounds how long a rule is kept by both stores after Redis has forgotten what it
// had counted. For one unit each gateway then keeps to its share as well: otherwise clients
// could use the limit again that they had used before. With a unit that is longer than this, a
// gateway that has most of the traffic would lose more by its share than anyone would gain.
const longestBoth = 10 * time.Second

// apart is how long after one gateway the last one finds out that Redis has forgotten.
const apart = time.Second

// bothForSlots is for how long both stores decide for slots: until all gateways are back and
// have told Redis what they hold.
const bothForSlots = 3 * time.Second

// active is a configuration in force. It never changes, but for what it remembers of itself.
type active struct {
	config   *config.Config
	set      *rule.Set
	enforced []enforced       // by rule.Slot
	shared   []limit.Counters // by rule.Bandwidth.Index; nil: each answer has it for itself
	since    time.Time
	global   *redisstore.Store // nil: no Redis
	degraded *time.Time        // since when global rules are judged without Redis; nil: they are not
	policies policies
	byName   map[string]int // of each counters' name, the Slot of its rule with the largest limit

	diversions map[*rule.Divert]*diversion
}

// enforced is how a rule is kept.
type enforced struct {
	global   limit.Counters // of a global rule, in Redis; nil: there is no Redis
	counters limit.Counters // here: of a local rule, or while Redis is out of reach; nil: every request passes
	meter    limit.Meter    // that counters are judged by
	known    limit.Counters // here: charged as a shadow by what goes to Redis, see remember.go; nil: there is no Redis
	wait     int64          // how long a request waits for its turn, in microseconds; 0: not at all
	both     int64          // the moment until which counters decide along with Redis; 0: they do not
	record   *record
	policy   string // its member of RateLimit-Policy
	quoted   string // its name as a String of structured fields
	json     string // its name in JSON
}

// limiter returns a Limiter with a configuration. o is filled.
func (o Options) limiter(c *config.Config) (*Limiter, error) {
	l := &Limiter{
		options:     o,
		local:       memstore.New(memstore.Options{MaxKeys: c.MaxKeys, Clock: o.Now}),
		redisErrors: map[string]int64{},
		gateway:     redisstore.NewGateway(),
	}
	l.closing, l.end = context.WithCancel(context.Background())
	l.lines.room = &l.room
	l.judgements.New = func() any { return &judgement{limiter: l, nth: l.judges.Add(1)} }
	none, err := limit.FixedWindow().New(limit.Limit{Unit: time.Second})
	if err == nil {
		l.nobody, err = l.local.Counters("nobody", none)
	}
	if err != nil {
		return nil, err
	}
	if err := l.apply(c); err != nil {
		l.end()
		return nil, err
	}
	return l, nil
}

// now returns the time by Options.Now. Requests are evaluated by the clock of the store.
func (o Options) now() time.Time {
	if o.Now != nil {
		return o.Now()
	}
	return time.Now()
}

func (l *Limiter) now() time.Time { return l.options.now() }

// Close ends the following of the configuration, and the connections to Redis. Requests can
// still be evaluated, but the configuration can no longer change.
func (l *Limiter) Close() error {
	l.end() // so that no change waits for Redis any more
	if l.follower != nil {
		l.follower.Close()
	}
	l.applying.Lock() // an Update that is under way ends first
	l.leave(l.connection())
	l.applying.Unlock()
	l.leaving.Wait()
	l.endTelling()
	return nil
}

// compile returns a configuration that swap can put in force.
func (l *Limiter) compile(c *config.Config) (*active, error) {
	set, err := rule.Compile(c.Limits, c.Identity, c.Paths, l.options.Vocabulary)
	if err != nil {
		return nil, err
	}
	diversions, err := l.diversions(c.Limits)
	if err != nil {
		return nil, err
	}
	return &active{config: c, set: set, since: l.now(), diversions: diversions}, nil
}

// swap makes a configuration the active one, with a connection to Redis, or changes nothing.
// Counters that mean the same keep their states.
func (l *Limiter) swap(next *active, n *connection) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	old := l.redis
	if err := l.enforce(next, n); err != nil {
		return err
	}
	if n != old {
		if old != nil { // the new connection may have changed before it was in use
			l.logHealth(old.health, n.health)
		}
		l.leaveUnused(old)
	}
	return nil
}

// enforce binds a set to its counters, and makes it the active one, with its connection
// to Redis. l.mu is held.
func (l *Limiter) enforce(a *active, n *connection) (err error) {
	a.global, a.byName = n.store, map[string]int{}
	records := map[string]*record{}
	waits := map[string]bool{} // by Counters, the rules that let requests wait
	for _, r := range slices.Concat(a.set.Rules, a.set.Variants) {
		if records[r.Name] == nil { // a rule and its variants have one
			records[r.Name] = l.records[r.Name]
		}
		if records[r.Name] == nil {
			records[r.Name] = &record{tally: newTally()}
		}
		e := enforced{
			wait:   waitOf(r),
			record: records[r.Name],
			policy: policyMember(r),
			quoted: quote(r.Name),
			json:   jsonString(r.Name),
		}
		if e.counters, e.meter, err = l.counters(r, n.health.Gateways); err == nil && r.Scope == rule.Global && n.store != nil {
			if e.global, err = n.store.Counters(r.Counters, r.Meter); err == nil {
				e.known, err = l.known(r, e.meter)
			}
			e.both = n.both(r)
			if slot, ok := a.byName[r.Counters]; !ok || a.set.Rule(slot).Limit.N < r.Limit.N {
				a.byName[r.Counters] = r.Slot
			}
		}
		a.enforced = append(a.enforced, e)
		if letsWait(r) {
			waits[r.Counters] = true
		}
		if err != nil {
			l.retire(a)
			return err
		}
		if r.Scope == rule.Global && !n.health.Up && a.degraded == nil {
			now := l.now()
			a.degraded = &now
		}
	}
	for _, b := range a.set.Bandwidths {
		var c limit.Counters
		if b.Shared() {
			c, err = l.local.Counters(b.Counters, bandwidth(b.Rate))
		}
		a.shared = append(a.shared, c)
		if err != nil {
			l.retire(a)
			return err
		}
	}
	old := l.active.Load()
	if a.degraded != nil && old != nil && old.degraded != nil {
		a.degraded = old.degraded
	}
	l.records, l.redis = records, n
	l.local.SetMaxKeys(a.config.MaxKeys)
	l.room.divide(waits)
	l.active.Store(a)
	l.lines.wakeAll()
	if old != nil {
		l.retire(old)
	}
	return nil
}

func (l *Limiter) retire(a *active) {
	for _, e := range a.enforced {
		for _, c := range []limit.Counters{e.counters, e.known} {
			if c != nil {
				l.local.Retire(c)
			}
		}
	}
	for _, c := range a.shared {
		if c != nil {
			l.local.Retire(c)
		}
	}
}

// queues reports whether a rule lets requests wait.
func queues(r *rule.Rule) bool {
	_, ok := r.Meter.(limit.Queue)
	return ok
}

// waitOf returns how long requests wait under a rule, in microseconds. Where no time is known
// after which one would be let in, or none is refused, nobody waits.
func waitOf(r *rule.Rule) int64 {
	if r.Limit.N == 0 || r.Mode == rule.Shadow {
		return 0
	}
	return r.Wait.Microseconds()
}

// both returns the moment until which both stores decide for a rule, or 0. l.mu is held.
func (n *connection) both(r *rule.Rule) int64 {
	unit := r.Limit.Unit
	if r.Algorithm.Held {
		unit = bothForSlots - apart
	}
	if r.OnError != rule.Share || queues(r) || unit > longestBoth || n.forgot == 0 {
		return 0
	}
	return n.forgot + (unit + apart).Microseconds()
}

// counters returns what a rule is counted by in this process, one of so many gateways, and
// the meter of it. l.mu is held.
func (l *Limiter) counters(r *rule.Rule, gateways int) (c limit.Counters, m limit.Meter, err error) {
	name, m := r.Counters, r.Meter
	switch {
	case r.Scope == rule.Local:
	case r.OnError == rule.Open:
		return nil, nil, nil
	case r.OnError == rule.Closed:
		none := r.Limit
		none.N, none.Unit = 0, time.Second // Redis may be back soon
		if m, err = r.Algorithm.New(none); err != nil {
			return nil, nil, err
		}
		name = "closed " + name
	default:
		if r.OnError == rule.Share {
			cost := r.Cost.N
			if queues(r) {
				cost = 1 // a turn is never too short for it
			}
			if m, err = r.Algorithm.New(share(r.Limit, gateways, cost)); err != nil {
				return nil, nil, err
			}
		}
		name = warmName(r, m)
	}
	c, err = l.local.Counters(name, m)
	return c, m, err
}

// share returns what one of so many gateways may use of a limit: at least one request of
// that cost.
func share(l limit.Limit, gateways int, cost int64) limit.Limit {
	if gateways < 2 {
		return l
	}
	part := func(n *int64, least int64) {
		if *n > 0 {
			*n = max(*n/int64(gateways), min(*n, least))
		}
	}
	if part(&l.Burst, cost); l.Burst > 0 {
		cost = 1 // there is room for it, and the rate need not be more for that
	}
	part(&l.N, cost)
	part(&l.Queue, 1)
	return l
}
