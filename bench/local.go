// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"time"

	"github.com/diana-limiter/diana/bench/measure"
	"github.com/diana-limiter/diana/bench/page"
	"github.com/diana-limiter/diana/bench/rivals"
)

// The group local measures decisions within one process, in paired slices. All systems decide for the same
// keys.
//
// The cost of keys has three figures:
//
//   - the bytes for each key, without its text, which exists anyway
//   - the time that the keys add to a full garbage collection
//   - the slowest single decision while all keys appear for the first time

// Every system can keep these quotas, even one that counts whole nanoseconds.
var (
	usual   = rivals.Quota{N: 6000, Per: time.Minute}                 // with a window of a second some systems would clear windows all the time
	endless = rivals.Quota{N: 1_000_000_000, Per: 1000 * time.Second} // lasts for a whole measurement
)

const (
	million = measure.Million
)

var (
	nsDecision = measure.Figure{Name: "ns", Format: measure.NsText}
	allocs     = measure.Figure{Name: "allocs", Format: measure.FewText}
	bytesKey   = measure.Figure{Name: "bytes/key", Format: measure.PlainText}
	gcTime     = measure.Figure{Name: "added to a full GC", Format: measure.SecondsText}
	slowest    = measure.Figure{Name: "slowest", Format: measure.SecondsText} // decision

	localFigures = []measure.Figure{nsDecision, allocs, slowest, bytesKey, gcTime}
)

func threadsName(what string, threads int) string {
	return what + map[int]string{1: ", 1 thread", 2: ", 2 threads"}[threads]
}

// The workloads, without the number of threads.
const (
	localHot     = "hot key, nearly all refused"
	localPlenty  = "hot key, all allowed"
	localUniform = "1 M keys, uniform"
)

func fillingName(millions int) string { return fmt.Sprintf("filling with %d M keys", millions) }

func localGroup() group {
	return group{measure: measureLocal, Chapter: page.Chapter{Name: "local", Title: "In one process", Lines: localLines(), Figures: localFigures}}
}

func localLines() []page.Line {
	hot1, hot2 := threadsName(localHot, 1), threadsName(localHot, 2)
	plenty1, plenty2 := threadsName(localPlenty, 1), threadsName(localPlenty, 2)
	one, ten := fillingName(1), fillingName(10)
	return []page.Line{
		page.Compare(hot1, hot1, nsDecision, dianaMemory, rivals.CASFloor).Must("L1", page.RatioAtMost(1.5)),
		page.Compare(hot2, hot2, nsDecision, dianaMemory, rivals.XTime).Must("L1", page.RatioAtLeast(4.5)),
		page.Compare(hot2, hot2, nsDecision, dianaMemory, page.BestRival).Must("L1", page.RatioAtLeast(3)),
		page.Compare(plenty1, plenty1, nsDecision, dianaMemory, rivals.CASFloor).Must("L1", page.RatioAtMost(1.5)),
		page.Compare(plenty2, plenty2, nsDecision, dianaMemory, rivals.CASFloor).Must("L1", page.RatioAtMost(1.5)),
		page.Compare("1 M keys, 1 thread", threadsName(localUniform, 1), nsDecision, dianaMemory, page.BestRival).Must("L2", page.RatioAtLeast(1.7)),
		page.Compare("1 M keys, 2 threads", threadsName(localUniform, 2), nsDecision, dianaMemory, page.BestRival).Must("L2", page.RatioAtLeast(2.3)),
		page.Compare("bytes a key, 1 M keys", one, bytesKey, dianaMemory, page.BestRival).Must("L3", page.AtMost(bytesKey, 32)),
		page.Compare("the same, W", one, bytesKey, memstoreName("W")).Must("L3", page.AtMost(bytesKey, 32)),
		page.Compare("the same, LB", one, bytesKey, memstoreName("LB")).Must("L3", page.AtMost(bytesKey, 32)),
		page.Compare("the same, SW with 10 slices", one, bytesKey, memstoreName("SW")).Must("L3", page.AtMost(bytesKey, 32+4*10)),
		page.Compare("bytes a key, 10 M keys", ten, bytesKey, dianaMemory).Must("L3", page.AtMost(bytesKey, 32)),
		page.Compare("time that 1 M keys add to a full GC", one, gcTime, dianaMemory, page.BestRival).Must("L3", page.AtMost(gcTime, 0.005)),
		page.Compare("slowest decision while filling 10 M keys", ten, slowest, dianaMemory).Must("L4", page.AtMost(slowest, 0.005)),
		page.Custom("allocations of any local decision", measureAllocs).Must("L5", page.AtMost(allocs, 0)),
		page.Compare("Limiter, "+hot1, hot1, nsDecision, dianaLimiter, rivals.CASFloor).Must("L6", page.RatioAtMost(4.5)),
		page.Compare("Limiter, "+plenty1, plenty1, nsDecision, dianaLimiter, rivals.CASFloor).Must("L6", page.RatioAtMost(4.5)),
		page.Compare("a prepared request, "+hot1, hot1, nsDecision, dianaReady, rivals.CASFloor).Must("L6", page.RatioAtMost(2.5)),
		page.Compare("a prepared request, "+plenty1, plenty1, nsDecision, dianaReady, rivals.CASFloor).Must("L6", page.RatioAtMost(2.5)),
		page.Compare("Limiter, which makes the key, "+hot2, hot2, nsDecision, dianaLimiter, page.BestRival).Must("L6", page.RatioAtLeast(1)),
	}
}

