// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"time"

	"github.com/go-redis/redis_rate/v10"

	"github.com/diana-limiter/diana/internal/redistest"
)

// openRedisRate is redis_rate as its documentation shows it.
func openRedisRate(_ context.Context, s *redistest.Server) (*globalSystem, error) {
	client := newGoRedis(s)
	a := redisRateAsker{redis_rate.NewLimiter(client)}
	return &globalSystem{
		name: redisRateName, kind: rival, three: true,
		close: func() { _ = client.Close() },
		asker: func() asker { return a },
	}, nil
}

// openRedisRatePipelined is redis_rate through what go-redis calls experimental, which
// is the fastest that it can be.
func openRedisRatePipelined(_ context.Context, s *redistest.Server) (*globalSystem, error) {
	client := newGoRedis(s)
	pipeline, err := client.AutoPipeline()
	if err != nil {
		return nil, err
	}
	a := redisRateAsker{redis_rate.NewLimiter(pipeline)}
	return &globalSystem{
		name: "redis_rate, AutoPipeline", kind: rival, three: true,
		close: func() { _ = client.Close() },
		asker: func() asker { return a },
	}, nil
}

type redisRateAsker struct{ limiter *redis_rate.Limiter }

func (a redisRateAsker) plenty(ctx context.Context) error {
	_, err := a.limiter.Allow(ctx, "all", redis_rate.PerSecond(allLimit))
	return err
}

func (a redisRateAsker) one(ctx context.Context, key string) error {
	_, err := a.limiter.Allow(ctx, key, redis_rate.PerSecond(perSecond))
	return err
}

// three asks rule after rule, until one refuses: it knows no other way.
func (a redisRateAsker) three(ctx context.Context, account, device string) error {
	for _, rule := range []struct {
		key string
		n   int
	}{{"all", allLimit}, {"account:" + account, perSecond}, {"device:" + device, perSecond}} {
		result, err := a.limiter.Allow(ctx, rule.key, redis_rate.Limit{Rate: rule.n, Burst: rule.n, Period: time.Second})
		if err != nil || result.Allowed == 0 {
			return err
		}
	}
	return nil
}
