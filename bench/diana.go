// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"unsafe"

	dianalib "github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/config"
	"github.com/diana-limiter/diana/internal/paths"
	"github.com/diana-limiter/diana/limit"
	"github.com/diana-limiter/diana/memstore"
	"github.com/diana-limiter/diana/redisstore"
)

// Every call to Diana's API is in this file and in the files whose names end with _diana.go. There are two
// exceptions: the exact and the refused workloads take from a store, and adapters are beside their rivals.

// maxSegments and maxPath are the longest path that Diana accepts.
const (
	maxSegments = paths.MaxSegments
	maxPath     = paths.MaxLength
)

// openLimiter returns a Limiter that is ready.
func openLimiter(ctx context.Context, text string) (*dianalib.Limiter, error) {
	c, err := config.Parse("bench", []byte(text))
	if err != nil {
		return nil, err
	}
	l, err := dianalib.Options{Logger: slog.New(slog.NewTextHandler(io.Discard, nil))}.New(c)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := l.Ready(ctx); err != nil {
		_ = l.Close() // the other error says more
		return nil, fmt.Errorf("limiter: %w", err)
	}
	return l, nil
}

// closeLimiter closes a Limiter whose counters nobody needs any more.
func closeLimiter(l *dianalib.Limiter) { _ = l.Close() }

// take returns whether a Limiter allows a request. It is an error if the Limiter had to decide
// without Redis.
func take(ctx context.Context, l *dianalib.Limiter, r dianalib.Request) (allowed bool, err error) {
	d, err := l.Take(ctx, r)
	allowed, degraded := d.Allowed, d.Degraded
	d.Done()
	if err == nil && degraded {
		err = errors.New("decided without Redis")
	}
	return allowed, err
}

// takeActors returns whether a Limiter allows a request for a path by some actors.
func takeActors(ctx context.Context, l *dianalib.Limiter, path string, actors map[string]string) (bool, error) {
	return take(ctx, l, dianalib.Request{Path: path, Actors: actors})
}

// takeHTTP returns whether a Limiter allows an HTTP request, as if it were for another path.
func takeHTTP(ctx context.Context, l *dianalib.Limiter, r *http.Request, path string) (bool, error) {
	return take(ctx, l, dianalib.Request{Method: r.Method, Path: path, HTTP: r})
}

// openHandler returns a handler with a Limiter in front.
func openHandler(ctx context.Context, text string, next http.Handler) (http.Handler, func(), error) {
	l, err := openLimiter(ctx, text)
	if err != nil {
		return nil, nil, err
	}
	return l.Handler(next), func() { closeLimiter(l) }, nil
}

// countersOf returns a store's counters of one limit.
func countersOf(store limit.Store, name string, a limit.Algorithm, l limit.Limit) (any, error) {
	m, err := a.New(l)
	if err != nil {
		return nil, err
	}
	return store.Counters(name, m)
}

// openStore returns a redisstore that is ready.
func openStore(ctx context.Context, url, prefix string) (*redisstore.Store, error) {
	store, err := redisstore.Open(redisstore.Options{URL: url, Timeout: patience, Prefix: prefix})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	select {
	case <-store.Ready():
		return store, nil
	case <-ctx.Done():
		store.Close()
		return nil, fmt.Errorf("redisstore: %w", ctx.Err())
	}
}

// openLocalLimiter is the complete Diana: it finds the rules of a URL and makes a key of the
// actor.
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
		close: func() { closeLimiter(l) },
		decider: func() func(string) bool {
			// The rivals take a key, and a Request takes a map of actors. So a new actor costs Diana a write
			// to the map, and the same actor again does not.
			ctx, actors, last := context.Background(), map[string]string{}, ""
			return func(key string) bool {
				if key != last {
					actors["account"], last = key, key
				}
				allowed, err := takeActors(ctx, l, "/", actors)
				return allowed && err == nil
			}
		},
	}, nil
}

// openMemstore is a memstore with a token bucket. It is comparable to the rivals, because the
// caller hands it a key and a limit.
func openMemstore(q quota, keys int) (*localLimiter, error) {
	return openAlgorithm(limit.TokenBucket(), q, keys)
}

// otherMemstores are memstores with the other algorithms.
func otherMemstores() (all []localSystem) {
	for _, a := range []limit.Algorithm{limit.FixedWindow(), limit.LeakyBucket(), limit.SlidingWindow()} {
		open := func(q quota, keys int) (*localLimiter, error) { return openAlgorithm(a, q, keys) }
		all = append(all, localSystem{memstoreName(a.Name()), diana, a.Name(), open})
	}
	return all
}

func memstoreName(algorithm string) string { return dianaMemory + ", " + algorithm }

// openAlgorithm is a memstore. A Charge takes a key as bytes, and the rivals take it as a string. A
// caller has its key in the form that its limiter takes, so no system copies it.
func openAlgorithm(a limit.Algorithm, q quota, keys int) (*localLimiter, error) {
	store := memstore.New(memstore.Options{MaxKeys: 2 * keys})
	counters, err := countersOf(store, "bench", a, limit.Limit{N: q.n, Unit: q.per})
	if err != nil {
		return nil, err
	}
	return &localLimiter{decider: func() func(string) bool {
		own := &struct {
			charge [1]limit.Charge
			_      [128]byte // otherwise two goroutines could write to the same cache line
		}{}
		own.charge[0] = limit.Charge{Counters: counters, Cost: 1}
		ctx := context.Background()
		return func(key string) bool {
			own.charge[0].Key = unsafe.Slice(unsafe.StringData(key), len(key))
			allowed, err := store.Take(ctx, store.Now(), own.charge[:])
			return allowed && err == nil
		}
	}}, nil
}
