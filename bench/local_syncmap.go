// SPDX-License-Identifier: MIT

package main

import (
	"sync"

	"github.com/juju/ratelimit"
	"golang.org/x/time/rate"
)

// Limiters of one key, in the map that the standard library has for that.

func openXTime(q quota, _ int) (*localLimiter, error) {
	return inSyncMap(
		func() *rate.Limiter { return rate.NewLimiter(rate.Every(q.step()), int(q.n)) },
		(*rate.Limiter).Allow,
	), nil
}

func openJuju(q quota, _ int) (*localLimiter, error) {
	return inSyncMap(
		func() *ratelimit.Bucket { return ratelimit.NewBucket(q.step(), q.n) },
		func(b *ratelimit.Bucket) bool { return b.TakeAvailable(1) == 1 },
	), nil
}

func inSyncMap[L any](create func() L, allow func(L) bool) *localLimiter {
	var all sync.Map
	decide := func(key string) bool {
		l, ok := all.Load(key)
		if !ok { // only then, as it makes one in vain otherwise
			l, _ = all.LoadOrStore(key, create())
		}
		return allow(l.(L))
	}
	return &localLimiter{decider: func() func(string) bool { return decide }}
}
