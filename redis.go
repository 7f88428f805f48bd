// SPDX-License-Identifier: MIT

package diana

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"github.com/diana-limiter/diana/config"
	"github.com/diana-limiter/diana/internal/bounds"
	"github.com/diana-limiter/diana/internal/decide"
	"github.com/diana-limiter/diana/internal/minutes"
	"github.com/diana-limiter/diana/internal/redisfault"
	"github.com/diana-limiter/diana/memstore"
	"github.com/diana-limiter/diana/redisstore"
)

// redisLink keeps the connection to the Redis of the configuration in force.
type redisLink struct {
	options Options
	local   *memstore.Store // for its clock
	decider *decide.Decider
	gateway int64           // tells this gateway from others in Redis
	closing context.Context // ends with the Limiter
	end     context.CancelFunc
	leaving sync.WaitGroup // connections that are being closed
	ledger  minutes.Ledger // of what this gateway reports, by Redis' clock

	lateDebits, unknownCalls atomic.Int64 // see Status

	mu     sync.Mutex       // guards the rest, and changes of the limits in force
	errors map[string]int64 // by redisfault.Kind
	used   *connection      // nil before there is one
}

func newRedisLink(o Options, local *memstore.Store) *redisLink {
	l := &redisLink{options: o, local: local, gateway: 1 + rand.Int64N(1<<53-1), errors: map[string]int64{}}
	l.closing, l.end = context.WithCancel(context.Background())
	return l
}

// errClosed is the error of a change after Close.
var errClosed = errors.New("diana: this Limiter is closed")

// connection is a store in Redis, its settings and its health. It is made before the
// configuration that names it is in force; it is in use if it is redisLink.used.
type connection struct {
	config *config.Redis     // nil: no Redis; guarded by Limiter.applying
	roots  *x509.CertPool    // nil: the system's
	store  *redisstore.Store // nil: no Redis

	// Guarded by redisLink.mu.
	health redisstore.Health
	forgot int64 // when Redis was found to have forgotten what it had counted; 0: it has not
	back   int64 // when Redis came back, or was found to have forgotten; 0: never; the end of time: it is down
	down   bool  // it was down before it came back
	times  int64 // how often it came back
}

// redisOptions returns how a store is opened for a configuration. All files that c names must
// be readable now, even if the connection is open already: it could be opened again later.
func redisOptions(c *config.Redis) (o redisstore.Options, err error) {
	if c == nil {
		return o, nil
	}
	o = redisstore.Options{URL: c.URL, Addresses: c.Cluster, Timeout: c.Timeout, Prefix: c.Prefix, Remember: c.Remember, Tags: c.Tags}
	var sentinelErr, tlsErr error
	o.Credentials, err = c.Credentials()
	if s := c.Sentinel; s != nil {
		o.Addresses, o.Master = s.Addresses, s.Master
		o.SentinelCredentials, sentinelErr = s.Credentials()
	}
	if o.TLS, tlsErr = c.TLS.Load(); tlsErr != nil {
		tlsErr = fmt.Errorf("redis.tls: %w", tlsErr)
	}
	return o, errors.Join(err, sentinelErr, tlsErr)
}

// connect returns the connection that a configuration names: the one in use if that has the
// same settings, perhaps with another timeout. A new one that replaces another is ready, or has
// had the time to be: until then the old one decides. l.applying is held.
func (l *redisLink) connect(c *config.Redis) (*connection, error) {
	if l.closing.Err() != nil {
		return nil, errClosed
	}
	o, err := redisOptions(c)
	if err != nil {
		return nil, err
	}
	used := l.inUse()
	if used != nil && used.fits(c, o) {
		return used, nil
	}
	n := &connection{config: c, roots: roots(o.TLS), health: redisstore.Health{Gateways: 1}}
	if c == nil {
		return n, nil
	}
	if used != nil { // the other gateways are still alive, whatever changes about Redis
		l.mu.Lock()
		n.health.Gateways = used.health.Gateways
		l.mu.Unlock()
	}
	o.Gateway, o.Gateways, o.Guest = l.gateway, n.health.Gateways, l.options.Guest
	o.Lost = func(counters string, actors int, sum int64) {
		l.options.Logger.Error("Redis has not received what was charged without it", "rule", l.ruleOf(counters), "actors", actors, "sum", sum)
	}
	o.Reconciled = func(debited int64, unknown int) {
		l.lateDebits.Add(debited)
		l.unknownCalls.Add(int64(unknown))
	}
	o.Reset = l.decider.Forget
	o.Minutes = l.minutes
	o.Observed = l.options.RedisObserved
	o.Changed = func(h redisstore.Health) { l.changed(n, h) }
	l.mu.Lock() // which Changed waits for
	n.store, err = redisstore.Open(o)
	l.mu.Unlock()
	if err != nil {
		return nil, err
	}
	if used != nil {
		ctx, cancel := context.WithTimeout(l.closing, readyTime)
		defer cancel()
		_ = n.ready(ctx) // if it is not, on_error decides
		if l.closing.Err() != nil {
			l.leave(n)
			return nil, errClosed
		}
	}
	return n, nil
}

// inUse returns the connection in use, or nil before there is one.
func (l *redisLink) inUse() *connection {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.used
}

// use makes n the connection in use, if bind, which binds limits to it, returns no error.
func (l *redisLink) use(n *connection, bind func(decide.Redis) error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := bind(n.state()); err != nil {
		return err
	}
	old := l.used
	if l.used = n; n == old {
		return nil
	}
	if old != nil { // the new connection may have changed before it was in use
		l.logHealth(old.health, n.health)
	}
	l.leaveUnused(old)
	return nil
}

