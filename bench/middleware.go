// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"fmt"
	"runtime"
	"time"
)

// The group middleware measures what an allowed request costs beyond the bare handler of the same
// framework, on one thread and without a network.

var (
	nsOver     = figure{name: "ns over bare", format: nsText}
	allocsOver = figure{name: "allocs over", format: fewText}
	bytesOver  = figure{name: "bytes over", format: plainText}

	// Of the complete request.
	requestTime   = figure{name: "request", format: nsText, better: neither}
	requestAllocs = figure{name: "request's allocs", format: plainText, better: neither}
	requestBytes  = figure{name: "request's bytes", format: plainText, better: neither}
)

// The names that lines mention.
const (
	middlewareWorkload = "an allowed request"

	dianaOneRule  = "Diana, 1 rule by IP, 1 URL, RateLimit fields"
	bareHandler   = "bare handler"
	fieldsHandler = "bare handler that sets two fields"
)

// inFramework makes the name of the workload of a framework.
func inFramework(framework string) string { return middlewareWorkload + " in " + framework }

// dianaHandler makes the name of a handler with three rules and that many URLs.
func dianaHandler(urls int, fields bool) string {
	return inFull(fmt.Sprintf("Diana, 3 rules, %d URLs", urls), fields)
}

// dianaWith makes the name of Diana with one rule in a framework.
func dianaWith(s scope, fields bool) string { return inFull("Diana, "+string(s), fields) }

func inFull(name string, fields bool) string {
	if fields {
		name += ", RateLimit fields"
	}
	return name
}

// scope says which requests share the limit of a middleware. It is part of the name.
type scope string

const (
	unlimited  scope = ""
	perAddress scope = "1 rule by IP"
	forAll     scope = "1 rule for all"
	threeRules scope = "3 rules"
)

// middleware is a limiter in front of a handler, or a handler without one.
type middleware struct {
	workload string
	name     string
	kind     kind
	scope    scope
	fields   bool // the responses have fields of the limiter
	open     opener
}

// opener opens a middleware that allows so many requests a minute, and returns a client of it.
type opener func(ctx context.Context, limit int) (c client, stop func(), err error)

// plenty is a limit that the group does not reach.
const plenty = 1_000_000_000

func middlewareGroup() group {
	plain, fields, one := dianaHandler(1000, false), dianaHandler(1000, true), middlewareWorkload
	inFiber, inGRPC := inFramework("fiber"), inFramework("gRPC")
	oneFields := dianaWith(perAddress, true)
	return group{
		name: "middleware", title: "As middleware", measure: measureMiddleware,
		figures: []figure{nsOver, requestTime, allocsOver, bytesOver},
		lines: []line{
			compare("1 rule by IP, RateLimit fields, over the bare handler", one, nsOver, dianaOneRule, bestRival),
			compare("the same in gin", inFramework("gin"), nsOver, oneFields, bestRival),
			compare("the same in echo", inFramework("echo"), nsOver, oneFields, bestRival),
			compare("the same in chi", inFramework("chi"), nsOver, oneFields, bestRival),
			compare("the same in fiber", inFiber, nsOver, oneFields, bestRival),
			compare("1 rule for all calls in gRPC, over the bare handler", inGRPC, nsOver, dianaWith(forAll, false), bestRival),
			compare("1 rule by IP in gRPC, over the bare handler", inGRPC, nsOver, dianaWith(perAddress, false), grpcRival+", "+string(forAll)),
			compare("3 rules, 1,000 URLs, over the bare handler", one, nsOver, plain).must("M1", atMost(nsOver, 560)),
			compare("the same: allocations", one, allocsOver, plain).must("M1", atMost(allocsOver, 0)),
			custom("3 rules, 1,000 URLs, fields, over a handler that sets two fields", measureFields).must("M1", atMost(nsOver, 600)),
			compare("the same: allocations over the bare handler", one, allocsOver, fields).must("M1", atMost(allocsOver, 4)),
			compare("10,000 URLs beside 10", one, nsOver, dianaHandler(10_000, false), dianaHandler(10, false)).must("M2", ratioAtMost(1.3)),
			compare("the same with fields", one, nsOver, dianaHandler(10_000, true), dianaHandler(10, true)).must("M2", ratioAtMost(1.3)),
		},
	}
}

