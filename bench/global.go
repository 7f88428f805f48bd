// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/diana-limiter/diana/internal/redistest"
)

// What is measured with Redis: callers that ask again as soon as they are answered, for
// keys of which each may have 100 a second. All have the same Redis, on this machine,
// and one after another have it for themselves, empty.
//
// Rivals wait for Redis as long as it takes and ask once, as Diana does: else what is
// measured under load is also how often they ask again.

const (
	perSecond = 100        // of each key
	allLimit  = 10_000_000 // a second, of everyone together, where there are three rules
	patience  = 5 * time.Second
)

// The figures of this group.
const (
	decisionRate = "decisions/s"
	p50          = "p50"
	p99          = "p99"
	redisTime    = "Redis' CPU" // for a decision
	failures     = "errors"
)

// globalSystem is one who is measured.
type globalSystem struct {
	name  string
	kind  kind
	asker func() asker // for one caller
	three bool         // can be asked for three rules
	line  string       // of a picture, if there are ever more of it
	close func()
}

// asker asks for decisions, for one caller. Whether they are refusals does not matter
// here: what is right is judged by others.
type asker interface {
	// plenty asks by one rule, for everyone together, that is never used up.
	plenty(ctx context.Context) error

	// one asks by one rule, for a key.
	one(ctx context.Context, key string) error

	// three asks by three rules: one for everyone, one for an account, one for a device.
	three(ctx context.Context, account, device string) error
}

// The names of those that targets speak of.
const (
	dianaStore     = "Diana redisstore"
	dianaLimiter   = "Diana Limiter"
	redisRateName  = "redis_rate"
	evalshaRueidis = "EVALSHA each, rueidis"
)

// globalOpener opens one that is measured, with a client of its own.
type globalOpener func(context.Context, *redistest.Server) (*globalSystem, error)

// openGlobal opens all who are measured, each with a client of its own.
func openGlobal(ctx context.Context, s *redistest.Server) (systems []*globalSystem, err error) {
	for _, open := range []globalOpener{
		openRedisstore, openGlobalLimiter,
		openRedisRate, openRedisRatePipelined, openThrottledRedis, openUluleRedis,
		openRueidis, openGoRedis, openGoRedisPipelined,
	} {
		system, err := open(ctx, s)
		if err != nil {
			closeGlobal(systems)
			return nil, err
		}
		systems = append(systems, system)
	}
	return systems, nil
}

func closeGlobal(systems []*globalSystem) {
	for _, s := range systems {
		s.close()
	}
}

// globalLoad is a workload.
type globalLoad struct {
	name    string
	callers int
	rules   int  // 0: the one that is never used up
	quick   bool // is part of a quick run
	actors  *population

	accounts *population // with three rules: a tenth as many as there are devices
}

// globalName makes the name of a workload.
func globalName(what string, callers int) string {
	if callers == 1 {
		return what + ", 1 caller"
	}
	return fmt.Sprintf("%s, %d callers", what, callers)
}

// The workloads, without the number of callers.
const (
	hotWorkload     = "hot key, nearly all refused"
	uniformWorkload = "1 M keys uniform"
	zipfWorkload    = "1 M keys Zipf 0.99"
	plentyWorkload  = "hot key, all allowed"
	threeWorkload   = "3 rules: all, account, device"
)

func globalLoads(devices int) (loads []globalLoad) {
	many := uniform(devices)
	for _, w := range []globalLoad{
		{name: hotWorkload, rules: 1, actors: hotKey()},
		{name: plentyWorkload, actors: hotKey()},
		{name: uniformWorkload, rules: 1, actors: many},
		{name: zipfWorkload, rules: 1, actors: zipf(devices, 0.99)},
		{name: threeWorkload, rules: 3, actors: many, accounts: uniform(devices / 10)},
	} {
		for _, callers := range []int{1, 32, 256} {
			if w.rules == 0 && callers != 256 {
				continue // alone a hot key is a key like others
			}
			l := w
			l.name, l.callers = globalName(w.name, callers), callers
			l.quick = callers == 256 && w.name != zipfWorkload && w.name != plentyWorkload
			loads = append(loads, l)
		}
	}
	return loads
}

func measureGlobal(ctx context.Context, r *run) error {
	server, stop, err := r.startRedis()
	if err != nil {
		return err
	}
	defer stop()
	systems, err := openGlobal(ctx, server)
	if err != nil {
		return err
	}
	err = measureOpen(ctx, r, server, systems)
	closeGlobal(systems) // or they would go on asking whether Redis is there
	if err == nil {
		err = measureRefused(ctx, r, server)
	}
	if err == nil {
		err = measureExact(ctx, r, server)
	}
	return err
}

// measureOpen measures what all do who are open.
func measureOpen(ctx context.Context, r *run, server *redistest.Server, systems []*globalSystem) error {
	for _, l := range globalLoads(r.count(million, million)) {
		if r.quick && !l.quick {
			continue
		}
		if err := l.measure(ctx, r, server, systems); err != nil {
			return fmt.Errorf("%s: %w", l.name, err)
		}
	}
	return measureAlone(ctx, r, server, systems)
}

// settled asks until there is an answer, for five seconds at most. A store of Diana finds out
// by a call that fails that its Redis was emptied.
func settled(ctx context.Context, ask func() error) error {
	for end := time.Now().Add(5 * time.Second); ; {
		err := ask()
		if err == nil || ctx.Err() != nil || time.Now().After(end) {
			return err
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// measure has all systems do the workload.
func (l *globalLoad) measure(ctx context.Context, r *run, server *redistest.Server, systems []*globalSystem) error {
	r.note("  %s", l.name)
	return r.interleave(ctx, len(systems), func(_, i int) error {
		s := systems[i]
		if l.rules == 3 && !s.three {
			return nil
		}
		if _, err := server.Do("FLUSHALL", "SYNC"); err != nil {
			return err
		}
		ask := s.asker()
		if err := settled(ctx, func() error { return ask.plenty(ctx) }); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		// Connections are made, scripts become known, and the burst is used up; with errors,
		// if it is throttled that many callers ask for one key.
		for range r.count(10, 5) {
			if l.drive(ctx, s, r.span(50*time.Millisecond, 25*time.Millisecond)).errors == 0 {
				break
			}
		}
		before := processTime(server.PID())
		got := l.drive(ctx, s, r.span(250*time.Millisecond, 80*time.Millisecond))
		cpu := processTime(server.PID()) - before
		if got.latencies.n == 0 && !r.tiny { // a moment is too short for throttled
			return fmt.Errorf("%s decided nothing: %w", s.name, got.err)
		}
		m := r.row(l.name, s.name, s.kind)
		m.add(decisionRate, got.rate())
		m.add(p50, got.latencies.quantile(0.50).Seconds())
		m.add(p99, got.latencies.quantile(0.99).Seconds())
		m.add(failures, float64(got.errors))
		if cpu > 0 && got.latencies.n > 0 {
			m.add(redisTime, cpu/float64(got.latencies.n))
		}
		return nil
	})
}

func (l *globalLoad) drive(ctx context.Context, s *globalSystem, d time.Duration) *load {
	return drive(l.callers, d, func(i int) func() error {
		ask, actors := s.asker(), l.actors.stream(i)
		switch l.rules {
		case 0:
			return func() error { return ask.plenty(ctx) }
		case 1:
			return func() error { return ask.one(ctx, actors.next()) }
		}
		accounts := l.accounts.stream(i)
		return func() error { return ask.three(ctx, accounts.next(), actors.next()) }
	})
}
