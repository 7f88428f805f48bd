// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/diana-limiter/diana/bench/measure"
	"github.com/diana-limiter/diana/bench/page"
	"github.com/diana-limiter/diana/bench/rivals"
)

// The local groups measure decisions within one process, in paired slices. All systems decide for the same
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
	million   = measure.Million
	keyFloor  = "the key, its hash and the clock"
	onlyClock = "nothing, for 250 ns"
)

var (
	nsDecision = measure.Figure{Name: "ns", Format: measure.NsText}
	allocs     = measure.Figure{Name: "allocs", Format: measure.FewText}
	bytesKey   = measure.Figure{Name: "bytes/key", Format: measure.PlainText}
	gcTime     = measure.Figure{Name: "added to a full GC", Format: measure.SecondsText}
	slowest    = measure.Figure{Name: "slowest", Format: measure.SecondsText} // decision

	localFigures = []measure.Figure{nsDecision, allocs, slowest, bytesKey, gcTime}
)

func localSystems() []rivals.Local {
	return append([]rivals.Local{tokenBuckets(), {Name: dianaLimiter, Kind: measure.Diana, Open: openLocalLimiter}}, rivals.LocalRivals()...)
}

// counted makes the name of a workload: what, and n of a noun.
func counted(what string, n int, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return fmt.Sprintf("%s, %d %s", what, n, noun)
}

func threadsName(what string, threads int) string { return counted(what, threads, "thread") }

// The workloads, without the number of threads.
const (
	localHot     = "hot key, nearly all refused"
	localPlenty  = "hot key, all allowed"
	localUniform = "1 M keys, uniform"
	localTen     = "10 M keys, uniform"
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
		page.Compare(hot1, hot1, nsDecision, dianaMemory, rivals.CASFloor).Must("L1", page.RatioAtMost(1.6)),
		page.Compare(hot2, hot2, nsDecision, dianaMemory, rivals.XTime).Must("L1", page.RatioAtLeast(4.5)),
		page.Compare(hot2, hot2, nsDecision, dianaMemory, page.BestRival).Must("L1", page.RatioAtLeast(3)),
		page.Compare(plenty1, plenty1, nsDecision, dianaMemory, rivals.CASFloor).Must("L1", page.RatioAtMost(1.8)),
		page.Compare(plenty2, plenty2, nsDecision, dianaMemory, rivals.CASFloor).Must("L1", page.RatioAtMost(1.5)),
		page.Compare("1 M keys, 1 thread", threadsName(localUniform, 1), nsDecision, dianaMemory, page.BestRival).Must("L2", page.RatioAtLeast(1.7)),
		page.Compare("1 M keys, 2 threads", threadsName(localUniform, 2), nsDecision, dianaMemory, page.BestRival).Must("L2", page.RatioAtLeast(2.3)),
		page.Compare("10 M keys, 2 threads", threadsName(localTen, 2), nsDecision, dianaMemory, page.BestRival),
		page.Compare("bytes a key, 1 M keys", one, bytesKey, dianaMemory, page.BestRival).Must("L3", page.AtMost(bytesKey, 32)),
		page.Compare("the same, W", one, bytesKey, memstoreName("W")).Must("L3", page.AtMost(bytesKey, 32)),
		page.Compare("the same, LB", one, bytesKey, memstoreName("LB")).Must("L3", page.AtMost(bytesKey, 32)),
		page.Compare("the same, SW with 10 slices", one, bytesKey, memstoreName("SW")).Must("L3", page.AtMost(bytesKey, 32+4*10)),
		page.Compare("bytes a key, 10 M keys", ten, bytesKey, dianaMemory, page.BestRival).Must("L3", page.AtMost(bytesKey, 32)),
		page.Compare("time that 1 M keys add to a full GC", one, gcTime, dianaMemory, page.BestRival).Must("L3", page.AtMost(gcTime, 0.005)),
		page.Compare("slowest decision while filling 10 M keys", ten, slowest, dianaMemory, page.BestRival).Must("L4", page.AtMost(slowest, 0.005)),
		page.Custom("allocations of any local decision", measureAllocs).Must("L5", page.AtMost(allocs, 0)),
		page.Compare("Limiter, "+hot1, hot1, nsDecision, dianaLimiter).Must("L6", page.AtMost(nsDecision, 110)),
		page.Compare("Limiter, "+plenty1, plenty1, nsDecision, dianaLimiter).Must("L6", page.AtMost(nsDecision, 110)),
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
	return inTurn(ctx, r, measureHot, measureMillion, measureTenMillion)
}

