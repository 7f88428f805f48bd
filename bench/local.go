// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"
)

// The local groups measure decisions within one process. All systems decide for the same keys,
// equally often. A time is the duration of the run divided by the number of decisions, so two
// threads halve it if they do not hinder each other.

// quota allows n at once, and n in each period.
type quota struct {
	n   int64
	per time.Duration
}

// Every system can keep these quotas, even one that counts whole nanoseconds.
var (
	usual   = quota{6000, time.Minute}                 // with a window of a second some systems would clear windows all the time
	endless = quota{1_000_000_000, 1000 * time.Second} // lasts for a whole measurement
)

// step returns the time after which one more request is allowed.
func (q quota) step() time.Duration { return q.per / time.Duration(q.n) }

// localSystem is a system to measure.
type localSystem struct {
	name string
	kind kind
	work string // see row

	// open returns a limiter with a quota for each key and room for that many keys.
	open func(q quota, keys int) (*localLimiter, error)
}

// localLimiter is an open limiter.
type localLimiter struct {
	decider func() func(key string) (allowed bool) // returns a function for one goroutine
	close   func()                                 // may be nil
}

func (l *localLimiter) end() {
	if l.close != nil {
		l.close()
	}
}

// The names of systems that lines mention.
const (
	dianaMemory  = "Diana memstore"
	dianaLimiter = "Diana Limiter"
	xTimeName    = "x/time/rate in a sync.Map"
	casFloor     = "clock and compare-and-swap"
	keyFloor     = "the key, its hash and the clock"

	goLimiterName = "go-limiter"
	httpRateName  = "httprate's local counter"
)

var (
	nsDecision = figure{name: "ns", format: nsText}
	allocs     = figure{name: "allocs", format: fewText}

	localFigures = []figure{nsDecision, allocs, slowest, bytesKey, gcTime}
)

// fewText ignores fractions, such as the few allocations of the measurement itself.
func fewText(v float64) string {
	if v < 0.01 {
		return "0"
	}
	return plainText(v)
}

func localSystems() []localSystem {
	return append([]localSystem{
		{name: dianaMemory, kind: diana, open: openMemstore},
		{name: dianaLimiter, kind: diana, open: openLocalLimiter},
	}, localRivals()...)
}

// threadsName makes the name of a workload.
func threadsName(what string, threads int) string {
	if threads == 1 {
		return what + ", 1 thread"
	}
	return fmt.Sprintf("%s, %d threads", what, threads)
}

// The workloads, without the number of threads.
const (
	localHot     = "hot key, nearly all refused"
	localPlenty  = "hot key, all allowed"
	localUniform = "1 M keys, uniform"
	localZipf    = "1 M keys, Zipf 0.99"
	localTen     = "10 M keys, uniform"
)

func localGroup() group {
	return group{
		name: "local", title: "In one process", lines: localLines(), measure: measureLocal,
		figures: localFigures,
	}
}

func measureLocal(ctx context.Context, r *run) error {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	for _, measure := range []func(context.Context, *run) error{measureHot, measureMillion, measureTenMillion} {
		if err := measure(ctx, r); err != nil {
			return err
		}
	}
	return nil
}

