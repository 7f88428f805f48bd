// SPDX-License-Identifier: MIT

package main

import (
	"context"

	"github.com/ulule/limiter/v3"
	"github.com/ulule/limiter/v3/drivers/store/memory"
)

func openUluleLocal(q quota, _ int) (*localLimiter, error) {
	l := limiter.New(memory.NewStore(), limiter.Rate{Period: q.per, Limit: q.n})
	ctx := context.Background()
	decide := func(key string) bool {
		got, err := l.Get(ctx, key)
		return err == nil && !got.Reached
	}
	return &localLimiter{decider: func() func(string) bool { return decide }}, nil
}
