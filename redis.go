// SPDX-License-Identifier: MIT

package diana

import (
	"crypto/x509"
	"errors"
	"fmt"
	"reflect"

	"github.com/diana-limiter/diana/config"
	"github.com/diana-limiter/diana/redisstore"
)

// connection is a store in Redis, what it was made from, and how it is. It is made
// before the configuration that asks for it is known to be good, and is in use if it
// is the Limiter's. Until then, and when it no longer is, nobody listens to it.
type connection struct {
	config *config.Redis  // nil: no Redis
	roots  *x509.CertPool // nil: the system's
	store  *redisstore.Store

	// Guarded by Limiter.mu.
	health   redisstore.Health
	returned int64 // the moment when Redis came within reach
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

// connect returns the connection that a configuration asks for: the one in use if it is
// no other. l.mu is held.
func (l *Limiter) connect(c *config.Redis, o redisstore.Options) (*connection, error) {
	n := &connection{config: c, roots: roots(o.TLS), health: redisstore.Health{Gateways: 1}}
	if used := l.redis; used != nil && reflect.DeepEqual(c, used.config) && n.roots.Equal(used.roots) {
		return used, nil
	}
	if c == nil {
		return n, nil
	}
	if l.redis != nil { // the others are there, whatever is changed about Redis
		n.health.Gateways = l.redis.health.Gateways
	}
	o.Gateways = n.health.Gateways
	o.Observed = l.options.RedisObserved
	o.Changed = func(h redisstore.Health) { l.redisChanged(n, h) }
	var err error
	n.store, err = redisstore.Open(o)
	return n, err
}

// leave closes a connection that is not in use, or no longer. It does not wait: the
// store may be telling us something, and wait for l.mu.
func (l *Limiter) leave(n *connection) {
	if n != nil && n.store != nil {
		l.leaving.Go(n.store.Close)
	}
}

// leaveUnused closes a connection that was in use, when the places are free again that
// requests hold by it.
func (l *Limiter) leaveUnused(n *connection) {
	if n != nil && n.store != nil {
		l.leaving.Go(func() { n.store.Leave(l.closing) })
	}
}

// redisChanged is told when Redis comes within reach or out of it, and when the number
// of gateways changes, which changes each one's share.
func (l *Limiter) redisChanged(n *connection, h redisstore.Health) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n != l.redis {
		return
	}
	before := n.health
	n.health = h
	if h.Up && !before.Up {
		n.returned = l.local.Now()
	}
	a := l.active.Load()
	if err := l.enforce(&active{config: a.config, set: a.set, since: a.since, diversions: a.diversions}, n); err != nil {
		l.options.Logger.Error("limits not changed", "gateways", h.Gateways, "error", err)
	}
	switch {
	case h.Up && !before.Up:
		l.options.Logger.Info("global limits are counted in Redis", "gateways", h.Gateways)
	case !h.Up && (before.Up || before.Reason == nil):
		l.options.Logger.Warn("Redis is out of reach: on_error decides", "gateways", h.Gateways, "reason", h.Reason)
	}
}

func (l *Limiter) countRedisError(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.redisErrors[redisstore.Kind(err)]++
}
