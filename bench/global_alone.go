// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"fmt"

	"github.com/diana-limiter/diana/internal/redistest"
	"github.com/diana-limiter/diana/internal/testproc"
)

// A lone request has no concurrent requests. The systems take turns request by request, because
// these times differ by microseconds and a bad moment of the machine should affect all systems.

const (
	aloneWorkload = "a lone request"

	bareOne    = "EVALSHA, rueidis"
	dianaOne   = dianaStore + ", 1 rule"
	dianaThree = dianaStore + ", 3 rules"
)

var requestCalls = figure{name: "calls/request", format: plainText} // of scripts in Redis

// aloneSystem is one way to ask.
type aloneSystem struct {
	name string
	work string
	kind kind
	ask  func(ctx context.Context, account, device string) error
}

func measureAlone(ctx context.Context, r *run, server *redistest.Server, systems []*globalSystem) error {
	r.note("  %s", aloneWorkload)
	client, err := newRueidis(ctx, server)
	if err != nil {
		return err
	}
	defer client.Close()
	empty := rueidisAsker{client, shaOf(emptyScript)}
	alone := []aloneSystem{{"EVALSHA of an empty script, rueidis", "", floor, func(ctx context.Context, account, _ string) error {
		return empty.one(ctx, account)
	}}}
	add := func(name, system string, rules int) {
		for _, s := range systems {
			if s.name != system {
				continue
			}
			a := s.asker()
			ask := a.three
			if rules == 1 {
				ask = func(ctx context.Context, account, _ string) error { return a.one(ctx, account) }
			}
			alone = append(alone, aloneSystem{name, fmt.Sprintf("rules: %d", rules), s.kind, ask})
		}
	}
	add(dianaOne, dianaStore, 1)
	add(dianaThree, dianaStore, 3)
	add(dianaLimiter+", 1 rule", dianaLimiter, 1)
	add(dianaLimiter+", 3 rules", dianaLimiter, 3)
	add("redis_rate, 1 rule", redisRateName, 1)
	add("redis_rate, 3 rules", redisRateName, 3)
	add(throttledRedis+", 1 rule", throttledRedis, 1)
	add(fixedWindows+", 1 rule", fixedWindows, 1)
	add(bareOne, evalshaRueidis, 1)
	add("3 EVALSHA in one go, rueidis", evalshaRueidis, 3)

	actors := uniform(r.count(million, million)).stream(0)
	for _, s := range alone {
		if err := testproc.Poll(patience, func() error { return s.ask(ctx, actors.next(), actors.next()) }); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	for range r.rounds {
		latencies := make([]histogram, len(alone))
		for n := range r.count(1500, 300) {
			if err := ctx.Err(); err != nil {
				return err
			}
			account, device := actors.next(), actors.next()
			for k := range alone {
				i := (n + k) % len(alone) // so that no system always follows the same one
				s := alone[i]
				took := stopwatch()
				if err := s.ask(ctx, account, device); err != nil {
					return fmt.Errorf("%s: %w", s.name, err)
				}
				latencies[i].add(took())
			}
		}
		for i, s := range alone {
			m := r.working(aloneWorkload, s.name, s.work, s.kind)
			m.add(p50, latencies[i].quantile(0.50).Seconds())
			m.add(p99, latencies[i].quantile(0.99).Seconds())
		}
	}
	for _, s := range alone {
		calls, err := callsOf(ctx, server, actors, s)
		if err != nil {
			return err
		}
		r.row(aloneWorkload, s.name, s.kind).add(requestCalls, calls)
	}
	return nil
}

// callsOf returns the number of scripts that Redis runs for a request.
func callsOf(ctx context.Context, server *redistest.Server, actors *stream, s aloneSystem) (float64, error) {
	const requests = 500
	before, err := scriptCalls(server)
	for i := 0; i < requests && err == nil; i++ {
		err = s.ask(ctx, actors.next(), actors.next())
	}
	after, err2 := scriptCalls(server)
	if err == nil {
		err = err2
	}
	return float64(after-before) / requests, err
}
