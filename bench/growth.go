// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"

	dianalib "github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/bench/measure"
	"github.com/diana-limiter/diana/bench/page"
	"github.com/diana-limiter/diana/bench/rivals"
	"github.com/diana-limiter/diana/internal/redistest"
)

// The group growth measures how the cost of a decision grows with the number of URLs, of keys,
// and of gateways that share one Redis.

const (
	growingURLs     = "more URLs, 1 thread"
	growingKeys     = "more keys, uniform, 1 thread"
	growingGateways = "more gateways, "

	oneURL   = "one URL, 3 rules"
	everyURL = "every URL, 1 rule each"
)

func growthGroup() group {
	urls := func(system string, n int) string { return sized(system, "URLs", n) }
	keys := func(n int) string { return sized(dianaMemory, "keys", n) }
	gateways := func(n int) string { return sized(dianaStore, "gateways", n) }
	hot, many := growingGateways+callersName(plentyWorkload, 256), growingGateways+callersName(uniformWorkload, 256)
	return group{measure: measureGrowth, Chapter: page.Chapter{
		Name: "growth", Title: "Growth",
		Figures: []measure.Figure{nsDecision, allocs, decisionRate, p50, p99, redisTime, failures},
		Lines: []page.Line{
			page.Compare("one of 100,000 URLs, beside one of 10", growingURLs, nsDecision, urls(oneURL, 100_000), urls(oneURL, 10)),
			page.Compare("all of 10,000 URLs in turn, beside all of 10", growingURLs, nsDecision, urls(everyURL, 10_000), urls(everyURL, 10)),
			page.Compare("10 M keys, beside 1 k", growingKeys, nsDecision, keys(10*million), keys(1000)),
			page.Compare("16 gateways, hot key: decisions/s, beside 1", hot, decisionRate, gateways(16), gateways(1)),
			page.Compare("16 gateways, 1 M keys: decisions/s, beside 16 of the best rival", many, decisionRate, gateways(16), page.BestRival),
		},
	}}
}

// sized makes the name of a system at one size.
func sized(system, what string, n int) string {
	return fmt.Sprintf("%s, %s: %s", system, what, sizeText(n))
}

// sizedRow returns the row of a system at one size.
func sizedRow(r *measure.Run, workload, system, what string, n int, k measure.Kind) *measure.Row {
	return r.Working(workload, sized(system, what, n), sizeText(n), k)
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

func measureGrowth(ctx context.Context, r *measure.Run) error {
	return inTurn(ctx, r, growURLs, growKeys, growGateways)
}

// growURLs asks for one URL, which has three rules, and then for all URLs in turn, which have one
// rule each. The latter takes the URLs out of the processor's caches.
func growURLs(ctx context.Context, r *measure.Run) error {
	r.Note("  %s", growingURLs)
	sizes := []int{10, 1000, 10_000, 100_000}
	if r.Quick {
		sizes = sizes[:2]
	}
	var rows []*measure.Row
	var workers []measure.Worker
	for _, urls := range sizes {
		l, err := openLimiter(ctx, rulesOf(urls, plenty))
		if err != nil {
			return err
		}
		defer closeLimiter(l)
		every := make([]int, urls)
		for k := range urls {
			every[k] = (k * 7919) % urls // a prime step, so that neighbours do not follow each other
		}
		askURLs(l, every)(0)(urls) // makes the counters, for which a table may grow
		rows = append(rows, sizedRow(r, growingURLs, oneURL, "URLs", urls, measure.Diana), sizedRow(r, growingURLs, everyURL, "URLs", urls, measure.Diana))
		workers = append(workers, askURLs(l, []int{rivals.URLAsked}), askURLs(l, every))
	}
	return decisionsOf(ctx, r, 1, rows, workers)
}

// askURLs asks a Limiter for URLs of rulesOf in turn.
func askURLs(l *dianalib.Limiter, urls []int) measure.Worker {
	paths := make([]string, len(urls))
	for i, n := range urls {
		paths[i] = fmt.Sprintf("/api/v%d/orders", n)
	}
	return func(int) func(int) {
		request := httptest.NewRequest(http.MethodGet, paths[0], nil)
		request.Header.Set("X-Device-Id", "0a1b2c3d")
		ctx, next := context.Background(), 0
		return func(n int) {
			for range n {
				_, _ = take(ctx, l, dianalib.Request{Method: request.Method, Path: paths[next], HTTP: request}) // no rule is in Redis
				if next++; next == len(paths) {
					next = 0
				}
			}
		}
	}
}

// growKeys asks for known keys. The floor draws a key, hashes it and reads the clock.
func growKeys(ctx context.Context, r *measure.Run) error {
	r.Note("  %s", growingKeys)
	r = r.AtMost(2) // because filling takes long
	once := r.AtMost(1)
	sizes := []int{1000, 100_000, million, 10 * million}
	if r.Quick {
		sizes = sizes[:2]
	}
	keys := measure.AllKeys(r.Count(sizes[len(sizes)-1], sizes[1]))
	return r.Interleave(ctx, len(sizes), func(_, i int) error {
		size := sizes[i]
		n := r.Count(size, size)
		l, err := tokenBuckets().Open(usual, n)
		if err != nil {
			return err
		}
		defer l.Close()
		for decide, k := l.Decider(), 0; k < n; k++ {
			decide(keys.At(k))
		}
		actors := measure.Uniform(n)
		return decisionsOf(ctx, once, 1, []*measure.Row{
			sizedRow(r, growingKeys, keyFloor, "keys", size, measure.Floor), sizedRow(r, growingKeys, dianaMemory, "keys", size, measure.Diana),
		}, []measure.Worker{deciding(rivals.Clock(), actors), deciding(l, actors)})
	})
}

// growGateways spreads 256 callers over more and more gateways. With fewer callers a gateway makes
// smaller batches. The gateways are stores in this process, each with its own connections.
func growGateways(ctx context.Context, r *measure.Run) error {
	server, stop, err := measure.StartRedis(r)
	if err != nil {
		return err
	}
	defer stop()
	sizes := []int{1, 4, 16}
	if r.Quick {
		sizes = []int{1, 16}
	}
	var fleets []*rivals.Shared
	defer func() { closeAll(fleets) }()
	for _, n := range sizes {
		for _, open := range []rivals.OpenShared{openRedisstore, rivals.OpenRedisRate} {
			f, err := openFleet(ctx, server, open, n)
			if err != nil {
				return err
			}
			fleets = append(fleets, f)
		}
	}
	return eachLoad(r, []sharedLoad{
		{name: growingGateways + callersName(plentyWorkload, 256), callers: 256, quick: true, actors: measure.HotKey()},
		{name: growingGateways + callersName(uniformWorkload, 256), callers: 256, rules: 1, quick: true, actors: measure.Uniform(r.Count(million, million))},
	}, func(l *sharedLoad) error { return l.measure(ctx, r, server, fleets) })
}

// openFleet opens n systems of one kind. Callers are spread evenly over them.
func openFleet(ctx context.Context, server *redistest.Server, open rivals.OpenShared, n int) (*rivals.Shared, error) {
	all, err := openAll(ctx, server, slices.Repeat([]rivals.OpenShared{open}, n)...)
	if err != nil {
		return nil, err
	}
	next := 0
	return &rivals.Shared{
		Name: sized(all[0].Name, "gateways", n), Kind: all[0].Kind, Work: sizeText(n), Three: true,
		Asker: func() rivals.Ask {
			next++
			return all[next%n].Asker()
		},
		Close: func() { closeAll(all) },
	}, nil
}