// inTurn measures one part of a group after the other.
func inTurn(ctx context.Context, r *measure.Run, parts ...func(context.Context, *measure.Run) error) error {
	for _, part := range parts {
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
	systems := append(localSystems(),
		rivals.Local{Name: "the clock", Kind: measure.Floor, Open: func(rivals.Quota, int) (*rivals.Limiter, error) { return rivals.Clock(), nil }},
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
			return timed(ctx, r, name, measure.HotKey(), all...)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// timed measures decisions on one thread and on two, for one round.
func timed(ctx context.Context, r *measure.Run, workload string, actors measure.Names, systems ...opened) error {
	for _, threads := range []int{1, 2} {
		var rows []*measure.Row
		var workers []measure.Worker
		for _, s := range systems {
			rows = append(rows, r.Row(threadsName(workload, threads), s.Name, s.Kind))
			workers = append(workers, deciding(s.Limiter, actors))
		}
		if err := decisionsOf(ctx, r.AtMost(1), threads, rows, workers); err != nil {
			return err
		}
	}
	return nil
}

// decisionsOf adds what a decision of each worker costs to its row.
func decisionsOf(ctx context.Context, r *measure.Run, threads int, rows []*measure.Row, workers []measure.Worker) error {
	return r.Paired(ctx, threads, func(i int, c measure.Expense) {
		rows[i].Add(nsDecision, c.Ns)
		rows[i].Add(allocs, c.Allocs)
	}, workers...)
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

// measureMillion measures the cost of a million keys, and then decisions for known keys beside the floor.
// Only one limiter at a time is in memory, because the keys of another one would take room in the caches of
// the processor.
func measureMillion(ctx context.Context, r *measure.Run) error {
	r.Note("  %s", fillingName(1))
	size := r.Count(million, 100_000) // the names of the workloads hold for a full run
	even, keys := measure.Uniform(size), measure.AllKeys(size)
	systems := append(localSystems(), rivals.Local{
		Name: onlyClock, Kind: measure.Floor, Open: func(rivals.Quota, int) (*rivals.Limiter, error) { return rivals.Nothing(), nil },
	})
	r = r.AtMost(3) // because a round takes seconds for each system
	err := fill(ctx, r, 1, keys, systems, func(o opened) error {
		if o.Name == onlyClock {
			return nil
		}
		beside := []opened{o}
		if o.Name == dianaMemory {
			beside = append(beside, opened{rivals.Local{Name: keyFloor, Kind: measure.Floor}, rivals.Clock()})
		}
		return timed(ctx, r, localUniform, even, beside...)
	})
	if err != nil {
		return err
	}
	return fill(ctx, r, 1, keys, otherMemstores(), func(opened) error { return nil })
}

// measureTenMillion does for ten million keys what measureMillion does for one. A quick run
// omits it.
func measureTenMillion(ctx context.Context, r *measure.Run) error {
	return tenMillion(ctx, r.AtMost(3), 1, tokenBuckets())
}

func hugeGroup() group {
	return group{measure: measureHuge, Chapter: page.Chapter{Name: "huge", Figures: localFigures}}
}

// measureHuge measures rivals with ten million keys. It is a group of its own because ten million keys
// of one rival take up to half a minute and gigabytes. So it measures only the two rivals of which one is
// the best in every figure of a million keys. Each is filled once and asked once a round. Its workloads are
// those of the group local, where Diana's rows are.
func measureHuge(ctx context.Context, r *measure.Run) error {
	return tenMillion(ctx, r.AtMost(1), r.Rounds, slices.DeleteFunc(rivals.LocalRivals(), func(s rivals.Local) bool {
		return s.Name != rivals.GoLimiter && s.Name != rivals.HTTPRate
	})...)
}

func tenMillion(ctx context.Context, r *measure.Run, asked int, systems ...rivals.Local) error {
	if r.Quick {
		return nil
	}
	r.Note("  %s", fillingName(10))
	even := measure.Uniform(10 * million)
	return fill(ctx, r, 10, measure.AllKeys(10*million), systems, func(o opened) (err error) {
		for i := 0; i < asked && err == nil; i++ {
			err = timed(ctx, r, localTen, even, o)
		}
		return err
	})
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
		took := measure.Stopwatch()
		for last, i := took(), 0; i < keys.Len(); i++ {
			decide(keys.At(i))
			now := took()
			longest = max(longest, now-last)
			last = now
		}
		m := r.Working(fillingName(millions), s.Name, s.Work, s.Kind)
		m.Add(nsDecision, float64(took().Nanoseconds())/float64(keys.Len()))
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
		took := measure.Stopwatch()
		runtime.GC()
		if t := took(); i == 0 || t < gc {
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
