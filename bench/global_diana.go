// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	dianalib "github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/config"
	"github.com/diana-limiter/diana/internal/redistest"
	"github.com/diana-limiter/diana/limit"
	"github.com/diana-limiter/diana/redisstore"
)

// openRedisstore is Diana's store in Redis alone: what is comparable to the rivals,
// which are given a key and a limit.
func openRedisstore(ctx context.Context, s *redistest.Server) (*globalSystem, error) {
	store, err := redisstore.Open(redisstore.Options{URL: s.URL(), Timeout: patience, Prefix: "store"})
	if err != nil {
		return nil, err
	}
	if err := await(ctx, store.Up); err != nil {
		store.Close()
		return nil, fmt.Errorf("redisstore: %w", err)
	}
	var counters []limit.Counters
	for _, r := range []struct {
		name string
		n    int64
	}{{"one", perSecond}, {"all", allLimit}, {"account", perSecond}, {"device", perSecond}} {
		m, err := limit.TokenBucket().New(limit.Limit{N: r.n, Unit: time.Second})
		if err != nil {
			return nil, err
		}
		c, err := store.Counters(r.name, m)
		if err != nil {
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

// openGlobalLimiter is the whole of Diana: rules are found and keys made, and counters
// are kept in this process too, for the case that Redis fails.
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
		close: func() { _ = l.Close() }, // it has nothing to lose
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
	d, err := a.limiter.Take(ctx, dianalib.Request{Path: path, Actors: a.actors})
	degraded := d.Degraded
	d.Done()
	if err == nil && degraded {
		err = errors.New("judged without Redis")
	}
	return err
}

// openLimiter returns a Limiter that has found its Redis, if it has one.
func openLimiter(ctx context.Context, text string) (*dianalib.Limiter, error) {
	c, err := config.Parse("bench", []byte(text))
	if err != nil {
		return nil, err
	}
	l, err := dianalib.Options{Logger: slog.New(slog.NewTextHandler(io.Discard, nil))}.New(c)
	if err != nil {
		return nil, err
	}
	if err := await(ctx, func() bool { return !l.Status().Degraded }); err != nil {
		_ = l.Close() // the other error says more
		return nil, fmt.Errorf("limiter: %w", err)
	}
	return l, nil
}

// await waits until something is so.
func await(ctx context.Context, so func() bool) error {
	for end := time.Now().Add(patience); !so(); time.Sleep(time.Millisecond) {
		if err := ctx.Err(); err != nil {
			return err
		}
		if time.Now().After(end) {
			return errors.New("no answer from Redis")
		}
	}
	return nil
}
