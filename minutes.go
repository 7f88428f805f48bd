// SPDX-License-Identifier: MIT

package diana

import (
	"context"
	"errors"
	"time"

	"github.com/diana-limiter/diana/internal/minutes"
)

// EachMinute calls f for each minute from since on, but at most for the last day, the newest first. f gets what
// all gateways with the same Redis have decided in the minute, and how many gateways have reported it. The
// counts are those of EachRule, for all rules together. So a request that several rules allow counts under
// each of them. A gateway reports within a second, and from its first decision on.
//
// The error says why there are no such counts: no Redis is configured, or it is unavailable. f may then have
// been called. EachMinute asks Redis, so it is for operators and not for requests.
func (l *Limiter) EachMinute(ctx context.Context, since time.Time, f func(at time.Time, gateways int, allowed, refused, shadowRefused, delayed int64)) error {
	n := l.redis.inUse()
	if n.store == nil {
		return errNoRedis
	}
	return n.store.EachMinute(ctx, since, f)
}

var errNoRedis = errors.New("diana: no redis is configured")

// minutes is redisstore.Options.Minutes of all stores of this gateway.
func (l *redisLink) minutes(now time.Time, f func(at time.Time, allowed, refused, shadowRefused, delayed int64)) {
	l.ledger.Note(now, l.decider.Totals())
	l.ledger.Each(now, func(at time.Time, c minutes.Counts) {
		f(at, c.Allowed, c.Refused, c.ShadowRefused, c.Delayed)
	})
}
