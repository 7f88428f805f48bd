// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/diana-limiter/diana/bench/measure"
	"github.com/diana-limiter/diana/bench/page"
	"github.com/diana-limiter/diana/bench/rivals"
	"github.com/diana-limiter/diana/internal/redistest"
	"github.com/diana-limiter/diana/limit"
)

// The group exactness measures how exactly limits are kept. One driver with 64 clients asks each system
// from outside for one key, far more often than the limit allows, and compares it with its own promise.
// Each phase has a key of its own.

// The phases. An outage of Redis meets clients that have used up their limit.
const (
	coldPhase   = "1,000 a minute, a new key"
	steadyPhase = "100 a second, steadily"
	reloadPhase = "1,000 a minute, three reloads"
	flushPhase  = "1,000 a minute, FLUSHALL after 700"
	killPhase   = "1,000 a minute, Redis is killed and returns empty"
	pausePhase  = "1,000 a minute, Redis is paused"

	exactWorkload = "3 processes, 256 callers each"
)

var (
	beyond     = countOf("beyond", measure.Less)            // its promise, certainly
	mostBeyond = countOf("at most beyond", measure.Neither) // what the driver cannot exclude
	short      = countOf("short", measure.Less)             // of its promise, certainly
	admitted   = countOf("admitted", measure.Neither)
	refused    = countOf("refused", measure.Neither)
	unanswered = countOf("unanswered", measure.Less)
	alone      = countOf("allowed without Redis", measure.Neither) // as Diana reports
	meanwhile  = [4]measure.Figure{                                // during an outage, in the order of answerKind
		countOf("allowed meanwhile", measure.Neither), countOf("refused meanwhile", measure.Neither),
		countOf("errors meanwhile", measure.Less), countOf("unanswered meanwhile", measure.Less),
	}

	// Of the exact workload.
	allowed  = countOf("allowed", measure.Neither)
	promised = countOf("promised", measure.Neither)
	offered  = countOf("offered", measure.Neither)
	refilled = countOf("refilled", measure.Neither) // at most, meanwhile
)

func countOf(what string, better measure.Direction) measure.Figure {
	return measure.Figure{Name: what, Format: measure.PlainText, Better: better}
}

func exactnessGroup() group {
	return group{measure: measureExactness, Chapter: page.Chapter{
		Name: "exactness", Title: "Exactness", Table: exactnessTable,
		Figures: slices.Concat([]measure.Figure{beyond, mostBeyond, short, admitted, refused, failures, unanswered, alone}, meanwhile[:],
			[]measure.Figure{allowed, promised, offered, refilled}),
		Lines: []page.Line{
			page.Custom("Limits that Diana kept exactly by W, TB, SW and SL, with 3 processes and 256 callers each", measureKept).Must("G5",
				page.Bound{Text: "all", Met: func(m page.Measured) bool { return m.Value == 0 }}),
		},
	}}
}

// measureKept counts the attempts that did not keep their limit.
func measureKept(r *measure.Report) (m page.Measured, ok bool) {
	exact, all := 0, 0
	for _, w := range r.Rows {
		if w.Workload != exactWorkload {
			continue
		}
		for i, n := range w.Series(allowed).Rounds {
			all++
			low := w.Series(promised).Rounds[i]
			high := low + w.Series(refilled).Rounds[i]
			if n >= low && n <= high && w.Series(failures).Rounds[i] == 0 {
				exact++
			}
		}
	}
	m.Value, m.Diana = float64(all-exact), fmt.Sprintf("%d of %d attempts", exact, all)
	return m, all > 0
}

func measureExactness(ctx context.Context, r *measure.Run) error {
	return measure.InYard(ctx, r, "", func(y *measure.Yard) error {
		redis, stop, err := measure.StartRedis(r)
		if err != nil {
			return err
		}
		defer stop()
		x := &exactYard{Yard: y, redis: redis, envoy: rivals.BuildEnvoy(ctx, r, y)}
		if err := x.measureExact(ctx, r); err != nil {
			return err
		}
		return x.measureSystems(ctx, r)
	})
}

