// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"strconv"
	"strings"
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
)

// The workloads.
const (
	hotWorkload     = "hot key, nearly all refused, 256 callers"
	uniformWorkload = "1 M keys uniform, 256 callers"
	aloneWorkload   = "a lone request"

	bareOne    = "EVALSHA, rueidis"
	dianaOne   = dianaStore + ", 1 rule"
	dianaThree = dianaStore + ", 3 rules"
)

func globalGroup() group {
	var fleet []page.Line
	for _, gateways := range []string{"16", "50"} {
		w := fleetWorkload(gateways)
		fleet = append(fleet, page.Compare(w+": Redis' processor", w, redisTime, dianaStore, bareOne).Must("G7", page.RatioAtMost(1.3)),
			page.Compare("the same: calls of Redis for a decision", w, requestCalls, dianaStore).Must("G7", page.AtMost(requestCalls, 1.1)),
			page.Compare("the same: decisions/s", w, decisionRate, dianaStore, bareOne))
	}
	return group{measure: measureGlobal, Chapter: page.Chapter{
		Name: "global", Title: "With Redis",
		Figures: []measure.Figure{decisionRate, p50, p99, redisTime, ownTime, requestCalls, failures},
		Lines: append([]page.Line{
			page.Compare("hot key, nearly all refused: decisions/s", hotWorkload, decisionRate, dianaStore, rivals.RedisRate).Must("G1", page.RatioAtLeast(20)),
			page.Compare("the same: p99", hotWorkload, p99, dianaStore, rivals.RedisRate).Must("G1", page.RatioAtLeast(10)),
			page.Compare("1 M keys: decisions/s", uniformWorkload, decisionRate, dianaStore, rivals.RedisRate, rivals.RedisRatePipelined).Must("G2", page.RatioAtLeast(2.5)),
			page.Compare("the same", uniformWorkload, decisionRate, dianaStore, rivals.EvalshaRueidis).Must("G2", page.RatioAtLeast(1.5)),
			page.Compare("1 M keys: p99", uniformWorkload, p99, dianaStore, rivals.RedisRate, rivals.RedisRatePipelined).Must("G2", page.RatioAtLeast(1)),
			page.Compare("the same", uniformWorkload, p99, dianaStore, rivals.EvalshaRueidis).Must("G2", page.RatioAtMost(1)),
			page.Compare("a lone request: p50", aloneWorkload, p50, dianaOne, bareOne).Must("G4", page.RatioAtMost(1.15)),
			page.Compare("the same: Redis' processor", aloneWorkload, redisTime, dianaOne, bareOne).Must("G4", page.RatioAtMost(1.25)),
			page.Compare("the same: own processor", aloneWorkload, ownTime, dianaOne, bareOne).Must("G4", page.RatioAtMost(1.3)),
			page.Compare("a lone request with 3 rules: p50", aloneWorkload, p50, dianaThree, dianaOne).Must("G3", page.RatioAtMost(1.3)),
			page.Compare("the same: calls of Redis", aloneWorkload, requestCalls, dianaThree).Must("G3", page.AtMost(requestCalls, 1.05)), // a store also checks whether Redis is up
			page.Compare("calls of Redis for a refusal", hotWorkload, requestCalls, dianaStore).Must("G6",
				page.Bound{Text: "≤ 0.001", Met: func(m page.Measured) bool { return m.Value <= 0.001 }}),
		}, fleet...),
	}}
}

func measureGlobal(ctx context.Context, r *measure.Run) error {
	err := measure.InYard(ctx, r, "", func(y *measure.Yard) error { return measureStores(ctx, r, y.Redis(r)) })
	if err != nil {
		return err
	}
	return measureFleet(ctx, r)
}

