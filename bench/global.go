// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/diana-limiter/diana/bench/measure"
	"github.com/diana-limiter/diana/bench/page"
	"github.com/diana-limiter/diana/bench/rivals"
	"github.com/diana-limiter/diana/internal/redistest"
	"github.com/diana-limiter/diana/internal/testproc"
)

// The group global measures decisions with Redis. Each caller asks again as soon as it has its
// answer, and each key may have 100 requests a second. All systems use the same Redis on this
// machine, one after another, and each finds it empty.

var (
	decisionRate = measure.Figure{Name: "decisions/s", Format: measure.PerSecondText, Better: measure.More}
	p50          = measure.Figure{Name: "p50", Format: measure.SecondsText}
	p99          = measure.Figure{Name: "p99", Format: measure.SecondsText}
	redisTime    = measure.Figure{Name: "Redis' CPU", Format: measure.SecondsText} // for a decision
	ownTime      = measure.Figure{Name: "own CPU", Format: measure.SecondsText}    // of this process for a decision
	failures     = measure.Figure{Name: "errors", Format: measure.PlainText}
	requestCalls = measure.Figure{Name: "calls/request", Format: measure.PlainText} // of scripts in Redis
	refusals     = measure.Figure{Name: "refusals", Format: measure.PlainText, Better: measure.Neither}
	refusalCalls = measure.Figure{Name: "calls", Format: measure.PlainText} // of scripts in Redis meanwhile, heartbeats included
)

// The workloads.
const (
	hotWorkload     = "hot key, nearly all refused, 256 callers"
	uniformWorkload = "1 M keys uniform, 256 callers"
	plentyWorkload  = "hot key, all allowed, 256 callers"
	threeWorkload   = "3 rules: all, account, device, 256 callers"

	aloneWorkload   = "a lone request"
	refusedWorkload = "a refused actor, 32 callers"

	bareOne    = "EVALSHA, rueidis"
	dianaOne   = dianaStore + ", 1 rule"
	dianaThree = dianaStore + ", 3 rules"
)

func globalGroup() group {
	return group{measure: measureGlobal, Chapter: page.Chapter{
		Name: "global", Title: "With Redis",
		Figures: []measure.Figure{decisionRate, p50, p99, redisTime, ownTime, requestCalls, refusals, refusalCalls, failures},
		Lines: []page.Line{
			page.Compare("hot key, nearly all refused: decisions/s", hotWorkload, decisionRate, dianaStore, rivals.RedisRate).Must("G1", page.RatioAtLeast(20)),
			page.Compare("the same: p99", hotWorkload, p99, dianaStore, rivals.RedisRate).Must("G1", page.RatioAtLeast(10)),
			page.Compare("hot key, all allowed: decisions/s", plentyWorkload, decisionRate, dianaStore, page.BestRival),
			page.Compare("1 M keys: decisions/s", uniformWorkload, decisionRate, dianaStore, rivals.RedisRate, rivals.RedisRatePipelined).Must("G2", page.RatioAtLeast(2.5)),
			page.Compare("the same", uniformWorkload, decisionRate, dianaStore, rivals.EvalshaRueidis).Must("G2", page.RatioAtLeast(1.5)),
			page.Compare("1 M keys: p99", uniformWorkload, p99, dianaStore, rivals.RedisRate, rivals.RedisRatePipelined).Must("G2", page.RatioAtLeast(1)),
			page.Compare("the same", uniformWorkload, p99, dianaStore, rivals.EvalshaRueidis).Must("G2", page.RatioAtMost(1)),
			page.Compare("3 rules: decisions/s", threeWorkload, decisionRate, dianaStore, page.BestRival),
			page.Compare("a lone request: p50", aloneWorkload, p50, dianaOne, bareOne).Must("G4", page.RatioAtMost(1.15)),
			page.Compare("the same: Redis' processor", aloneWorkload, redisTime, dianaOne, bareOne).Must("G4", page.RatioAtMost(1.25)),
			page.Compare("the same: own processor", aloneWorkload, ownTime, dianaOne, bareOne).Must("G4", page.RatioAtMost(1.3)),
			page.Compare("a lone request with 3 rules: p50", aloneWorkload, p50, dianaThree, dianaOne).Must("G3", page.RatioAtMost(1.3)),
			page.Custom("the same: calls of Redis", measureRoundTrips).Must("G3", page.AtMost(requestCalls, 1)),
			page.Custom("calls of Redis for 1,000 refusals of a refused actor", measureRefusals).Must("G6",
				page.Bound{Text: "less than 1", Met: func(m page.Measured) bool { return m.Value < 1 }}),
		},
	}}
}

func measureRoundTrips(r *measure.Report) (m page.Measured, ok bool) {
	s := r.Find(aloneWorkload, dianaThree).Series(requestCalls)
	if s == nil {
		return m, false
	}
	m.Value, m.Diana = s.Median, measure.PlainText(s.Median)
	if m.Value < 1.05 { // a store also checks now and then whether Redis is up
		m.Value = 1
	}
	return m, true
}

