// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"time"

	"github.com/ulule/limiter/v3"
	ululeredis "github.com/ulule/limiter/v3/drivers/store/redis"

	"github.com/diana-limiter/diana/internal/redistest"
)

// openUluleRedis is ulule/limiter in Redis. It knows fixed windows only, which are less
// work than token buckets.
func openUluleRedis(_ context.Context, s *redistest.Server) (*globalSystem, error) {
	client := newGoRedis(s)
	store, err := ululeredis.NewStore(client)
	if err != nil {
		return nil, err
	}
	a := ululeAsker{
		limiter.New(store, limiter.Rate{Period: time.Second, Limit: perSecond}),
		limiter.New(store, limiter.Rate{Period: time.Second, Limit: allLimit}),
	}
	return &globalSystem{
		name: "ulule (fixed window)", kind: rival, three: true,
		close: func() { _ = client.Close() },
		asker: func() asker { return a },
	}, nil
}

type ululeAsker struct{ limiter, all *limiter.Limiter }

func (a ululeAsker) plenty(ctx context.Context) error {
	_, err := a.all.Get(ctx, "all")
	return err
}

func (a ululeAsker) one(ctx context.Context, key string) error {
	_, err := a.limiter.Get(ctx, key)
	return err
}

// three asks rule after rule, until one refuses: it knows no other way.
func (a ululeAsker) three(ctx context.Context, account, device string) error {
	for _, rule := range []struct {
		limiter *limiter.Limiter
		key     string
	}{{a.all, "all"}, {a.limiter, "account:" + account}, {a.limiter, "device:" + device}} {
		if got, err := rule.limiter.Get(ctx, rule.key); err != nil || got.Reached {
			return err
		}
	}
	return nil
}
