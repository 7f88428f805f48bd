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

// The group growth measures how the cost of a decision grows with the number of URLs, of keys,
// and of gateways that share one Redis.

const (
	growingURLs     = "more URLs, 1 thread"
	growingKeys     = "more keys, uniform, 1 thread"
	growingGateways = "more gateways"

	oneURL   = "one URL, 3 rules"
	everyURL = "every URL, 1 rule each"
)

func growthGroup() group {
	urls := func(system string, n int) string { return sized(system, "URLs", n) }
	keys := func(n int) string { return sized(dianaMemory, "keys", n) }
	gateways := func(n int) string { return sized(dianaStore, "gateways", n) }
	hot, many := growingGateways+", "+globalName(plentyWorkload, 256), growingGateways+", "+globalName(uniformWorkload, 256)
	return group{
		name: "growth", title: "Growth", measure: measureGrowth,
		figures: []figure{nsDecision, allocs, decisionRate, p50, p99, redisTime, failures},
		lines: []line{
			compare("one of 100,000 URLs, beside one of 10", growingURLs, nsDecision, urls(oneURL, 100_000), urls(oneURL, 10)),
			compare("all of 10,000 URLs in turn, beside all of 10", growingURLs, nsDecision, urls(everyURL, 10_000), urls(everyURL, 10)),
			compare("10 M keys, beside 1 k", growingKeys, nsDecision, keys(10*million), keys(1000)),
			compare("16 gateways, hot key: decisions/s, beside 1", hot, decisionRate, gateways(16), gateways(1)),
			compare("16 gateways, 1 M keys: decisions/s, beside 16 of the best rival", many, decisionRate, gateways(16), bestRival),
		},
	}
}

// sized makes the name of a system at one size.
func sized(system, what string, n int) string {
	return fmt.Sprintf("%s, %s: %s", system, what, sizeText(n))
}

// sizedRow returns the row of a system at one size.
func sizedRow(r *run, workload, system, what string, n int, k kind) *row {
	return r.working(workload, sized(system, what, n), sizeText(n), k)
}

// sizeText abbreviates thousands and millions.
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
	for _, measure := range []func(context.Context, *run) error{growURLs, growKeys} {
		if err := measure(ctx, r); err != nil {
			return err
		}
	}
	return growGateways(ctx, r)
}

// onOneThread measures decisions on one thread.
func onOneThread(r *run, m *row, l *localLimiter, actors *population) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	runtime.GC()
	ns, allocated := decisions(1, r.count(500_000, 100_000), l, actors)
	m.add(nsDecision, ns)
	m.add(allocs, allocated)
}

// growURLs asks for one URL, which has three rules, and then for all URLs in turn, which have one
// rule each. The latter takes the URLs out of the processor's caches.
func growURLs(ctx context.Context, r *run) error {
	r.note("  %s", growingURLs)
	sizes := []int{10, 1000, 10_000, 100_000}
	if r.quick {
		sizes = sizes[:2]
	}
	var limiters []*dianalib.Limiter
	defer func() {
		for _, l := range limiters {
			closeLimiter(l)
		}
	}()
	for _, urls := range sizes {
		l, err := openLimiter(ctx, rulesOf(urls, true, plenty))
		if err != nil {
			return err
		}
		limiters = append(limiters, l)
	}
	var every [][]int
	for i, urls := range sizes {
		every = append(every, make([]int, urls))
		for k := range urls {
			every[i][k] = (k * 7919) % urls // a prime step, so that neighbours do not follow each other
		}
		for decide, k := urlDecisions(limiters[i], every[i]).decider(), 0; k < urls; k++ {
			decide("") // makes the counters, for which a table may grow
		}
	}
	return r.interleave(ctx, len(sizes), func(_, i int) error {
		one := urlDecisions(limiters[i], []int{urlAsked})
		onOneThread(r, sizedRow(r, growingURLs, oneURL, "URLs", sizes[i], diana), one, hotKey())
		onOneThread(r, sizedRow(r, growingURLs, everyURL, "URLs", sizes[i], diana), urlDecisions(limiters[i], every[i]), hotKey())
		return nil
	})
}

// urlDecisions asks a Limiter for URLs of rulesOf in turn.
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
			allowed, err := takeHTTP(ctx, l, request, paths[next])
			if next++; next == len(paths) {
				next = 0
			}
			return allowed && err == nil
		}
	}}
}

// growKeys asks for known keys. The floor draws a key, hashes it and reads the clock.
func growKeys(ctx context.Context, r *run) error {
	r.note("  %s", growingKeys)
	r = r.atMost(2) // because filling takes long
	sizes := []int{1000, 100_000, million, 10 * million}
	if r.quick {
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
		onOneThread(r, sizedRow(r, growingKeys, keyFloor, "keys", n, floor), clock, actors[i])
		l, err := openMemstore(usual, n)
		if err != nil {
			return err
		}
		defer l.end()
		for decide, k := l.decider(), 0; k < n; k++ {
			decide(keys.at(k))
		}
		onOneThread(r, sizedRow(r, growingKeys, dianaMemory, "keys", n, diana), l, actors[i])
		return nil
	})
}

// growGateways spreads 256 callers over more and more gateways. With fewer callers a gateway makes
// smaller batches. The gateways are stores in this process, each with its own connections.
func growGateways(ctx context.Context, r *run) error {
	server, stop, err := startRedis(r)
	if err != nil {
		return err
	}
	defer stop()
	sizes := []int{1, 4, 16}
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
	}
	return nil
}

// openFleet opens n systems of one kind. Callers are spread evenly over them.
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
		name: sized(all[0].name, "gateways", n), kind: all[0].kind, work: sizeText(n), three: true,
		asker: func() asker {
			next++
			return all[next%n].asker()
		},
		close: func() { closeGlobal(all) },
	}, nil
}