// measureAllocs returns the most allocations of a local decision. It ignores decisions for new
// keys, because a table may have to grow for them.
func measureAllocs(r *measure.Report) (m page.Measured, ok bool) {
	for _, w := range r.Rows {
		if s := w.Series(allocs); w.Group == "local" && strings.HasPrefix(w.System, "Diana") && s != nil {
			m.Value, ok = max(m.Value, s.Median), true
		}
	}
	// The run itself allocates a little, but never once in a hundred decisions.
	if m.Diana = measure.FewText(m.Value); m.Diana == "0" {
		m.Value = 0
	}
	return m, ok
}

func measureLocal(ctx context.Context, r *measure.Run) error {
	for _, part := range []func(context.Context, *measure.Run) error{measureHot, measureMillion, measureTenMillion} {
		if err := part(ctx, r); err != nil {
			return err
		}
	}
	return nil
}

// opened is an open system.
type opened struct {
	rivals.Local
	*rivals.Limiter
}

func measureHot(ctx context.Context, r *measure.Run) error {
	systems := append(rivals.LocalRivals(), tokenBuckets(), localLimiter(dianaLimiter, false), localLimiter(dianaReady, true),
		rivals.Local{Name: rivals.CASFloor, Kind: measure.Floor, Open: func(q rivals.Quota, _ int) (*rivals.Limiter, error) { return rivals.CompareAndSwap(q), nil }})
	for i, name := range []string{localHot, localPlenty} {
		r.Note("  %s", name)
		q := []rivals.Quota{usual, endless}[i]
		err := r.Interleave(ctx, 1, func(int, int) error {
			var all []opened
			for _, s := range systems {
				l, err := s.Open(q, 1)
				if err != nil {
					return err
				}
				defer l.Close()
				all = append(all, opened{s, l})
			}
			return timed(r, name, measure.HotKey(), all...)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// timed measures decisions on one thread and on two.
func timed(r *measure.Run, workload string, actors measure.Names, systems ...opened) error {
	for _, threads := range []int{1, 2} {
		var workers []measure.Worker
		for _, s := range systems {
			workers = append(workers, deciding(s.Limiter, actors))
		}
		costs, err := r.Slices(threads, workers...)
		if err != nil {
			return err
		}
		for i, c := range costs {
			row := r.Row(threadsName(workload, threads), systems[i].Name, systems[i].Kind)
			row.Add(nsDecision, c.Ns)
			row.Add(allocs, c.Allocs)
		}
	}
	return nil
}

// deciding is the work of decisions for some actors.
func deciding(l *rivals.Limiter, actors measure.Names) measure.Worker {
	return func(thread int) func(int) {
		decide, next := l.Decider(), actors.Stream(thread)
		if actors.Len() > 1 {
			return func(n int) {
				for range n {
					decide(next())
				}
			}
		}
		key := next() // drawing one key again and again would be part of the time
		return func(n int) {
			for range n {
				decide(key)
			}
		}
	}
}

// measureMillion measures the cost of a million keys, and then decisions for known keys. Only one limiter at a time is in
// memory, because the keys of another one would take room in the caches of the processor.
func measureMillion(ctx context.Context, r *measure.Run) error {
	r.Note("  %s", fillingName(1))
	size := r.Count(million) // the names of the workloads hold for a full run
	even, keys := measure.Uniform(size), measure.AllKeys(size)
	r = r.AtMost(3) // because a round takes seconds for each system
	err := fill(ctx, r, 1, keys, append(rivals.LocalRivals(), tokenBuckets()), func(o opened) error { return timed(r, localUniform, even, o) })
	if err != nil {
		return err
	}
	return fill(ctx, r, 1, keys, otherMemstores(), func(opened) error { return nil })
}

// measureTenMillion measures the cost of ten million keys, for Diana alone. Those of a rival take gigabytes.
func measureTenMillion(ctx context.Context, r *measure.Run) error {
	r.Note("  %s", fillingName(10))
	return fill(ctx, r.AtMost(3), 10, measure.AllKeys(r.Count(10*million)), []rivals.Local{tokenBuckets()}, func(opened) error { return nil })
}

// fill lets each system decide once for every key, and then calls the function then.
func fill(ctx context.Context, r *measure.Run, millions int, keys measure.Names, systems []rivals.Local, then func(opened) error) error {
	return r.Interleave(ctx, len(systems), func(_, i int) error {
		s := systems[i]
		heapBefore, gcBefore := heap()
		l, err := s.Open(usual, keys.Len())
		if err != nil {
			return err
		}
		defer l.Close()
		decide, longest := l.Decider(), time.Duration(0)
		began := time.Now()
		for last, i := time.Since(began), 0; i < keys.Len(); i++ {
			decide(keys.At(i))
			now := time.Since(began)
			longest = max(longest, now-last)
			last = now
		}
		m := r.Working(fillingName(millions), s.Name, s.Work, s.Kind)
		m.Add(nsDecision, float64(time.Since(began).Nanoseconds())/float64(keys.Len()))
		m.Add(slowest, longest.Seconds())
		heapAfter, gcAfter := heap()
		m.Add(bytesKey, (float64(heapAfter)-float64(heapBefore))/float64(keys.Len()))
		m.Add(gcTime, max(gcAfter-gcBefore, 0).Seconds())
		err = then(opened{s, l})
		runtime.KeepAlive(l)
		return err
	})
}

// heap returns the memory in use, and the shortest of some full garbage collections. It collects
// until no more memory becomes free. Otherwise memory that a finalizer still holds, such as
// that of ulule's store, would count for the next system.
func heap() (bytes uint64, gc time.Duration) {
	for i := range 10 {
		began := time.Now()
		runtime.GC()
		if t := time.Since(began); i == 0 || t < gc {
			gc = t
		}
		before := bytes
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		if bytes = m.HeapAlloc; i > 1 && bytes > before-before/100 {
			break
		}
		time.Sleep(time.Millisecond) // finalizers have a goroutine of their own
	}
	return bytes, gc
}