// measureFields compares the handler that sends RateLimit fields with one that sets two fields,
// round by round.
func measureFields(r *report) (m measured, ok bool) {
	ours, theirs := r.find(middlewareWorkload, dianaHandler(1000, true)).series(nsOver), r.find(middlewareWorkload, fieldsHandler).series(nsOver)
	if ours == nil || theirs == nil {
		return m, false
	}
	var over []float64
	for i, ns := range ours.Rounds {
		over = append(over, ns-theirs.Rounds[i])
	}
	m.value = median(over)
	m.diana = nsText(m.value)
	return m, true
}

// allMiddleware returns all that the group measures, by workload.
func allMiddleware() [][]middleware {
	return [][]middleware{httpMiddleware(), ginMiddleware(), echoMiddleware(), chiMiddleware(), fiberMiddleware(), grpcMiddleware()}
}

func measureMiddleware(ctx context.Context, r *run) error {
	workloads := allMiddleware()
	sends := make([][]func(), len(workloads))
	for i, all := range workloads {
		r.note("  %s", all[0].workload)
		for _, m := range all {
			send, stop, err := m.opened(ctx)
			if err != nil {
				return fmt.Errorf("%s: %s: %w", m.workload, m.name, err)
			}
			defer stop()
			sends[i] = append(sends[i], send)
		}
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	err := r.interleave(ctx, len(workloads), func(_, i int) error {
		costs(sends[i], r.count(5_000, 2_000)) // includes what the handlers allocate once
		for k, c := range costs(sends[i], r.count(100_000, 20_000)) {
			of := &workloads[i][k]
			m := r.working(of.workload, of.name, inFull(string(of.scope), of.fields), of.kind)
			m.add(requestTime, c.ns)
			m.add(requestAllocs, c.allocated)
			m.add(requestBytes, c.bytes)
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, m := range r.report.Rows {
		if bare := r.report.find(m.Workload, bareHandler); m.Group == r.group && m != bare {
			addOver(m, bare)
		}
	}
	return nil
}

// addOver adds the figures beyond those of the bare handler, round by round.
func addOver(m, bare *row) {
	for _, f := range []struct{ total, over figure }{{requestTime, nsOver}, {requestAllocs, allocsOver}, {requestBytes, bytesOver}} {
		for round, v := range m.series(f.total).Rounds {
			m.add(f.over, v-bare.series(f.total).Rounds[round])
		}
	}
}

// expense is what a request costs.
type expense struct {
	ns        float64
	allocated float64 // pieces of memory
	bytes     float64
}

// costs returns what each of several requests costs. They take turns in short slices, and a figure is the
// median of its slices. A mean would have other activity of the machine, and the garbage of the other
// requests: when it is collected, pools are emptied.
func costs(sends []func(), requests int) []expense {
	const parts = 400 // so short that the scheduler interrupts few of them
	each := max(1, requests/parts)
	all := make([][3][]float64, len(sends))
	for part := range parts {
		for k := range sends {
			i := (part + k) % len(sends)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			begin := time.Now() // a stopwatch would allocate
			for range each {
				sends[i]()
			}
			took := time.Since(begin)
			runtime.ReadMemStats(&after)
			for of, n := range []uint64{uint64(took.Nanoseconds()), after.Mallocs - before.Mallocs, after.TotalAlloc - before.TotalAlloc} {
				all[i][of] = append(all[i][of], float64(n)/float64(each))
			}
		}
	}
	var medians []expense
	for _, s := range all {
		medians = append(medians, expense{median(s[0]), median(s[1]), median(s[2])})
	}
	return medians
}
