// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	dianalib "github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/internal/redistest"
	"github.com/diana-limiter/diana/internal/testproc"
	"github.com/diana-limiter/diana/limit"
	"github.com/diana-limiter/diana/redisstore"
)

// A refused actor has used up its limit for an hour at one gateway, and now asks another
// gateway again and again. The answer can only be a refusal for minutes, so after the first
// refusal the gateway need not ask Redis.

const refusedWorkload = "a refused actor, 32 callers"

var (
	refusals     = figure{name: "refusals", format: plainText, better: neither}
	refusalCalls = figure{name: "calls", format: plainText} // of scripts in Redis meanwhile, heartbeats included
)

// refuser is two gateways that share one limit.
type refuser struct {
	name  string
	ask   [2]func() func(context.Context) (allowed bool, err error) // one for each gateway; the result serves one caller
	close func()
}

func measureRefused(ctx context.Context, r *run, server *redistest.Server) error {
	r.note("  %s", refusedWorkload)
	for _, open := range []func(context.Context, *redistest.Server) (*refuser, error){refusingStores, refusingLimiters} {
		g, err := open(ctx, server)
		if err != nil {
			return err
		}
		err = g.measure(ctx, r, server)
		g.close()
		if err != nil {
			return fmt.Errorf("%s: %w", g.name, err)
		}
	}
	return nil
}

func (g *refuser) measure(ctx context.Context, r *run, server *redistest.Server) error {
	if _, err := server.Do("FLUSHALL", "SYNC"); err != nil {
		return err
	}
	use := g.ask[0]()
	for i := range g.ask {
		ask := g.ask[i]()
		if err := testproc.Poll(patience, func() error { _, err := ask(ctx); return err }); err != nil {
			return err
		}
	}
	for allowed := true; allowed; {
		var err error
		if allowed, err = use(ctx); err != nil {
			return err
		}
	}
	for range r.rounds {
		before, err := scriptCalls(server)
		if err != nil {
			return err
		}
		got := drive(32, r.span(500*time.Millisecond, 200*time.Millisecond), func(int) func() error {
			ask := g.ask[1]()
			return func() error {
				allowed, err := ask(ctx)
				if err == nil && allowed {
					err = errors.New("allowed over the limit")
				}
				return err
			}
		})
		if got.err != nil {
			return got.err
		}
		after, err := scriptCalls(server)
		if err != nil {
			return err
		}
		m := r.row(refusedWorkload, g.name, diana)
		m.add(decisionRate, got.rate())
		m.add(refusals, float64(got.latencies.n))
		m.add(refusalCalls, float64(after-before))
	}
	return ctx.Err()
}

func refusingStores(ctx context.Context, s *redistest.Server) (*refuser, error) {
	g := &refuser{name: dianaStore}
	var stores []*redisstore.Store
	g.close = func() {
		for _, store := range stores {
			store.Close()
		}
	}
	for i := range g.ask {
		store, err := openStore(ctx, s.URL(), "")
		if err != nil {
			g.close()
			return nil, err
		}
		stores = append(stores, store)
		counters, err := countersOf(store, "hour", limit.TokenBucket(), limit.Limit{N: 10, Unit: time.Hour})
		if err != nil {
			g.close()
			return nil, err
		}
		g.ask[i] = func() func(context.Context) (bool, error) {
			ch := []limit.Charge{{Counters: counters, Key: []byte("refused"), Cost: 1}}
			return func(ctx context.Context) (bool, error) { return store.Take(ctx, 0, ch) }
		}
	}
	return g, nil
}

func refusingLimiters(ctx context.Context, s *redistest.Server) (*refuser, error) {
	g := &refuser{name: dianaLimiter}
	var limiters []*dianalib.Limiter
	g.close = func() {
		for _, l := range limiters {
			closeLimiter(l)
		}
	}
	for i := range g.ask {
		l, err := openLimiter(ctx, fmt.Sprintf(`
redis: {url: %q, timeout: 5s}
limits:
- url: /
  rules: [{actor: account, unit: hour, rpu: 10, scope: global}]
`, s.URL()))
		if err != nil {
			g.close()
			return nil, err
		}
		limiters = append(limiters, l)
		g.ask[i] = func() func(context.Context) (bool, error) {
			actors := map[string]string{"account": "refused"}
			return func(ctx context.Context) (bool, error) { return takeActors(ctx, l, "/", actors) }
		}
	}
	return g, nil
}