// fits reports whether a connection has the settings of a configuration. If so, it takes the
// timeout of the configuration.
func (n *connection) fits(c *config.Redis, o redisstore.Options) bool {
	if c == nil || n.config == nil {
		return c == nil && n.config == nil
	}
	same := *c
	same.Timeout = n.config.Timeout
	if !reflect.DeepEqual(&same, n.config) || !roots(o.TLS).Equal(n.roots) {
		return false
	}
	return c.Timeout == n.config.Timeout || n.store.SetTimeout(c.Timeout)
}

// roots returns the authorities that a TLS configuration trusts; nil: the system's.
func roots(c *tls.Config) *x509.CertPool {
	if c == nil {
		return nil
	}
	return c.RootCAs
}

// ready waits until Redis has answered and the gateways were counted, for the first time.
func (n *connection) ready(ctx context.Context) error {
	select {
	case <-n.store.Ready():
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// abandon undoes connect, after the configuration that named the connection was rejected.
func (l *redisLink) abandon(n *connection) {
	switch {
	case n != l.inUse():
		l.leave(n)
	case n.store != nil:
		n.store.SetTimeout(n.config.Timeout)
	}
}

// leave closes a connection that is not in use, or no longer. It does not wait: the
// store may be calling changed, which waits for l.mu.
func (l *redisLink) leave(n *connection) {
	if n != nil && n.store != nil {
		l.leaving.Go(n.store.Close)
	}
}

// leaveUnused closes a connection that was in use, when the requests that hold slots by it
// have released them.
func (l *redisLink) leaveUnused(n *connection) {
	if n != nil && n.store != nil {
		l.leaving.Go(func() { n.store.Leave(l.closing) })
	}
}

// changed is called when Redis becomes available or unavailable, when it has lost its memory, and
// when the number of gateways changes, because that changes the share of each.
func (l *redisLink) changed(n *connection, h redisstore.Health) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before := n.health
	n.health = h
	if h.Reason != nil {
		l.errors[redisfault.Kind(h.Reason)]++ // of a probe
	}
	switch {
	case !h.Up && h.Reason != nil:
		n.back, n.down = bounds.EndOfTime, true // so that the limits of its return are in force before it is used
	case h.Up && n.back == bounds.EndOfTime:
		n.back = l.local.Now()
		n.times++
	case h.Up && h.Forgot:
		n.back, n.down = l.local.Now(), false
		n.times++
	}
	if h.Forgot {
		n.forgot = l.local.Now()
		l.errors["forgot"]++
	}
	if n != l.used {
		return
	}
	l.apply(n)
	l.logHealth(before, h)
	if h.Forgot {
		l.options.Logger.Warn("Redis lost its data: shares also apply for one unit up to 10 s, and for 2 s under longer units")
	}
}

// apply makes the limits follow the state of a connection in use. l.mu is held.
func (l *redisLink) apply(n *connection) {
	if err := l.decider.UseRedis(n.state(), l.options.now()); err != nil {
		l.options.Logger.Error("limits not changed", "gateways", n.health.Gateways, "error", err)
	}
}

// takeOver returns the receiver of what the process before this one has charged without Redis; nil: there is none. The
// shares are those of that process, until Redis answers.
func (l *redisLink) takeOver(s *passedState) (receive func(note []byte) (all bool, err error)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.used
	if n.store == nil || !s.Redis {
		return nil
	}
	receive = n.store.TakeOver(s.Gateways)
	if !n.health.Up {
		n.health.Gateways = max(n.health.Gateways, s.Gateways)
		l.apply(n)
	}
	return receive
}

// logHealth logs whether Redis is in use, and whether the gateways count together, if that has changed.
func (l *redisLink) logHealth(before, h redisstore.Health) {
	switch {
	case h.Up && !before.Up:
		l.options.Logger.Info("global limits are counted in Redis", "gateways", h.Gateways)
	case !h.Up && h.Reason != nil && (before.Up || before.Reason == nil):
		l.options.Logger.Warn("Redis is out of reach: on_error decides", "gateways", h.Gateways, "reason", h.Reason)
	}
	if h.OtherTags != 0 && h.OtherTags != before.OtherTags {
		l.options.Logger.Error("gateways have different redis.tags: they do not count together", "others", h.OtherTags)
	}
}

// state returns the state of Redis for evaluations. l.mu is held.
func (n *connection) state() decide.Redis {
	return decide.Redis{Store: n.store, Up: n.health.Up, Gateways: n.health.Gateways, ForgotAt: n.forgot, BackAt: n.back, WasDown: n.down, Returns: n.times}
}

// countError counts a request whose call to Redis has failed.
func (l *redisLink) countError(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.errors[redisfault.Kind(err)]++
}

// errorCounts returns how many calls to Redis have failed, by kind.
func (l *redisLink) errorCounts() map[string]int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.errors)
}

// gateways returns how many gateways were last seen alive, this one included.
func (l *redisLink) gateways() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.used.health.Gateways
}

// calls returns how many calls to Redis had no answer in time, and which timeout their durations suggest.
func (l *redisLink) calls() (late int64, suggested string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.used.store == nil {
		return 0, ""
	}
	late, d := l.used.store.Calls()
	if d > 0 {
		suggested = max(d.Round(time.Millisecond), time.Millisecond).String()
	}
	return late, suggested
}

// ruleOf returns the name of the rule that counts by these counters, or that of the counters if the rule is gone.
func (l *redisLink) ruleOf(counters string) string {
	for _, r := range l.decider.Limits().Set.Rules {
		if r.Counters == counters {
			return r.Name
		}
	}
	return counters
}

// close closes the connection in use.
func (l *redisLink) close() { l.leave(l.inUse()) }

// wait waits until all connections are closed.
func (l *redisLink) wait() { l.leaving.Wait() }
