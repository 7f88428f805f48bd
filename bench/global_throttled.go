// SPDX-License-Identifier: MIT

package main

import (
	"context"

	"github.com/throttled/throttled/v2"
	goredisstore "github.com/throttled/throttled/v2/store/goredisstore.v9"

	"github.com/diana-limiter/diana/internal/redistest"
)

// openThrottledRedis is throttled on its store for go-redis. Under a hot key many of its
// answers are errors: it gives up after ten tries to change a value that others change.
func openThrottledRedis(_ context.Context, s *redistest.Server) (*globalSystem, error) {
	client := newGoRedis(s)
	store, err := goredisstore.NewCtx(client, "throttled:")
	if err != nil {
		return nil, err
	}
	var a throttledAsker
	for _, l := range []struct {
		limiter **throttled.GCRARateLimiterCtx
		n       int
	}{{&a.limiter, perSecond}, {&a.all, allLimit}} {
		// It allows one more than MaxBurst.
		*l.limiter, err = throttled.NewGCRARateLimiterCtx(store, throttled.RateQuota{MaxRate: throttled.PerSec(l.n), MaxBurst: l.n - 1})
		if err != nil {
			return nil, err
		}
	}
	return &globalSystem{
		name: "throttled", kind: rival, three: true,
		close: func() { _ = client.Close() },
		asker: func() asker { return a },
	}, nil
}

type throttledAsker struct{ limiter, all *throttled.GCRARateLimiterCtx }

func (a throttledAsker) plenty(ctx context.Context) error {
	_, _, err := a.all.RateLimitCtx(ctx, "all", 1)
	return err
}

func (a throttledAsker) one(ctx context.Context, key string) error {
	_, _, err := a.limiter.RateLimitCtx(ctx, key, 1)
	return err
}

// three asks rule after rule, until one refuses: it knows no other way.
func (a throttledAsker) three(ctx context.Context, account, device string) error {
	for _, rule := range []struct {
		limiter *throttled.GCRARateLimiterCtx
		key     string
	}{{a.all, "all"}, {a.limiter, "account:" + account}, {a.limiter, "device:" + device}} {
		if limited, _, err := rule.limiter.RateLimitCtx(ctx, rule.key, 1); err != nil || limited {
			return err
		}
	}
	return nil
}
