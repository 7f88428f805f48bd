// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/diana-limiter/diana/limit"
)

// What is measured in one process: how long a decision takes, for the same keys and as
// often for everyone. A time is the run's divided by the number of decisions, so on two
// threads it halves if they do not hinder each other.

// quota is a limit: n at once, and n in each span.
type quota struct {
	n   int64
	per time.Duration
}

// The quotas are such that everyone can keep them, also who counts in whole nanoseconds.
var (
	usual   = quota{6000, time.Minute}                 // windows of a second would be cleared all the time
	endless = quota{1_000_000_000, 1000 * time.Second} // is not used up while it is measured
	nothing = quota{1, 24 * time.Hour}                 // refuses all but the first
)

// step returns how long it takes until one more is allowed.
func (q quota) step() time.Duration { return q.per / time.Duration(q.n) }

// localSystem is one who is measured.
type localSystem struct {
	name string
	kind kind

	// open returns a limiter with a quota for each key, made for so many keys.
	open func(q quota, keys int) (*localLimiter, error)
}

// localLimiter is a limiter that is open.
type localLimiter struct {
	decider func() func(key string) (allowed bool) // makes what one goroutine asks by
	close   func()                                 // may be nil
}

func (l *localLimiter) end() {
	if l.close != nil {
		l.close()
	}
}

// The names of those that targets speak of.
const (
	dianaMemory = "Diana memstore"
	xTimeName   = "x/time/rate in a sync.Map"
	casFloor    = "clock and compare-and-swap"
	keyFloor    = "the key, its hash and the clock"
)

// The figures of this group.
const (
	nsDecision = "ns"
	allocs     = "allocs"
)

func localSystems() []localSystem {
	return []localSystem{
		{dianaMemory, diana, openMemstore},
		{"Diana Limiter", diana, openLocalLimiter},
		{xTimeName, rival, openXTime},
		{"juju/ratelimit in a sync.Map", rival, openJuju},
		{"go-limiter", rival, openGoLimiter},
		{"throttled", rival, openThrottledLocal},
		{"ulule", rival, openUluleLocal},
		{"tollbooth", rival, openTollbooth},
		{"httprate's local counter", rival, openHTTPRate},
	}
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
	localRefused = "1 M keys, uniform, all refused"
	localTen     = "10 M keys, uniform"
)

func measureLocal(ctx context.Context, r *run) error {
	// What is measured on one thread has the machine's other ones for nothing else.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	for _, measure := range []func(context.Context, *run) error{measureHot, measureMillion, measureTenMillion} {
		if err := measure(ctx, r); err != nil {
			return err
		}
	}
	return nil
}

func measureHot(ctx context.Context, r *run) error {
	systems := append(localSystems(), localSystem{"the clock", floor, openClock}, localSystem{casFloor, floor, openCompareAndSwap})
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
			r.timed(w.name, &systems[i], l, r.count(1_000_000, 200_000), hotKey())
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// measureMillion measures what a million keys cost, and decisions for them when they are
// known. Each limiter is alone in memory meanwhile: another's million keys would keep
// the garbage collector busy.
func measureMillion(ctx context.Context, r *run) error {
	r.note("  %s", fillingName(1))
	size := r.count(million, million) // a test has fewer
	even, skewed, keys := uniform(size), zipf(size, 0.99), all(size)
	calls := r.count(500_000, 200_000)
	systems := append(localSystems(), localSystem{onlyClock, floor, openNothing})
	if r.quick { // a round takes a second for each system
		once := *r
		once.rounds = 1
		r = &once
	}
	err := r.fill(ctx, 1, keys, systems, func(s *localSystem, l *localLimiter) {
		if s.kind == floor {
			s = &localSystem{keyFloor, floor, openClock}
			l, _ = s.open(usual, size) // it fails never
		}
		r.timed(localUniform, s, l, calls, even)
		r.timed(localZipf, s, l, calls, skewed)
	})
	if err != nil {
		return err
	}
	var others []localSystem
	for _, a := range []limit.Algorithm{limit.FixedWindow(), limit.LeakyBucket(), limit.SlidingWindow()} {
		others = append(others, memstoreOf(a))
	}
	if err := r.fill(ctx, 1, keys, others, func(*localSystem, *localLimiter) {}); err != nil || r.quick && !r.tiny {
		return err
	}
	r.note("  %s", localRefused)
	systems = localSystems()
	return r.interleave(ctx, len(systems), func(_, i int) error {
		l, err := systems[i].open(nothing, size)
		if err != nil {
			return err
		}
		defer l.end()
		for decide, i := l.decider(), 0; i < keys.len(); i++ {
			decide(keys.at(i))
		}
		runtime.GC()
		r.timed(localRefused, &systems[i], l, calls, even)
		return nil
	})
}

// measureTenMillion is measureMillion for ten. It is not part of a quick run.
func measureTenMillion(ctx context.Context, r *run) error {
	if r.quick {
		return nil
	}
	r.note("  %s", fillingName(10))
	even, keys := uniform(10*million), all(10*million)
	ours := []localSystem{{dianaMemory, diana, openMemstore}, {onlyClock, floor, openNothing}}
	return r.fill(ctx, 10, keys, ours, func(s *localSystem, l *localLimiter) {
		if s.kind == diana {
			r.timed(localTen, s, l, 500_000, even)
		}
	})
}

// measureHuge is measureTenMillion for the rivals, a group by itself: ten million keys of
// one take half a minute and gigabytes. So each is filled once, and then asked as often as
// there are rounds. It stands in the tables of the local group, beside Diana.
func measureHuge(ctx context.Context, r *run) error {
	if r.quick {
		return nil
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	even, keys := uniform(10*million), all(10*million)
	once := *r
	once.rounds, once.group = 1, "local"
	rivals := slices.DeleteFunc(localSystems(), func(s localSystem) bool { return s.kind != rival })
	return once.fill(ctx, 10, keys, rivals, func(s *localSystem, l *localLimiter) {
		for range r.rounds {
			once.timed(localTen, s, l, 500_000, even)
		}
	})
}

// timed measures decisions on one thread and on two.
func (r *run) timed(workload string, s *localSystem, l *localLimiter, calls int, actors *population) {
	for _, threads := range []int{1, 2} {
		ns, allocated := decisions(threads, calls, l, actors)
		m := r.row(threadsName(workload, threads), s.name, s.kind)
		m.add(nsDecision, ns)
		m.add(allocs, allocated)
	}
}

// decisions returns how long a decision takes, in nanoseconds, and how many allocations.
func decisions(threads, calls int, l *localLimiter, actors *population) (ns, allocated float64) {
	runtime.GOMAXPROCS(threads)
	begin := make(chan struct{})
	var ready, done sync.WaitGroup
	ready.Add(threads)
	for i := range threads {
		done.Go(func() {
			decide, keys := l.decider(), actors.stream(i)
			decide(keys.next()) // what a goroutine allocates once
			ready.Done()
			<-begin
			if keys.drawn.len() == 1 { // drawing is a part of what is measured here
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