func measureRefusals(r *measure.Report) (m page.Measured, ok bool) {
	w := r.Find(refusedWorkload, dianaLimiter)
	if w.Series(refusals) == nil {
		return m, false
	}
	m.Value = 1000 * w.Series(refusalCalls).Median / w.Series(refusals).Median
	m.Diana = measure.FewText(m.Value)
	return m, true
}

// openAll opens systems.
func openAll(ctx context.Context, s *redistest.Server, openers ...rivals.OpenShared) (systems []*rivals.Shared, err error) {
	for _, open := range openers {
		system, err := open(ctx, s)
		if err != nil {
			closeAll(systems)
			return nil, err
		}
		systems = append(systems, system)
	}
	return systems, nil
}

func closeAll(systems []*rivals.Shared) {
	for _, s := range systems {
		s.Close()
	}
}

// sharedLoad is a workload of 256 callers.
type sharedLoad struct {
	name   string
	rules  int // see rivals.Ask
	actors measure.Names

	accounts measure.Names // with three rules: a tenth as many as there are devices
}

func globalLoads(r *measure.Run) []sharedLoad {
	many := measure.Uniform(r.Count(million))
	return []sharedLoad{
		{hotWorkload, 1, measure.HotKey(), ""},
		{plentyWorkload, 0, measure.HotKey(), ""},
		{uniformWorkload, 1, many, ""},
		{threeWorkload, 3, many, measure.Uniform(r.Count(million / 10))},
	}
}

func measureGlobal(ctx context.Context, r *measure.Run) error {
	server, stop, err := measure.StartRedis(r)
	if err != nil {
		return err
	}
	defer stop()
	systems, err := openAll(ctx, server, append([]rivals.OpenShared{openRedisstore}, rivals.AllShared()...)...)
	if err != nil {
		return err
	}
	err = measureOpen(ctx, r, server, systems)
	closeAll(systems) // because they would keep checking whether Redis is up
	if err == nil {
		err = measureRefused(ctx, r, server)
	}
	return err
}

// measureOpen measures all systems while they are open.
func measureOpen(ctx context.Context, r *measure.Run, server *redistest.Server, systems []*rivals.Shared) error {
	for _, l := range globalLoads(r) {
		r.Note("  %s", l.name)
		if err := l.measure(ctx, r, server, systems); err != nil {
			return err
		}
	}
	return measureAlone(ctx, r, server, systems)
}

// measure measures the workload with all systems.
func (l *sharedLoad) measure(ctx context.Context, r *measure.Run, server *redistest.Server, systems []*rivals.Shared) error {
	return r.Interleave(ctx, len(systems), func(_, i int) error {
		s := systems[i]
		if _, err := server.Do("FLUSHALL", "SYNC"); err != nil {
			return err
		}
		ask := s.Asker()
		if err := testproc.Poll(testproc.Patience, func() error { return ask(ctx, 0, "", "") }); err != nil {
			return fmt.Errorf("%s: %s: %w", l.name, s.Name, err) // after an error a redisstore knows that Redis was emptied
		}
		l.drive(ctx, r, s, 100*time.Millisecond) // opens connections, loads scripts and uses up the bursts
		before := measure.ProcessTime(server.PID())
		got := l.drive(ctx, r, s, 250*time.Millisecond)
		cpu := measure.ProcessTime(server.PID()) - before
		if got.Latencies.N == 0 {
			return fmt.Errorf("%s: %s decided nothing: %w", l.name, s.Name, got.Err)
		}
		m := r.Row(l.name, s.Name, s.Kind)
		m.Add(decisionRate, got.Rate())
		m.AddLatencies(p50, p99, &got.Latencies)
		m.Add(failures, float64(got.Errors))
		if cpu > 0 && got.Latencies.N > 0 {
			m.Add(redisTime, cpu/float64(got.Latencies.N))
		}
		return nil
	})
}

func (l *sharedLoad) drive(ctx context.Context, r *measure.Run, s *rivals.Shared, span time.Duration) *measure.Load {
	return r.Drive(256, span, func(i int) func() error {
		ask, device, account := s.Asker(), l.actors.Stream(i), func() string { return "" }
		switch l.rules {
		case 0:
			device = account
		case 1:
			account, device = device, account
		case 3:
			account = l.accounts.Stream(i)
		}
		return func() error { return ask(ctx, l.rules, account(), device()) }
	})
}

// aloneSystems lists the names of rows by the system, for one rule and for three.
var aloneSystems = map[string][2]string{
	dianaStore:            {dianaOne, dianaThree},
	rivals.RedisRate:      {"redis_rate, 1 rule", "redis_rate, 3 rules"},
	rivals.FixedWindows:   {rivals.FixedWindows + ", 1 rule"},
	rivals.EvalshaRueidis: {bareOne, "3 EVALSHA in one go, rueidis"},
}