// Three processes, each with 256 callers, use up one limit together. The limit is for a day, so nothing becomes
// available again meanwhile, except one token of the bucket every 17 seconds.
const (
	gateways       = 3
	gatewayCallers = 256
	gatewayAsks    = 30 // by each caller
)

// measureExact measures the exact workload.
func (x *exactYard) measureExact(ctx context.Context, r *measure.Run) error {
	r.Note("  %s", exactWorkload)
	s := &exactSystem{redis: true}
	defer s.stop()
	if err := x.start(s, x.Own(crowdKind, x.redis.URL())); err != nil {
		return err
	}
	algorithms := exactAlgorithms()
	return r.Interleave(ctx, len(algorithms), func(round, i int) error {
		a := algorithms[i].Name()
		day, took := time.Now().UTC().YearDay(), measure.Stopwatch()
		counts, err := s.crowd(fmt.Sprintf("/%s/%d", a, round))
		if err != nil || time.Now().UTC().YearDay() != day { // midnight began a new limit
			return err
		}
		m := r.Row(exactWorkload, a, measure.Diana)
		m.Add(allowed, counts[0])
		m.Add(promised, float64(exactDay.N))
		m.Add(offered, gateways*gatewayCallers*gatewayAsks)
		m.Add(failures, counts[1])
		refill := 0.0
		if a == limit.TokenBucket().Name() {
			refill = float64(int(took().Hours() / 24 * float64(exactDay.N)))
		}
		m.Add(refilled, refill)
		return nil
	})
}

// crowd lets the callers of all processes ask at the same time, because a system that reads a counter before it changes
// it is wrong only then. It returns how many requests were allowed, and how many failed.
func (s *exactSystem) crowd(path string) (sum [2]float64, err error) {
	texts, failed := make([]string, len(s.processes)), make([]error, len(s.processes))
	var done sync.WaitGroup
	for i, p := range s.processes {
		done.Go(func() { texts[i], failed[i] = get("http://" + p.Address + path) })
	}
	done.Wait()
	for i, text := range texts {
		var n [2]float64
		if _, err := fmt.Sscan(text, &n[0], &n[1]); err != nil {
			failed[i] = errors.Join(failed[i], err)
		}
		sum[0], sum[1] = sum[0]+n[0], sum[1]+n[1]
	}
	return sum, errors.Join(failed...)
}

// crowdHandler is one of the processes. Its callers ask by the algorithm of the path for the key of the path, and it
// answers how many requests were allowed and how many failed.
func crowdHandler(ctx context.Context, redis string) (http.Handler, error) {
	store, err := openStore(ctx, redis, "")
	if err != nil {
		return nil, err
	}
	counters := map[string]any{}
	for _, a := range exactAlgorithms() {
		if counters[a.Name()], err = countersOf(store, a.Name(), a, exactDay); err != nil {
			return nil, err
		}
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/{algorithm}/{key}", func(w http.ResponseWriter, r *http.Request) {
		var allowed, failed atomic.Int64
		var done sync.WaitGroup
		for range gatewayCallers {
			done.Go(func() {
				ch := []limit.Charge{{Counters: counters[r.PathValue("algorithm")], Key: []byte(r.PathValue("key")), Cost: 1}}
				for range gatewayAsks {
					switch ok, err := store.Take(ctx, 0, ch); {
					case err != nil:
						failed.Add(1)
					case ok:
						allowed.Add(1)
					}
				}
			})
		}
		done.Wait()
		_, _ = fmt.Fprintln(w, allowed.Load(), failed.Load())
	})
	return mux, nil
}

// exactYard holds the servers of the systems.
type exactYard struct {
	*measure.Yard
	redis *redistest.Server
	envoy *rivals.RateLimitService
	keys  int // that were used up
}

