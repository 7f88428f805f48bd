// SPDX-License-Identifier: MIT

package main

import (
	"context"

	"github.com/sethvargo/go-limiter/memorystore"
)

// openGoLimiter has its map made large enough at once, as its documentation advises.
func openGoLimiter(q quota, keys int) (*localLimiter, error) {
	store, err := memorystore.New(&memorystore.Config{Tokens: uint64(q.n), Interval: q.per, InitialAlloc: keys})
	if err != nil {
		return nil, err
	}
	ctx := context.Background()
	decide := func(key string) bool {
		_, _, _, ok, err := store.Take(ctx, key)
		return ok && err == nil
	}
	return &localLimiter{
		decider: func() func(string) bool { return decide },
		close:   func() { _ = store.Close(ctx) }, // it fails never
	}, nil
}