// measureStores measures all systems on one Redis.
func measureStores(ctx context.Context, r *measure.Run, server *redistest.Server) error {
	var systems []*rivals.Shared
	for _, open := range append([]rivals.OpenShared{openRedisstore}, rivals.AllShared()...) {
		s, err := open(ctx, server)
		if err != nil {
			return err
		}
		defer s.Close()
		systems = append(systems, s)
	}
	for i, name := range []string{hotWorkload, uniformWorkload} {
		r.Note("  %s", name)
		actors := []measure.Names{measure.HotKey(), measure.Uniform(r.Count(million))}[i]
		err := r.Interleave(ctx, len(systems), func(_, i int) error { return measureShared(ctx, r, server, name, actors, systems[i]) })
		if err != nil {
			return err
		}
	}
	return measureAlone(ctx, r, server, systems)
}

// measureShared measures a workload of 256 callers with a system.
func measureShared(ctx context.Context, r *measure.Run, server *redistest.Server, name string, actors measure.Names, s *rivals.Shared) error {
	if _, err := server.Do("FLUSHALL", "SYNC"); err != nil {
		return err
	}
	ask := s.Asker()
	if err := testproc.Poll(testproc.Patience, func() error { return ask(ctx, 1, "", "") }); err != nil {
		return fmt.Errorf("%s: %s: %w", name, s.Name, err) // after an error a redisstore knows that Redis was emptied
	}
	drive := func(span time.Duration) *measure.Load {
		return r.Drive(256, span, func(i int) func() error {
			ask, account := s.Asker(), actors.Stream(i)
			return func() error { return ask(ctx, 1, account(), "") }
		})
	}
	drive(100 * time.Millisecond) // opens connections, loads scripts and uses up the bursts
	before := measure.ProcessTime(server.PID())
	var got *measure.Load
	calls, err := measure.ScriptCalls(server, func() error { got = drive(250 * time.Millisecond); return nil })
	cpu := measure.ProcessTime(server.PID()) - before
	if err != nil || got.Latencies.N == 0 {
		return fmt.Errorf("%s: %s decided nothing: %w", name, s.Name, errors.Join(err, got.Err))
	}
	m := r.Row(name, s.Name, s.Kind)
	m.Add(decisionRate, got.Rate())
	m.AddLatencies(p50, p99, &got.Latencies)
	m.Add(failures, float64(got.Errors))
	m.Add(requestCalls, calls/float64(got.Latencies.N))
	if cpu > 0 {
		m.Add(redisTime, cpu/float64(got.Latencies.N))
	}
	return nil
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
				sent := time.Now()
				if err := asks[i](account, device); err != nil {
					return fmt.Errorf("%s: %w", rows[i].System, err)
				}
				latencies[i].Add(time.Since(sent))
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
			spent[i][k] = measure.Quantile(all, 0.1)
		}
	}
	return spent, nil
}

// fleetWorkload is that of BenchmarkFleet in package redisstore.
func fleetWorkload(gateways string) string { return gateways + " gateways on a Cluster of 3 nodes" }

// measureFleet runs BenchmarkFleet, because a Cluster is for tests. Each of its figures is the 10th percentile of slices.
func measureFleet(ctx context.Context, r *measure.Run) error {
	if r.Quick { // it takes a minute
		return nil
	}
	bench := exec.CommandContext(ctx, "go", "-C", "..", "test", "-run=^$", "-bench=^BenchmarkFleet$", "-benchtime=1x", "./redisstore")
	out, err := bench.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		if len(fields) == 0 || !strings.HasPrefix(fields[0], "BenchmarkFleet/") {
			continue
		}
		gateways, _, _ := strings.Cut(strings.TrimPrefix(fields[0], "BenchmarkFleet/"), "-")
		for i := 2; i+1 < len(fields); i += 2 { // pairs of a value and its unit
			value, err := strconv.ParseFloat(fields[i], 64)
			if err != nil {
				return fmt.Errorf("%s: %w", line, err)
			}
			for name, row := range map[string]*measure.Row{
				"diana": r.Row(fleetWorkload(gateways), dianaStore, measure.Diana), "plain": r.Row(fleetWorkload(gateways), bareOne, measure.Floor),
			} {
				switch fields[i+1] {
				case name + "-µs":
					row.Add(redisTime, value/1e6)
				case name + "-calls":
					row.Add(requestCalls, value)
				case name + "/s":
					row.Add(decisionRate, value)
				}
			}
		}
	}
	return nil
}