// measureSystems compares all systems with their promises. Systems without a program are left out.
func (x *exactYard) measureSystems(ctx context.Context, r *measure.Run) error {
	systems := slices.DeleteFunc(exactSystems(), func(s *exactSystem) bool {
		return s.name == rivals.Envoy && !x.envoy.Built()
	})
	rounds := r.AtMost(2) // because each takes a minute
	return rounds.Interleave(ctx, len(systems), func(round, i int) error {
		s := systems[i]
		r.Note("  round %d of %d: %s", round+1, rounds.Rounds, s.name)
		if _, err := x.redis.Do("FLUSHALL", "SYNC"); err != nil {
			return err
		}
		defer s.stop()
		command, err := s.command(x)
		if err == nil {
			err = x.start(s, command)
		}
		if err == nil {
			err = x.phases(ctx, r, s, round)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		return nil
	})
}

// phases measures a system in all phases. The outages are in the first round only.
func (x *exactYard) phases(ctx context.Context, r *measure.Run, s *exactSystem, round int) error {
	part := r.Span(500 * time.Millisecond)
	reload := func() error { return s.reload(x, s) }
	kill, restart := func() error { return measure.Caught(x.redis.Kill) }, func() error { return measure.Caught(x.redis.Restart) }
	freeze, thaw := func() error { return measure.Caught(x.redis.Freeze) }, func() error { return measure.Caught(x.redis.Thaw) }
	flush := func() error { _, err := x.redis.Do("FLUSHALL"); return err }
	outages := s.redis && round == 0 // because they take the longest
	for _, p := range []struct {
		name, unit string
		applies    bool
		parts      int
		steps      []step
	}{
		{coldPhase, "minute", true, 2, nil},
		{steadyPhase, "second", true, 5, nil},
		{reloadPhase, "minute", s.reload != nil, 4, []step{{part / 10, reload}, {part, reload}, {2 * part, reload}}},
		{flushPhase, "minute", outages, 8, []step{{0, flush}}},
		{killPhase, "minute", outages, 8, []step{{2 * part, kill}, {5 * part, restart}}},
		{pausePhase, "minute", outages, 8, []step{{2 * part, freeze}, {5 * part, thaw}}},
	} {
		if !p.applies {
			continue
		}
		if err := s.becomesReady(ctx); err != nil {
			return err
		}
		if err := x.phase(ctx, r, s, p.name, p.unit, time.Duration(p.parts)*part, p.steps); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
	}
	return nil
}

// phase lets the clients ask and adds what came of it.
func (x *exactYard) phase(ctx context.Context, r *measure.Run, s *exactSystem, phase, unit string, d time.Duration, steps []step) error {
	q := exactQuotas[unit]
	x.keys++
	before, err := s.allowedAlone()
	if err != nil {
		return err
	}
	used := int64(0)
	if phase == flushPhase {
		used = 700
	}
	h, outage, err := s.history(ctx, unit, fmt.Sprintf("key%d", x.keys), used, d, steps...)
	if err != nil {
		return err
	}
	after, err := s.allowedAlone()
	if err != nil {
		return err
	}
	m := r.Row(phase, s.name, s.kind)
	if s.kind == measure.Diana && s.redis {
		m.Add(alone, after-before)
	}
	m.Add(beyond, h.beyond(s.promise, q))
	m.Add(mostBeyond, max(h.atMostBeyond(s.promise, q), h.beyond(s.promise, q)))
	for i, n := range h.counts(0, d+time.Hour) {
		m.Add([]measure.Figure{admitted, refused, failures, unanswered}[i], n)
	}
	switch phase {
	case flushPhase:
		return nil
	case killPhase, pausePhase:
	default:
		m.Add(short, h.short(s.promise, q))
		return nil
	}
	for i, n := range h.counts(outage[0], outage[1]) {
		m.Add(meanwhile[i], n)
	}
	return nil
}