// measureAlone measures requests without concurrent ones. The systems take turns request by request, because
// these times differ by microseconds and a bad moment of the machine should affect all systems.
func measureAlone(ctx context.Context, r *measure.Run, server *redistest.Server, systems []*rivals.Shared) error {
	r.Note("  %s", aloneWorkload)
	next := measure.Uniform(r.Count(million)).Stream(0)
	var rows []*measure.Row
	var asks []func(account, device string) error
	for _, s := range systems {
		for i, name := range aloneSystems[s.Name] {
			if name == "" {
				continue
			}
			rules, ask := 1+2*i, s.Asker()
			rows = append(rows, r.Working(aloneWorkload, name, fmt.Sprintf("rules: %d", rules), s.Kind))
			asks = append(asks, func(account, device string) error { return ask(ctx, rules, account, device) })
			if err := testproc.Poll(testproc.Patience, func() error { return ask(ctx, rules, next(), next()) }); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	for range r.Rounds {
		latencies := make([]measure.Histogram, len(asks))
		for n := range r.Count(1500) {
			account, device := next(), next()
			for k := range asks {
				i := (n + k) % len(asks) // so that no system always follows the same one
				took := measure.Stopwatch()
				if err := asks[i](account, device); err != nil {
					return fmt.Errorf("%s: %w", rows[i].System, err)
				}
				latencies[i].Add(took())
			}
		}
		spent, err := processors(r, server, next, asks)
		if err != nil {
			return err
		}
		for i, m := range rows {
			m.AddLatencies(p50, p99, &latencies[i])
			if spent[i][0] > 0 {
				m.Add(redisTime, spent[i][0])
				m.Add(ownTime, spent[i][1])
			}
		}
	}
	for i, ask := range asks {
		requests := r.Count(500)
		calls, err := measure.ScriptCalls(server, func() (err error) {
			for n := 0; n < requests && err == nil; n++ {
				err = ask(next(), next())
			}
			return err
		})
		if err != nil {
			return err
		}
		rows[i].Add(requestCalls, calls/float64(requests))
	}
	return nil
}

// processors returns the seconds that Redis' processor and this process' own take for a request of each system: the
// 10th percentile of slices. The systems take turns in any order, because a slice depends on what Redis did before.
func processors(r *measure.Run, server *redistest.Server, next func() string, asks []func(account, device string) error) ([][2]float64, error) {
	const calls, warm = 60, 10
	taken := make([][2][]float64, len(asks))
	for range r.Count(100) {
		for _, i := range rand.Perm(len(asks)) {
			var redis, own time.Duration
			for n := range warm + calls {
				if n == warm {
					redis, own = measure.MainThreadTime(server.PID()), measure.OwnTime()
				}
				if err := asks[i](next(), next()); err != nil {
					return nil, err
				}
			}
			taken[i][0] = append(taken[i][0], (measure.MainThreadTime(server.PID())-redis).Seconds()/calls)
			taken[i][1] = append(taken[i][1], (measure.OwnTime()-own).Seconds()/calls)
		}
	}
	spent := make([][2]float64, len(asks))
	for i := range taken {
		for k, all := range taken[i] {
			slices.Sort(all)
			spent[i][k] = all[len(all)/10]
		}
	}
	return spent, nil
}

// measureRefused measures an actor that has used up its limit for an hour at one gateway, and now asks another
// gateway again and again. The answer can only be a refusal for minutes, so after the first refusal the gateway
// need not ask Redis.
func measureRefused(ctx context.Context, r *measure.Run, server *redistest.Server) error {
	r.Note("  %s", refusedWorkload)
	if _, err := server.Do("FLUSHALL", "SYNC"); err != nil {
		return err
	}
	var gateways [2]func() (allowed bool, err error)
	for i := range gateways {
		ask, stop, err := openHourly(ctx, server)
		if err != nil {
			return err
		}
		defer stop()
		gateways[i] = ask
		if err := testproc.Poll(testproc.Patience, func() error { _, err := ask(); return err }); err != nil {
			return err
		}
	}
	for { // uses up the limit
		if allowed, err := gateways[0](); err != nil {
			return err
		} else if !allowed {
			break
		}
	}
	return r.Interleave(ctx, 1, func(int, int) error {
		var got *measure.Load
		calls, err := measure.ScriptCalls(server, func() error {
			got = r.Drive(32, 500*time.Millisecond, func(int) func() error {
				return func() error {
					allowed, err := gateways[1]()
					if err == nil && allowed {
						err = errors.New("allowed over the limit")
					}
					return err
				}
			})
			return got.Err
		})
		if err != nil {
			return err
		}
		m := r.Row(refusedWorkload, dianaLimiter, measure.Diana)
		m.Add(decisionRate, got.Rate())
		m.Add(refusals, float64(got.Latencies.N))
		m.Add(refusalCalls, calls)
		return nil
	})
}
