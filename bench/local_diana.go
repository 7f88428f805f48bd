// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"fmt"

	dianalib "github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/limit"
	"github.com/diana-limiter/diana/memstore"
)

// openMemstore is Diana's store in memory alone, with a token bucket: what is comparable
// to the rivals, which are given a key and a limit.
func openMemstore(q quota, keys int) (*localLimiter, error) {
	return memstoreOf(limit.TokenBucket()).open(q, keys)
}

// memstoreOf is the store with another algorithm.
func memstoreOf(a limit.Algorithm) localSystem {
	return localSystem{dianaMemory + ", " + a.Name(), diana, func(q quota, keys int) (*localLimiter, error) {
		m, err := a.New(limit.Limit{N: q.n, Unit: q.per})
		if err != nil {
			return nil, err
		}
		store := memstore.New(memstore.Options{MaxKeys: 2 * keys})
		counters, err := store.Counters("bench", m)
		if err != nil {
			return nil, err
		}
		return &localLimiter{decider: func() func(string) bool {
			// With so much room that no two goroutines write to the same cache line.
			ch := make([]limit.Charge, 1, 4)
			ch[0] = limit.Charge{Counters: counters, Cost: 1, Key: make([]byte, 0, 128)}
			ctx := context.Background()
			return func(key string) bool {
				ch[0].Key = append(ch[0].Key[:0], key...)
				allowed, err := store.Take(ctx, store.Now(), ch)
				return allowed && err == nil
			}
		}}, nil
	}}
}

// openLocalLimiter is the whole of Diana: the rules of a URL are found, and a key is made
// of who asks.
func openLocalLimiter(q quota, keys int) (*localLimiter, error) {
	l, err := openLimiter(context.Background(), fmt.Sprintf(`
max_keys: %d
limits:
- url: /
  rules: [{actor: account, unit: %v, rpu: %d}]
`, 2*keys, q.per, q.n))
	if err != nil {
		return nil, err
	}
	return &localLimiter{
		close: func() { _ = l.Close() }, // it has nothing to lose
		decider: func() func(string) bool {
			ctx := context.Background()
			request := dianalib.Request{Path: "/", Actors: map[string]string{}}
			return func(key string) bool {
				request.Actors["account"] = key
				d, err := l.Take(ctx, request)
				allowed := d.Allowed
				d.Done()
				return allowed && err == nil
			}
		},
	}, nil
}
