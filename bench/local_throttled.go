// SPDX-License-Identifier: MIT

package main

import (
	"context"

	"github.com/throttled/throttled/v2"
	"github.com/throttled/throttled/v2/store/memstore"
)

// openThrottledLocal has no bound of keys: with one it keeps an LRU list, which is slower.
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
	decide := func(key string) bool {
		limited, _, err := limiter.RateLimitCtx(ctx, key, 1)
		return !limited && err == nil
	}
	return &localLimiter{decider: func() func(string) bool { return decide }}, nil
}
