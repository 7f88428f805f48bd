// SPDX-License-Identifier: MIT

package diana

import (
	"reflect"

	"github.com/diana-limiter/diana/config"
	"github.com/diana-limiter/diana/redisstore"
)

// connection is a store in Redis, what it was made from, and how it is. It is made
// before the configuration that asks for it is known to be good, and is in use if it
// is the Limiter's. Until then, and when it no longer is, nobody listens to it.
type connection struct {
	config *config.Redis // nil: no Redis
	store  *redisstore.Store

	// Guarded by Limiter.mu.
	health   redisstore.Health
	returned int64 // the moment when Redis came within reach
}

// connect returns the connection that a configuration asks for: the one in use if it is
// no other. l.mu is held.
func (l *Limiter) connect(c *config.Redis) (*connection, error) {
	n := &connection{config: c, health: redisstore.Health{Gateways: 1}}
	if used := l.redis; used != nil && reflect.DeepEqual(c, used.config) {
		return used, nil
	}
	if c == nil || len(c.Cluster) > 0 { // a Cluster is not supported yet: out of reach
		return n, nil
	}
	o := redisstore.Options{
		URL: c.URL, Timeout: c.Timeout, Prefix: c.Prefix, Observed: l.options.RedisObserved,
		Changed: func(h redisstore.Health) { l.redisChanged(n, h) },
	}
	if c.Sentinel != nil {
		o.Addresses, o.Master = c.Sentinel.Addresses, c.Sentinel.Master
	}
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
	if err := l.enforce(&active{config: a.config, set: a.set, since: a.since}, n); err != nil {
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
