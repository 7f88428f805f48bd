// SPDX-License-Identifier: MIT

package diana

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/diana-limiter/diana/config"
	"github.com/diana-limiter/diana/internal/decide"
	"github.com/diana-limiter/diana/internal/plan"
	"github.com/diana-limiter/diana/redisstore"
	"github.com/diana-limiter/diana/rule"
)

// connection is a store in Redis, what it was made from, and how it is. A reload makes it
// before the configuration that asks for it is in force; it is in use if it is the Limiter's.
type connection struct {
	config *config.Redis     // nil: no Redis; changed by settle only
	roots  *x509.CertPool    // nil: the system's
	store  *redisstore.Store // nil: no Redis

	// Guarded by Limiter.mu.
	health redisstore.Health
	forgot int64 // the moment when Redis was found to have forgotten; 0: it has not
}

// redisOptions returns how a store is opened for a configuration. What that names must
// be readable now, also if it is not needed now: what is in force could be opened again.
func redisOptions(c *config.Redis) (o redisstore.Options, err error) {
	if c == nil {
		return o, nil
	}
	o = redisstore.Options{URL: c.URL, Addresses: c.Cluster, Timeout: c.Timeout, Prefix: c.Prefix}
	var sentinelErr, tlsErr error
	o.Credentials, err = config.Credentials("redis.password", c.Username, c.Password)
	if s := c.Sentinel; s != nil {
		o.Addresses, o.Master = s.Addresses, s.Master
		o.SentinelCredentials, sentinelErr = config.Credentials("redis.sentinel.password", s.Username, s.Password)
	}
	if o.TLS, tlsErr = c.TLS.Load(); tlsErr != nil {
		tlsErr = fmt.Errorf("redis.tls: %w", tlsErr)
	}
	return o, errors.Join(err, sentinelErr, tlsErr)
}

// readyTime is how long a start, or a reload that changes Redis, waits for Redis.
const readyTime = time.Second

// connect returns the connection that a configuration asks for: the one in use if it is no
// other. A new one that is to replace another is ready, or has had the time to be: until then
// the old one decides. It is called by one goroutine at a time.
func (l *Limiter) connect(c *config.Redis) (*connection, error) {
	o, err := redisOptions(c)
	if err != nil {
		return nil, err
	}
	used := l.connection()
	if used != nil && used.fits(c, o) {
		return used, nil
	}
	n := &connection{config: c, roots: roots(o.TLS), health: redisstore.Health{Gateways: 1}}
	if c == nil {
		return n, nil
	}
	if used != nil { // the others are there, whatever is changed about Redis
		l.mu.Lock()
		n.health.Gateways = used.health.Gateways
		l.mu.Unlock()
	}
	o.Gateway, o.Gateways = l.gateway, n.health.Gateways
	o.StillCounts = l.decider.StillCounts
	o.Observed = l.options.RedisObserved
	o.Changed = func(h redisstore.Health) { l.redisChanged(n, h) }
	l.mu.Lock() // which Changed waits for
	n.store, err = redisstore.Open(o)
	l.mu.Unlock()
	if err != nil {
		return nil, err
	}
	if used != nil {
		ctx, cancel := context.WithTimeout(l.closing, readyTime)
		defer cancel()
		_ = n.ready(ctx) // if it is not, it decides without Redis
	}
	return n, nil
}

// connection returns the one in use, or nil before there is one.
func (l *Limiter) connection() *connection {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.redis
}

// fits reports whether a connection is the one that a configuration asks for, and takes its
// timeout over.
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

// ready waits until Redis has answered and the gateways were counted, for the first time.
func (n *connection) ready(ctx context.Context) error {
	select {
	case <-n.store.Ready():
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Ready waits until the limits can be kept: until Redis has answered and the gateways there
// were counted, if there are global rules. The error is ctx's if that ends first. Requests
// before that are evaluated without Redis, see Decision.Degraded. [Open] has waited for it,
// for a second at most.
func (l *Limiter) Ready(ctx context.Context) error {
	n, set := l.connection(), l.decider.Limits().Set
	if n.store == nil || !slices.ContainsFunc(set.Rules, func(r *plan.Rule) bool { return r.Scope == rule.Global }) {
		return nil
	}
	return n.ready(ctx)
}

// leave closes a connection that is not in use, or no longer. It does not wait: the
// store may be telling us something, and wait for l.mu.
func (l *Limiter) leave(n *connection) {
	if n != nil && n.store != nil {
		l.leaving.Go(n.store.Close)
	}
}

// leaveUnused closes a connection that was in use, when the slots are free again that
// requests hold by it.
func (l *Limiter) leaveUnused(n *connection) {
	if n != nil && n.store != nil {
		l.leaving.Go(func() { n.store.Leave(l.closing) })
	}
}

// redisChanged is told when Redis comes within reach or out of it, when it has forgotten, and
// when the number of gateways changes, which changes each one's share.
func (l *Limiter) redisChanged(n *connection, h redisstore.Health) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before := n.health
	n.health = h
	if h.Reason != nil {
		l.redisErrors[redisstore.Kind(h.Reason)]++ // of a probe
	}
	if h.Forgot {
		n.forgot = l.local.Now()
		l.redisErrors["forgot"]++
	}
	if n != l.redis {
		return
	}
	if err := l.decider.UseRedis(n.state(), l.now()); err != nil {
		l.options.Logger.Error("limits not changed", "gateways", h.Gateways, "error", err)
	}
	l.logHealth(before, h)
	if h.Forgot {
		l.options.Logger.Warn("Redis has forgotten what it had counted: shares hold as well for one unit of a rule, if that is 10 s or less")
	}
}

// logHealth logs whether Redis is in use, if that has changed.
func (l *Limiter) logHealth(before, h redisstore.Health) {
	switch {
	case h.Up && !before.Up:
		l.options.Logger.Info("global limits are counted in Redis", "gateways", h.Gateways)
	case !h.Up && h.Reason != nil && (before.Up || before.Reason == nil):
		l.options.Logger.Warn("Redis is out of reach: on_error decides", "gateways", h.Gateways, "reason", h.Reason)
	}
}

// state returns how things stand with Redis. l.mu is held.
func (n *connection) state() decide.Redis {
	return decide.Redis{Store: n.store, Up: n.health.Up, Gateways: n.health.Gateways, ForgotAt: n.forgot}
}

// countRedisError counts a request whose call to Redis has failed.
func (l *Limiter) countRedisError(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.redisErrors[redisstore.Kind(err)]++
}
