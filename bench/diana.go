// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"unsafe"

	dianalib "github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/bench/measure"
	"github.com/diana-limiter/diana/bench/rivals"
	"github.com/diana-limiter/diana/config"
	"github.com/diana-limiter/diana/internal/redistest"
	"github.com/diana-limiter/diana/limit"
	"github.com/diana-limiter/diana/memstore"
	"github.com/diana-limiter/diana/redisstore"
)

// The calls to Diana's API are in this file. Adapters are beside their rivals, and exactness has a server of its own.

// The names of systems that lines mention.
const (
	dianaMemory  = "Diana memstore"
	dianaLimiter = "Diana Limiter"
	dianaReady   = dianaLimiter + ", prepared"
	dianaStore   = "Diana redisstore"
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
	ctx, cancel := context.WithTimeout(ctx, rivals.Patience)
	defer cancel()
	if err := l.Ready(ctx); err != nil {
		_ = l.Close() // the other error says more
		return nil, fmt.Errorf("limiter: %w", err)
	}
	return l, nil
}

// closeLimiter closes a Limiter whose counters nobody needs any more.
func closeLimiter(l *dianalib.Limiter) { _ = l.Close() }

// countersOf returns a store's counters of one limit.
func countersOf(store limit.Store, name string, a limit.Algorithm, q rivals.Quota) (any, error) {
	m, err := a.New(limit.Limit{N: q.N, Unit: q.Per})
	if err != nil {
		return nil, err
	}
	return store.Counters(name, m)
}

// localLimiter is the complete Diana: it finds the rules of a URL, beforehand if they are prepared, and makes a key of the
// actor.
func localLimiter(name string, prepared bool) rivals.Local {
	return rivals.Local{Name: name, Kind: measure.Diana, Open: func(q rivals.Quota, keys int) (*rivals.Limiter, error) {
		l, err := openLimiter(context.Background(), fmt.Sprintf("max_keys: %d\nlimits: [{url: /, rules: [{actor: account, unit: %v, rpu: %d}]}]\n",
			2*keys, q.Per, q.N))
		if err != nil {
			return nil, err
		}
		take := l.Take
		if prepared {
			take = l.Prepare("", "/").Take
		}
		return &rivals.Limiter{
			Close: func() { closeLimiter(l) },
			Decider: func() func(string) bool {
				// The rivals take a key, and a Request takes a map of actors. So a new actor costs Diana a write
				// to the map, and the same actor again does not.
				ctx, actors, last := context.Background(), map[string]string{}, ""
				return func(key string) bool {
					if key != last {
						actors["account"], last = key, key
					}
					d, err := take(ctx, dianalib.Request{Path: "/", Actors: actors})
					allowed := d.Allowed
					d.Done()
					return allowed && err == nil
				}
			},
		}, nil
	}}
}

// memstoreOf is a memstore with an algorithm. It is comparable to the rivals, because the caller hands it a
// key and a limit. A Charge takes a key as bytes, and the rivals take it as a string. A caller has its key in
// the form that its limiter takes, so no system copies it.
func memstoreOf(name string, a limit.Algorithm) rivals.Local {
	return rivals.Local{Name: name, Kind: measure.Diana, Open: func(q rivals.Quota, keys int) (*rivals.Limiter, error) {
		store := memstore.New(memstore.Options{MaxKeys: 2 * keys})
		counters, err := countersOf(store, "bench", a, q)
		return &rivals.Limiter{Close: func() {}, Decider: func() func(string) bool {
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
		}}, err
	}}
}

// tokenBuckets is a memstore with token buckets.
func tokenBuckets() rivals.Local { return memstoreOf(dianaMemory, limit.TokenBucket()) }

// otherMemstores are memstores with the other algorithms.
func otherMemstores() (all []rivals.Local) {
	for _, a := range []limit.Algorithm{limit.FixedWindow(), limit.LeakyBucket(), limit.SlidingWindow()} {
		s := memstoreOf(memstoreName(a.Name()), a)
		s.Work = a.Name()
		all = append(all, s)
	}
	return all
}

func memstoreName(algorithm string) string { return dianaMemory + ", " + algorithm }

// openStore returns a redisstore that is ready.
func openStore(ctx context.Context, url, prefix string) (*redisstore.Store, error) {
	store, err := redisstore.Open(redisstore.Options{URL: url, Timeout: rivals.Patience, Prefix: prefix})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, rivals.Patience)
	defer cancel()
	select {
	case <-store.Ready():
		return store, nil
	case <-ctx.Done():
		store.Close()
		return nil, fmt.Errorf("redisstore: %w", ctx.Err())
	}
}

// openRedisstore is Diana's store in Redis. It is comparable to the rivals, because the caller
// hands it a key and a limit.
func openRedisstore(ctx context.Context, s *redistest.Server) (*rivals.Shared, error) {
	store, err := openStore(ctx, s.URL(), "store")
	if err != nil {
		return nil, err
	}
	var charges []limit.Charge
	for i, q := range []rivals.Quota{rivals.ForAll, rivals.ForKey, rivals.ForKey} {
		c, err := countersOf(store, []string{"all", "account", "device"}[i], limit.TokenBucket(), q)
		if err != nil {
			store.Close()
			return nil, err
		}
		charges = append(charges, limit.Charge{Counters: c, Cost: 1})
	}
	return &rivals.Shared{
		Name: dianaStore, Kind: measure.Diana, Close: store.Close,
		Asker: func() rivals.Ask {
			own := slices.Clone(charges)
			return func(ctx context.Context, rules int, account, device string) error {
				own[1].Key, own[2].Key = append(own[1].Key[:0], account...), append(own[2].Key[:0], device...)
				asked := own
				if rules == 1 {
					asked = own[1:2]
				}
				_, err := store.Take(ctx, 0, asked)
				return err
			}
		},
	}, nil
}
