// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"sync"
	"time"

	"github.com/didip/tollbooth/v7/limiter"
	"github.com/go-chi/httprate"
	"github.com/juju/ratelimit"
	"github.com/sethvargo/go-limiter/memorystore"
	"github.com/throttled/throttled/v2"
	"github.com/throttled/throttled/v2/store/memstore"
	ulule "github.com/ulule/limiter/v3"
	"github.com/ulule/limiter/v3/drivers/store/memory"
	"golang.org/x/time/rate"
)

func localRivals() []localSystem {
	var all []localSystem
	for _, s := range []struct {
		name string
		open func(quota, int) (*localLimiter, error)
	}{
		{xTimeName, openXTime},
		{"juju/ratelimit in a sync.Map", openJuju},
		{goLimiterName, openGoLimiter},
		{"throttled", openThrottledLocal},
		{"ulule", openUluleLocal},
		{"tollbooth", openTollbooth},
		{httpRateName, openHTTPRate},
	} {
		all = append(all, localSystem{name: s.name, kind: rival, open: s.open})
	}
	return all
}

// decidedBy returns a limiter with a function that all goroutines share.
func decidedBy(decide func(key string) bool) *localLimiter {
	return &localLimiter{decider: func() func(string) bool { return decide }}
}

// A sync.Map holds the limiters of packages that have one limiter for each key.

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
	return decidedBy(func(key string) bool {
		l, ok := all.Load(key)
		if !ok { // LoadOrStore alone would make a limiter each time
			l, _ = all.LoadOrStore(key, create())
		}
		return allow(l.(L))
	})
}

// openGoLimiter makes its map large enough from the start, as its documentation advises.
func openGoLimiter(q quota, keys int) (*localLimiter, error) {
	store, err := memorystore.New(&memorystore.Config{Tokens: uint64(q.n), Interval: q.per, InitialAlloc: keys})
	if err != nil {
		return nil, err
	}
	ctx := context.Background()
	l := decidedBy(func(key string) bool {
		_, _, _, ok, err := store.Take(ctx, key)
		return ok && err == nil
	})
	l.close = func() { _ = store.Close(ctx) } // never fails
	return l, nil
}

// openThrottledLocal sets no bound on keys, because with one throttled keeps an LRU list, which
// is slower.
func openThrottledLocal(q quota, _ int) (*localLimiter, error) {
	store, err := memstore.NewCtx(0)
	if err != nil {
		return nil, err
	}
	// It allows one more than MaxBurst.
	limiter, err := throttled.NewGCRARateLimiterCtx(store, throttled.RateQuota{
		MaxRate: throttled.PerDuration(int(q.n), q.per), MaxBurst: int(q.n - 1),
	})
	if err != nil {
		return nil, err
	}
	ctx := context.Background()
	return decidedBy(func(key string) bool {
		limited, _, err := limiter.RateLimitCtx(ctx, key, 1)
		return !limited && err == nil
	}), nil
}

func openUluleLocal(q quota, _ int) (*localLimiter, error) {
	l := ulule.New(memory.NewStore(), ulule.Rate{Period: q.per, Limit: q.n})
	ctx := context.Background()
	return decidedBy(func(key string) bool {
		got, err := l.Get(ctx, key)
		return err == nil && !got.Reached
	}), nil
}

// openTollbooth calls the limiter itself, because the rest of tollbooth handles HTTP.
func openTollbooth(q quota, _ int) (*localLimiter, error) {
	l := limiter.New(nil).SetMax(float64(q.n) / q.per.Seconds()).SetBurst(int(q.n))
	return decidedBy(func(key string) bool { return !l.LimitReached(key) }), nil
}

// openHTTPRate does what httprate's middleware does, without HTTP and without the lock that
// the middleware holds meanwhile. So it is faster than httprate, and wrong when two requests
// arrive at once.
func openHTTPRate(q quota, _ int) (*localLimiter, error) {
	counter := httprate.NewLocalLimitCounter(q.per)
	return decidedBy(func(key string) bool {
		now := time.Now().UTC()
		window := now.Truncate(q.per)
		this, last, err := counter.Get(key, window, window.Add(-q.per))
		if err != nil {
			return false
		}
		passed := float64(now.Sub(window)) / float64(q.per)
		if float64(last)*(1-passed)+float64(this)+1 > float64(q.n) {
			return false
		}
		return counter.IncrementBy(key, window, 1) == nil
	}), nil
}
