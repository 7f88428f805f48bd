// SPDX-License-Identifier: MIT

package diana

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/diana-limiter/diana/config"
	"github.com/diana-limiter/diana/internal/decide"
	"github.com/diana-limiter/diana/internal/fields"
	"github.com/diana-limiter/diana/internal/follow"
	"github.com/diana-limiter/diana/internal/plan"
	"github.com/diana-limiter/diana/internal/refusals"
	"github.com/diana-limiter/diana/internal/respond"
	"github.com/diana-limiter/diana/memstore"
	"github.com/diana-limiter/diana/rule"
)

// Options are what a program decides about a Limiter, beside its configuration. The
// zero value is ready to use.
type Options struct {
	// Vocabulary is the set of words that configurations can use. The zero value means
	// config.DefaultVocabulary.
	Vocabulary config.Vocabulary

	// RedisObserved is called after each call to Redis with how long it took, by the
	// goroutine that made it. May be nil.
	RedisObserved func(time.Duration)

	// Now takes the place of the system's clock, as for replaying what has been and for
	// tests. Nil means time.Now. With one no request is held that is to wait for its turn:
	// Decision.Delayed says for how long it would be, and is all that comes of it; and the
	// wait of a rule and a bandwidth have no effect. Redis goes by its own clock. Moments
	// must lie between the years 1970 and 2155.
	Now func() time.Time

	// Refuse answers a refused request in place of the configured problem. The RateLimit fields,
	// Retry-After and Cache-Control are already set; Refuse can change them, and must write a
	// status. It is called for each request that Handler does not allow, also for one whose context
	// ended while it waited, which may have no Verdicts and has a RetryAfter of 0. It is not called
	// for a request that its entry diverts, nor for one that is rejected with 400, 408 or 414. It
	// runs on the request's goroutine and must not keep the Decision. If it panics, the request
	// releases what it holds. Nil means the configured problem.
	Refuse func(w http.ResponseWriter, r *http.Request, d *Decision)

	// OnDecision is called with each decision of Handler and Take, allowed or refused, after the
	// request has waited, and before Handler writes the response or Take returns. It runs on the
	// request's goroutine, concurrently for different requests. It must return soon, must not call
	// Done or SetStatus, and must not keep the Decision. It is not called when Take returns an error
	// (for a path that is rejected, or for a context that ended while the request waited), nor for
	// the same in Handler. If it panics, the request releases what it holds. Each call costs one
	// allocation. Nil costs nothing.
	OnDecision func(d *Decision)

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
		o.Vocabulary = config.DefaultVocabulary()
	}
	if o.Upstream == nil {
		o.Upstream = respond.ReverseProxy
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	return o
}

// Limiter decides whether requests may proceed, by the rules of the configuration in force. It is
// safe for concurrent use. Close ends it.
type Limiter struct {
	options Options
	local   *memstore.Store
	decider *decide.Decider
	leaving sync.WaitGroup // connections to Redis that are being closed
	closing context.Context
	end     context.CancelFunc // of closing
	gateway int64              // tells this one from others in Redis

	rejected   rejected // by reason
	responding sync.Pool

	file     string           // of Open; empty: none
	follower *follow.Follower // nil: the program gives the configurations

	applying sync.Mutex // one change of configuration at a time, which may wait for Redis

	mu          sync.Mutex       // guards the rest, and changes of the configuration in force
	redisErrors map[string]int64 // by redisstore.Kind
	redis       *connection      // in use; nil before there is one
}

// active is what a configuration in force has beside its limits. It never changes.
type active struct {
	config     *config.Config
	set        *plan.Set
	since      time.Time
	shared     []any           // by plan.Bandwidth.Index; nil: each response has it for itself
	policies   fields.Policies // by plan.Rule.Slot
	diversions map[*rule.Divert]*respond.Diversion
}

// limiter returns a Limiter with a configuration. o is filled.
func (o Options) limiter(c *config.Config) (*Limiter, error) {
	c = c.Filled(o.Vocabulary)
	l := &Limiter{
		options:     o,
		local:       memstore.New(memstore.Options{MaxKeys: c.MaxKeys, Clock: o.Now}),
		redisErrors: map[string]int64{},
		gateway:     1 + rand.Int64N(1<<53-1),
	}
	l.closing, l.end = context.WithCancel(context.Background())
	l.responding.New = func() any { return &responding{} }
	d := decide.Options{Local: l.local, Logger: o.Logger, Frozen: o.Now != nil, Failed: l.countRedisError}
	if o.OnRefusal != nil {
		d.Refused = func(r refusals.Refusal) { o.OnRefusal(Refusal(r)) }
	}
	l.decider = decide.New(d)
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

// Close ends the following of the configuration, and the connections to Redis. Requests can still
// be evaluated, but the configuration can no longer change.
func (l *Limiter) Close() error {
	l.end() // so that no change waits for Redis any more
	if l.follower != nil {
		l.follower.Close()
	}
	l.applying.Lock() // an Update that is under way ends first
	l.leave(l.connection())
	l.applying.Unlock()
	l.leaving.Wait()
	l.decider.Close()
	return nil
}

// compile returns a configuration that swap can put in force.
func (l *Limiter) compile(c *config.Config) (*active, error) {
	set, err := plan.Compile(c.Limits, c.Identity, c.Paths, l.options.Vocabulary.Actors)
	if err != nil {
		return nil, err
	}
	a := &active{config: c, set: set, since: l.now()}
	if a.diversions, err = respond.Diversions(c.Limits, l.options.Upstream); err != nil {
		return nil, err
	}
	for _, r := range slices.Concat(set.Rules, set.Variants) {
		a.policies.Add(fields.Policy{Name: r.Name, Limit: r.Limit.N, Unit: r.Limit.Unit, Concurrent: r.Algorithm.Held})
	}
	return a, nil
}

// swap makes a configuration the active one, with a connection to Redis, or changes nothing.
// Counters that mean the same keep their states.
func (l *Limiter) swap(next *active, n *connection) error {
	if err := l.share(next); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	before, old := l.active(), l.redis
	p := decide.Plan{Set: next.set, MaxKeys: next.config.MaxKeys, Attached: next}
	if err := l.decider.Use(p, n.state(), next.since); err != nil {
		l.unshare(next)
		return err
	}
	if l.redis = n; before != nil {
		l.unshare(before)
	}
	if n != old {
		if old != nil { // the new connection may have changed before it was in use
			l.logHealth(old.health, n.health)
		}
		l.leaveUnused(old)
	}
	return nil
}

// active returns what is attached to the limits in force, or nil before there are any.
func (l *Limiter) active() *active {
	limits := l.decider.Limits()
	if limits == nil {
		return nil
	}
	return limits.Attached.(*active)
}

// share makes the counters of the bandwidths that responses share.
func (l *Limiter) share(a *active) (err error) {
	for _, b := range a.set.Bandwidths {
		var c any
		if b.Shared() {
			c, err = l.local.Counters(b.Counters, respond.Bandwidth(b.Rate))
		}
		a.shared = append(a.shared, c)
		if err != nil {
			l.unshare(a)
			return err
		}
	}
	return nil
}

func (l *Limiter) unshare(a *active) {
	for _, c := range a.shared {
		if c != nil {
			l.local.Retire(c)
		}
	}
}
