// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
	"github.com/throttled/throttled/v2"
	goredisstore "github.com/throttled/throttled/v2/store/goredisstore.v9"
	ulule "github.com/ulule/limiter/v3"
	ululeredis "github.com/ulule/limiter/v3/drivers/store/redis"

	"github.com/diana-limiter/diana/internal/redistest"
)

// ruleByRule decides by one limit: n a second for a key. All rivals decide one rule at a time.
type ruleByRule func(ctx context.Context, n int, key string) (allowed bool, err error)

func (decide ruleByRule) plenty(ctx context.Context) error {
	_, err := decide(ctx, allLimit, "all")
	return err
}

func (decide ruleByRule) one(ctx context.Context, key string) error {
	_, err := decide(ctx, perSecond, key)
	return err
}

// three asks rule by rule until one refuses.
func (decide ruleByRule) three(ctx context.Context, account, device string) error {
	for _, rule := range []struct {
		n   int
		key string
	}{{allLimit, "all"}, {perSecond, "account:" + account}, {perSecond, "device:" + device}} {
		if allowed, err := decide(ctx, rule.n, rule.key); err != nil || !allowed {
			return err
		}
	}
	return nil
}

// rivalOn returns a rival that uses a client of its own.
func rivalOn(client *redis.Client, name string, decide ruleByRule) *globalSystem {
	return &globalSystem{
		name: name, kind: rival, three: true,
		close: func() { _ = client.Close() }, // nothing is lost
		asker: func() asker { return decide },
	}
}

// openRedisRate uses redis_rate as its documentation does.
func openRedisRate(_ context.Context, s *redistest.Server) (*globalSystem, error) {
	client := newGoRedis(s)
	return rivalOn(client, redisRateName, redisRate(redis_rate.NewLimiter(client))), nil
}

// openRedisRatePipelined uses redis_rate on go-redis' AutoPipeline, which go-redis calls
// experimental. redis_rate is fastest with it.
func openRedisRatePipelined(_ context.Context, s *redistest.Server) (*globalSystem, error) {
	client := newGoRedis(s)
	pipeline, err := client.AutoPipeline()
	if err != nil {
		return nil, err
	}
	return rivalOn(client, redisRatePipelined, redisRate(redis_rate.NewLimiter(pipeline))), nil
}

func redisRate(l *redis_rate.Limiter) ruleByRule {
	return func(ctx context.Context, n int, key string) (bool, error) {
		result, err := l.Allow(ctx, key, redis_rate.PerSecond(n))
		return err == nil && result.Allowed > 0, err
	}
}

// openThrottledRedis uses throttled's store for go-redis. Many of its answers for a hot key are
// errors, because it gives up after ten attempts to change a value that others change.
func openThrottledRedis(_ context.Context, s *redistest.Server) (*globalSystem, error) {
	client := newGoRedis(s)
	store, err := goredisstore.NewCtx(client, "throttled:")
	if err != nil {
		return nil, err
	}
	limiters := map[int]*throttled.GCRARateLimiterCtx{}
	for _, n := range []int{perSecond, allLimit} {
		// It allows one more than MaxBurst.
		limiters[n], err = throttled.NewGCRARateLimiterCtx(store, throttled.RateQuota{MaxRate: throttled.PerSec(n), MaxBurst: n - 1})
		if err != nil {
			return nil, err
		}
	}
	return rivalOn(client, throttledRedis, func(ctx context.Context, n int, key string) (bool, error) {
		limited, _, err := limiters[n].RateLimitCtx(ctx, key, 1)
		return !limited, err
	}), nil
}

// openUluleRedis uses ulule/limiter, which has only fixed windows. They are less work than
// token buckets.
func openUluleRedis(_ context.Context, s *redistest.Server) (*globalSystem, error) {
	client := newGoRedis(s)
	store, err := ululeredis.NewStore(client)
	if err != nil {
		return nil, err
	}
	limiters := map[int]*ulule.Limiter{}
	for _, n := range []int{perSecond, allLimit} {
		limiters[n] = ulule.New(store, ulule.Rate{Period: time.Second, Limit: int64(n)})
	}
	return rivalOn(client, fixedWindows, func(ctx context.Context, n int, key string) (bool, error) {
		got, err := limiters[n].Get(ctx, key)
		return err == nil && !got.Reached, err
	}), nil
}
