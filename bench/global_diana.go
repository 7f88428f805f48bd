// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"fmt"
	"time"

	dianalib "github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/internal/redistest"
	"github.com/diana-limiter/diana/limit"
	"github.com/diana-limiter/diana/redisstore"
)

// openRedisstore is Diana's store in Redis. It is comparable to the rivals, because the caller
// hands it a key and a limit.
func openRedisstore(ctx context.Context, s *redistest.Server) (*globalSystem, error) {
	store, err := openStore(ctx, s.URL(), "store")
	if err != nil {
		return nil, err
	}
	var counters []any
	for _, r := range []struct {
		name string
		n    int64
	}{{"one", perSecond}, {"all", allLimit}, {"account", perSecond}, {"device", perSecond}} {
		c, err := countersOf(store, r.name, limit.TokenBucket(), limit.Limit{N: r.n, Unit: time.Second})
		if err != nil {
			store.Close()
			return nil, err
		}
		counters = append(counters, c)
	}
	return &globalSystem{
		name: dianaStore, kind: diana, three: true, close: store.Close,
		asker: func() asker {
			a := &storeAsker{store: store}
			for _, c := range counters {
				a.charges = append(a.charges, limit.Charge{Counters: c, Cost: 1})
			}
			return a
		},
	}, nil
}

type storeAsker struct {
	store   *redisstore.Store
	charges []limit.Charge
}

func (a *storeAsker) plenty(ctx context.Context) error {
	_, err := a.store.Take(ctx, 0, a.charges[1:2])
	return err
}

func (a *storeAsker) one(ctx context.Context, key string) error {
	ch := a.charges[:1]
	ch[0].Key = append(ch[0].Key[:0], key...)
	_, err := a.store.Take(ctx, 0, ch)
	return err
}

func (a *storeAsker) three(ctx context.Context, account, device string) error {
	ch := a.charges[1:]
	ch[1].Key = append(ch[1].Key[:0], account...)
	ch[2].Key = append(ch[2].Key[:0], device...)
	_, err := a.store.Take(ctx, 0, ch)
	return err
}

// openGlobalLimiter is the complete Diana: it finds the rules, makes keys, and also keeps
// counters in this process in case Redis fails.
func openGlobalLimiter(ctx context.Context, s *redistest.Server) (*globalSystem, error) {
	l, err := openLimiter(ctx, fmt.Sprintf(`
redis: {url: %q, timeout: 5s, prefix: limiter}
max_keys: 4000000
limits:
- url: /all
  rules: [{unit: second, rpu: %[3]d, scope: global}]
- url: /one
  rules: [{actor: account, unit: second, rpu: %[2]d, scope: global}]
- url: /three
  rules:
  - {unit: second, rpu: %[3]d, scope: global}
  - {actor: account, unit: second, rpu: %[2]d, scope: global}
  - {actor: device, unit: second, rpu: %[2]d, scope: global}
`, s.URL(), perSecond, allLimit))
	if err != nil {
		return nil, err
	}
	return &globalSystem{
		name: dianaLimiter, kind: diana, three: true,
		close: func() { closeLimiter(l) },
		asker: func() asker { return &limiterAsker{l, map[string]string{}} },
	}, nil
}

type limiterAsker struct {
	limiter *dianalib.Limiter
	actors  map[string]string
}

func (a *limiterAsker) plenty(ctx context.Context) error { return a.take(ctx, "/all") }

func (a *limiterAsker) one(ctx context.Context, key string) error {
	a.actors["account"] = key
	return a.take(ctx, "/one")
}

func (a *limiterAsker) three(ctx context.Context, account, device string) error {
	a.actors["account"], a.actors["device"] = account, device
	return a.take(ctx, "/three")
}

func (a *limiterAsker) take(ctx context.Context, path string) error {
	_, err := takeActors(ctx, a.limiter, path, a.actors)
	return err
}
