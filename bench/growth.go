// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"

	dianalib "github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/internal/redistest"
)

// How the cost of a decision grows with what there is much of: URLs that have rules,
// actors that are remembered, gateways that share one Redis. What does not depend on it
// is a level line.

const (
	growingURLs     = "more URLs, 1 thread"
	growingKeys     = "more keys, uniform, 1 thread"
	growingGateways = "more gateways on one Redis"
)

// linePoint returns the row of a line where what grows has a size.
func (r *run) linePoint(workload, line string, k kind, size int, what string) *row {
	m := r.row(workload, fmt.Sprintf("%s, %s: %s", line, what, sizeText(size)), k)
	m.Line, m.Size = line, size
	return m
}

// sizeText is short.
func sizeText(n int) string {
	switch {
	case n >= million && n%million == 0:
		return fmt.Sprintf("%d M", n/million)
	case n >= 1000 && n%1000 == 0:
		return fmt.Sprintf("%d k", n/1000)
	}
	return fmt.Sprint(n)
}

func measureGrowth(ctx context.Context, r *run) error {
	if r.quick {
		once := *r
		once.rounds = 1
		r = &once
	}
	for _, measure := range []func(context.Context, *run) error{growURLs, growKeys} {
		if err := measure(ctx, r); err != nil {
			return err
		}
	}
	return growGateways(ctx, r)
}

// onOneThread measures decisions.
func (r *run) onOneThread(m *row, l *localLimiter, actors *population) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	runtime.GC()
	ns, allocated := decisions(1, r.count(500_000, 100_000), l, actors)
	m.add(nsDecision, ns)
	m.add(allocs, allocated)
}

// growURLs asks for one URL, which has three rules, and for all of them, which have one
// each: then what finds them has left the processor's caches.
func growURLs(ctx context.Context, r *run) error {
	r.note("  %s", growingURLs)
	sizes := []int{10, 100, 1000, 10_000}
	var limiters []*dianalib.Limiter
	defer func() {
		for _, l := range limiters {
			_ = l.Close() // it has nothing to lose
		}
	}()
	for _, urls := range sizes {
		l, err := openLimiter(ctx, rulesOf(urls, true))
		if err != nil {
			return err
		}
		limiters = append(limiters, l)
	}
	var every [][]int
	for i, urls := range sizes {
		every = append(every, make([]int, urls))
		for k := range urls {
			every[i][k] = (k * 7919) % urls // a prime: neighbours are not asked for in turn
		}
		for decide, k := urlDecisions(limiters[i], every[i]).decider(), 0; k < urls; k++ {
			decide("") // makes the counters, of which a table may have to grow
		}
	}
	return r.interleave(ctx, len(sizes), func(_, i int) error {
		one := urlDecisions(limiters[i], []int{urlAsked})
		r.onOneThread(r.linePoint(growingURLs, "one URL, 3 rules", diana, sizes[i], "URLs"), one, hotKey())
		r.onOneThread(r.linePoint(growingURLs, "every URL, 1 rule each", diana, sizes[i], "URLs"), urlDecisions(limiters[i], every[i]), hotKey())
		return nil
	})
}

// urlDecisions asks for URLs of rulesOf in turn.
func urlDecisions(l *dianalib.Limiter, urls []int) *localLimiter {
	paths := make([]string, len(urls))
	for i, n := range urls {
		paths[i] = fmt.Sprintf("/api/v%d/orders", n)
	}
	return &localLimiter{decider: func() func(string) bool {
		request := httptest.NewRequest(http.MethodGet, paths[0], nil)
		request.Header.Set("X-Device-Id", "0a1b2c3d")
		ctx, next := context.Background(), 0
		return func(string) bool {
			d, err := l.Take(ctx, dianalib.Request{Method: request.Method, Path: paths[next], HTTP: request})
			if next++; next == len(paths) {
				next = 0
			}
			allowed := d.Allowed
			d.Done()
			return allowed && err == nil
		}
	}}
}

// growKeys asks for keys that are all known. The floor draws them, hashes them and reads
// the clock.
func growKeys(ctx context.Context, r *run) error {
	r.note("  %s", growingKeys)
	sizes := []int{1000, 10_000, 100_000, million, 10 * million}
	if r.quick {
		sizes = sizes[:4]
	}
	if r.tiny {
		sizes = sizes[:2]
	}
	keys := all(sizes[len(sizes)-1])
	var actors []*population
	for _, n := range sizes {
		actors = append(actors, uniform(n))
	}
	return r.interleave(ctx, len(sizes), func(_, i int) error {
		n := sizes[i]
		clock, err := openClock(usual, n)
		if err != nil {
			return err
		}
		r.onOneThread(r.linePoint(growingKeys, keyFloor, floor, n, "keys"), clock, actors[i])
		l, err := openMemstore(usual, n)
		if err != nil {
			return err
		}
		defer l.end()
		for decide, k := l.decider(), 0; k < n; k++ {
			decide(keys.at(k))
		}
		r.onOneThread(r.linePoint(growingKeys, dianaMemory, diana, n, "keys"), l, actors[i])
		return nil
	})
}

// growGateways has 256 callers ask, spread over more and more gateways: the fewer a
// gateway has, the less there is for it to gather. The gateways are stores in this
// process, each with connections of its own.
func growGateways(ctx context.Context, r *run) error {
	server, stop, err := r.startRedis()
	if err != nil {
		return err
	}
	defer stop()
	sizes := []int{1, 2, 4, 8, 16}
	if r.quick {
		sizes = []int{1, 16}
	}
	loads := []globalLoad{
		{name: growingGateways + ", " + globalName(plentyWorkload, 256), callers: 256, actors: hotKey()},
		{name: growingGateways + ", " + globalName(uniformWorkload, 256), callers: 256, rules: 1, actors: uniform(r.count(million, million))},
	}
	var fleets []*globalSystem
	defer func() { closeGlobal(fleets) }()
	for _, n := range sizes {
		for _, open := range []globalOpener{openRedisstore, openRedisRate} {
			f, err := openFleet(ctx, server, open, n)
			if err != nil {
				return err
			}
			fleets = append(fleets, f)
		}
	}
	for _, l := range loads {
		if err := l.measure(ctx, r, server, fleets); err != nil {
			return err
		}
		for i, f := range fleets {
			m := r.report.find(l.name, f.name)
			m.Line, m.Size = f.line, sizes[i/2]
		}
	}
	return nil
}

// openFleet opens as many of one kind, which callers share evenly.
func openFleet(ctx context.Context, server *redistest.Server, open globalOpener, n int) (*globalSystem, error) {
	var all []*globalSystem
	for range n {
		s, err := open(ctx, server)
		if err != nil {
			closeGlobal(all)
			return nil, err
		}
		all = append(all, s)
	}
	next := 0
	return &globalSystem{
		name: fmt.Sprintf("%s, gateways: %d", all[0].name, n), line: all[0].name, kind: all[0].kind, three: true,
		asker: func() asker {
			next++
			return all[next%n].asker()
		},
		close: func() { closeGlobal(all) },
	}, nil
}