func measureHot(ctx context.Context, r *run) error {
	systems := append(localSystems(),
		localSystem{name: "the clock", kind: floor, open: openClock},
		localSystem{name: casFloor, kind: floor, open: openCompareAndSwap})
	for _, w := range []struct {
		name string
		quota
	}{{localHot, usual}, {localPlenty, endless}} {
		r.note("  %s", w.name)
		err := r.interleave(ctx, len(systems), func(_, i int) error {
			l, err := systems[i].open(w.quota, 1)
			if err != nil {
				return err
			}
			defer l.end()
			runtime.GC()
			timed(r, w.name, &systems[i], l, r.count(1_000_000, 50_000), hotKey())
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// measureMillion measures the cost of a million keys, and then decisions for known keys. Only
// one limiter at a time is in memory, because the keys of another one would keep the garbage
// collector busy.
func measureMillion(ctx context.Context, r *run) error {
	r.note("  %s", fillingName(1))
	size := r.count(million, 100_000) // the names of the workloads hold for a full run
	even, skewed, keys := uniform(size), zipf(size, 0.99), all(size)
	calls := r.count(200_000, 50_000)
	systems := append(localSystems(), localSystem{name: onlyClock, kind: floor, open: openNothing})
	r = r.atMost(3) // because a round takes seconds for each system
	err := fill(ctx, r, 1, keys, systems, func(s *localSystem, l *localLimiter) {
		if s.kind == floor {
			s = &localSystem{name: keyFloor, kind: floor, open: openClock}
			l, _ = s.open(usual, size) // never fails
		}
		timed(r, localUniform, s, l, calls, even)
		timed(r, localZipf, s, l, calls, skewed)
	})
	if err != nil {
		return err
	}
	return fill(ctx, r, 1, keys, otherMemstores(), func(*localSystem, *localLimiter) {})
}

// measureTenMillion does for ten million keys what measureMillion does for one. A quick run
// omits it.
func measureTenMillion(ctx context.Context, r *run) error {
	if r.quick {
		return nil
	}
	r.note("  %s", fillingName(10))
	even, keys := uniform(10*million), all(10*million)
	ours := []localSystem{{name: dianaMemory, kind: diana, open: openMemstore}}
	return fill(ctx, r.atMost(3), 10, keys, ours, func(s *localSystem, l *localLimiter) {
		timed(r, localTen, s, l, 500_000, even)
	})
}

func hugeGroup() group { return group{name: "huge", measure: measureHuge, figures: localFigures} }

// measureHuge measures rivals with ten million keys. It is a group of its own because ten million keys
// of one rival take up to half a minute and gigabytes. So it measures only the two rivals of which one is
// the best in every figure of a million keys. Each is filled once and asked once a round. Its workloads are those of the group local, where Diana's rows are.
func measureHuge(ctx context.Context, r *run) error {
	if r.quick {
		return nil
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	even, keys := uniform(10*million), all(10*million)
	once := r.atMost(1)
	leading := slices.DeleteFunc(localRivals(), func(s localSystem) bool {
		return !slices.Contains([]string{goLimiterName, httpRateName}, s.name)
	})
	return fill(ctx, once, 10, keys, leading, func(s *localSystem, l *localLimiter) {
		for range r.rounds {
			timed(once, localTen, s, l, 500_000, even)
		}
	})
}

// timed measures decisions on one thread and on two.
func timed(r *run, workload string, s *localSystem, l *localLimiter, calls int, actors *population) {
	for _, threads := range []int{1, 2} {
		ns, allocated := decisions(threads, calls, l, actors)
		m := r.row(threadsName(workload, threads), s.name, s.kind)
		m.add(nsDecision, ns)
		m.add(allocs, allocated)
	}
}

// decisions returns the nanoseconds and the allocations of a decision.
func decisions(threads, calls int, l *localLimiter, actors *population) (ns, allocated float64) {
	runtime.GOMAXPROCS(threads)
	begin := make(chan struct{})
	var ready, done sync.WaitGroup
	ready.Add(threads)
	for i := range threads {
		done.Go(func() {
			decide, keys := l.decider(), actors.stream(i)
			decide(keys.next()) // includes what a goroutine allocates once
			ready.Done()
			<-begin
			if keys.drawn.len() == 1 { // drawing one key again and again would be part of the time
				key := keys.next()
				for range calls / threads {
					decide(key)
				}
				return
			}
			for range calls / threads {
				decide(keys.next())
			}
		})
	}
	ready.Wait()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	took := stopwatch()
	close(begin)
	done.Wait()
	ns = float64(took().Nanoseconds()) / float64(calls/threads*threads)
	runtime.ReadMemStats(&after)
	return ns, float64(after.Mallocs-before.Mallocs) / float64(calls)
}
