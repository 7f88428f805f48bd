// SPDX-License-Identifier: MIT

package diana

import (
	"reflect"

	"github.com/diana-limiter/diana/config"
	"github.com/diana-limiter/diana/redisstore"
)

// connect makes the store in Redis that a configuration asks for, unless it is there
// already. l.mu is held.
func (l *Limiter) connect(c *config.Redis) error {
	if reflect.DeepEqual(c, l.redis) {
		return nil
	}
	var global *redisstore.Store
	if c != nil && len(c.Cluster) == 0 { // a Cluster is not supported yet: out of reach
		o := redisstore.Options{
			URL: c.URL, Timeout: c.Timeout, Prefix: c.Prefix,
			Changed: l.redisChanged, Observed: l.options.RedisObserved,
		}
		if c.Sentinel != nil {
			o.Addresses, o.Master = c.Sentinel.Addresses, c.Sentinel.Master
		}
		var err error
		if global, err = redisstore.Open(o); err != nil {
			return err
		}
	}
	if old := l.global; old != nil {
		go old.Close() // it may be telling us something, and waits for l.mu
	}
	l.redis, l.global = c, global
	l.health = redisstore.Health{Gateways: 1}
	return nil
}

// redisChanged is told when Redis comes within reach or out of it, and when the number
// of gateways changes, which changes each one's share.
func (l *Limiter) redisChanged(h redisstore.Health) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before := l.health
	l.health = h
	if h.Up && !before.Up {
		l.returned = l.local.Now()
	}
	a := l.active.Load()
	if a == nil {
		return // the first configuration is still being put in force
	}
	if err := l.enforce(&active{config: a.config, set: a.set, since: a.since}); err != nil {
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
