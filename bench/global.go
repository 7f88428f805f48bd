// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/diana-limiter/diana/internal/redistest"
	"github.com/diana-limiter/diana/internal/testproc"
)

// The group global measures decisions with Redis. Each caller asks again as soon as it has its
// answer, and each key may have 100 requests a second. All systems use the same Redis on this
// machine, one after another, and each finds it empty.
//
// The rivals wait for Redis with the same timeout as Diana and do not retry. Otherwise the
// figures under load would count retries.

const (
	perSecond = 100        // for each key
	allLimit  = 10_000_000 // a second, for all keys together
	patience  = 5 * time.Second
)

var (
	decisionRate = figure{name: "decisions/s", format: perSecondText, better: more}
	p50          = figure{name: "p50", format: secondsText}
	p99          = figure{name: "p99", format: secondsText}
	redisTime    = figure{name: "Redis' CPU", format: secondsText} // for a decision
	failures     = figure{name: "errors", format: plainText}
)

// globalSystem is a system to measure.
type globalSystem struct {
	name  string
	kind  kind
	work  string       // see row
	asker func() asker // for one caller
	three bool         // supports three rules
	close func()
}

// asker asks for decisions on behalf of one caller. It does not say whether they are refusals,
// because only their cost matters here.
type asker interface {
	// plenty asks by one rule for all keys together, whose limit nobody reaches.
	plenty(ctx context.Context) error

	// one asks by one rule for a key.
	one(ctx context.Context, key string) error

	// three asks by three rules: for all keys together, for an account and for a device.
	three(ctx context.Context, account, device string) error
}

// The names of systems that lines mention.
const (
	dianaStore         = "Diana redisstore"
	redisRateName      = "redis_rate"
	redisRatePipelined = "redis_rate, AutoPipeline"
	throttledRedis     = "throttled"
	fixedWindows       = "ulule (fixed window)"
	evalshaRueidis     = "EVALSHA each, rueidis"
)

func globalGroup() group {
	return group{
		name: "global", title: "With Redis", lines: append(globalLines(), valkeyLines()...), measure: measureGlobal,
		figures: []figure{decisionRate, p50, p99, redisTime, requestCalls, refusals, refusalCalls, failures},
	}
}

// globalOpener opens a system with a client of its own.
type globalOpener func(context.Context, *redistest.Server) (*globalSystem, error)

// openGlobal opens all systems.
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
	rules   int  // 0 means the rule whose limit nobody reaches
	quick   bool // belongs to a quick run
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

func globalLoads(devices int) []globalLoad {
	many := uniform(devices)
	loads := []globalLoad{
		{name: hotWorkload, callers: 256, rules: 1, quick: true, actors: hotKey()},
		{name: plentyWorkload, callers: 256, actors: hotKey()},
		{name: uniformWorkload, callers: 256, rules: 1, quick: true, actors: many},
		{name: uniformWorkload, callers: 32, rules: 1, actors: many},
		{name: zipfWorkload, callers: 256, rules: 1, actors: zipf(devices, 0.99)},
		{name: threeWorkload, callers: 256, rules: 3, quick: true, actors: many, accounts: uniform(devices / 10)},
	}
	for i := range loads {
		loads[i].name = globalName(loads[i].name, loads[i].callers)
	}
	return loads
}

func measureGlobal(ctx context.Context, r *run) error {
	server, stop, err := startRedis(r)
	if err != nil {
		return err
	}
	defer stop()
	systems, err := openGlobal(ctx, server)
	if err != nil {
		return err
	}
	err = measureOpen(ctx, r, server, systems)
	closeGlobal(systems) // because they would keep checking whether Redis is up
	if err == nil {
		err = measureRefused(ctx, r, server)
	}
	return err
}

// measureOpen measures all systems while they are open.
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

// measure measures the workload with all systems.
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
		if err := testproc.Poll(patience, func() error { return ask.plenty(ctx) }); err != nil {
			return fmt.Errorf("%s: %w", s.name, err) // after an error a redisstore knows that Redis was emptied
		}
		// The warm-up opens connections, loads scripts and uses up the bursts. throttled fails
		// while many callers ask for one new key.
		for range r.count(10, 5) {
			if l.drive(ctx, s, r.span(50*time.Millisecond, 25*time.Millisecond)).errors == 0 {
				break
			}
		}
		before := processTime(server.PID())
		got := l.drive(ctx, s, r.span(250*time.Millisecond, 80*time.Millisecond))
		cpu := processTime(server.PID()) - before
		if got.latencies.n == 0 && !r.tiny { // throttled needs longer than a test takes
			return fmt.Errorf("%s decided nothing: %w", s.name, got.err)
		}
		m := r.working(l.name, s.name, s.work, s.kind)
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
