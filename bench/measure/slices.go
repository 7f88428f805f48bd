// SPDX-License-Identifier: MIT

package measure

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Paired slices compare systems within one process. The systems take turns in slices of less than a
// millisecond, and a figure is the 10th percentile of its slices. A disturbance of the machine spoils a few
// slices, and the percentile ignores them. So a comparison repeats within some per cent on a busy machine
// too, where rounds of seconds differ by half.
//
// The figure is not the fastest slice, because a few are too fast, such as those in which two threads happened not to
// contend. With two threads most slices of a busy machine are lost, see counts.

// A Worker returns what one thread does again and again: the same work n times.
type Worker func(thread int) (work func(n int))

// Expense is what one call costs: nanoseconds, pieces of memory, and their bytes. With two threads that do
// not hinder each other a call takes half the time.
type Expense struct{ Ns, Allocs, Bytes float64 }

const (
	leastSlices = 10 // a figure of fewer slices is marked
	mostTries   = 10 // on a busy machine, the slices are done so many times
)

// Slices measures what one call of each worker costs on a number of threads. If the machine is too busy for as many
// threads, it measures by fewer slices and marks the group, and without any slice it returns an error.
func (r *Run) Slices(threads int, workers ...Worker) ([]Expense, error) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(threads)) // no core for free: the garbage collector takes time from the calls
	p := &pairing{threads: threads, begin: time.Now(), work: make([][]func(int), len(workers)), calls: make([]int, len(workers))}
	span, parts := 800*time.Microsecond, 400
	if r.Quick {
		span, parts = time.Microsecond, leastSlices
	}
	for i, w := range workers {
		for thread := range threads {
			p.work[i] = append(p.work[i], w(thread))
		}
		p.calls[i] = callsIn(p.work[i][0], span)
	}
	runtime.GC() // here, and not in a slice
	counted, err := r.undisturbed(threads, func() [][]float64 {
		times := make([][]float64, len(workers))
		for i, taken := range p.run(parts) {
			for _, s := range taken {
				if s.counts() || r.Quick { // a quick run shows that it works, and its figures are not quoted
					times[i] = append(times[i], float64(s.took().Nanoseconds())/float64(p.calls[i]*threads))
				}
			}
		}
		return times
	})
	if err != nil {
		return nil, err
	}
	all := make([]Expense, len(workers))
	for i := range workers {
		all[i] = allocated(p.work[i][0], p.calls[i]) // after the slices, because reading memory stops the world
		all[i].Ns = Quantile(counted[i], 0.1)
	}
	return all, nil
}

// undisturbed adds the times of slices until each worker has enough. After mostTries it marks the group, and it returns
// an error if a worker has no time.
func (r *Run) undisturbed(threads int, more func() [][]float64) (all [][]float64, err error) {
	least := 0
	for try := 0; least < leastSlices && try < mostTries; try++ {
		for i, times := range more() {
			if try == 0 {
				all = append(all, nil)
			}
			all[i] = append(all[i], times...)
		}
		least = len(slices.MinFunc(all, func(a, b []float64) int { return len(a) - len(b) }))
	}
	if least < leastSlices {
		noise := fmt.Sprintf("a figure of %d slices on %d threads, expected %d", least, threads, leastSlices)
		if r.Note("  %s", noise); least == 0 {
			return nil, errors.New(noise)
		}
		r.Origin.Noise = noise
	}
	return all, nil
}

// callsIn returns how many calls take about as long as span. It doubles the number until the clock measures it
// well, which also warms up what the worker uses.
func callsIn(work func(int), span time.Duration) int {
	for n := 1; ; n *= 2 {
		begin := time.Now()
		work(n)
		if took := time.Since(begin); took >= span/2 {
			return max(1, int(int64(n)*int64(span)/max(1, int64(took))))
		}
	}
}

// pairing is the work of one call of Slices.
type pairing struct {
	threads int
	begin   time.Time
	work    [][]func(int) // by worker and thread
	calls   []int         // in a slice of a thread, by worker
	arrived atomic.Int64  // threads, at all slices together
}

// slice is what each thread saw of one slice.
type slice []struct {
	begin, end time.Duration
	suspended  int64 // how often the operating system interrupted the thread
}

// run returns the slices of each worker.
func (p *pairing) run(parts int) [][]slice {
	taken := make([][]slice, len(p.work))
	for i := range taken {
		for range parts {
			taken[i] = append(taken[i], make(slice, p.threads))
		}
	}
	var done sync.WaitGroup
	for thread := range p.threads {
		done.Go(func() {
			if p.threads > 1 { // otherwise two goroutines may share a thread or a core
				runtime.LockOSThread() // for good: a pinned thread must end with its goroutine
				pin(thread)
			}
			for part := range parts {
				for k := range p.work {
					i := (part + k) % len(p.work) // so that no worker always follows the same one
					p.slice(thread, i, &taken[i][part])
				}
			}
		})
	}
	done.Wait()
	return taken
}

// slice does one slice of a worker on one thread, when all threads have arrived.
func (p *pairing) slice(thread, worker int, s *slice) {
	t, work := &(*s)[thread], p.work[worker][thread]
	before := suspensions()
	// The threads only count up, so that no thread must reset a counter while another one still waits. All have arrived
	// when the count reaches the next multiple of their number.
	for all := p.arrived.Add(1) + int64(p.threads) - 1; p.arrived.Load() < all/int64(p.threads)*int64(p.threads); {
	} // no channel, because waking a thread takes longer than a slice's begin may differ
	t.begin = time.Since(p.begin)
	work(p.calls[worker])
	t.end = time.Since(p.begin)
	t.suspended = suspensions() - before
}

// took returns the time from the first thread's begin to the last one's end.
func (s slice) took() time.Duration {
	begin, end := s[0].begin, s[0].end
	for _, t := range s {
		begin, end = min(begin, t.begin), max(end, t.end)
	}
	return end - begin
}

// counts reports whether the threads worked side by side all the time. If one is late or suspended, the other works
// without contention meanwhile, which makes a slice faster than the system is. One thread needs no other, and a
// suspension makes its slice slower only, which the percentile ignores.
func (s slice) counts() bool {
	if len(s) == 1 {
		return true
	}
	first, last := s[0].begin, s[0].begin
	for _, t := range s {
		first, last = min(first, t.begin), max(last, t.begin)
		if t.suspended > 0 {
			return false
		}
	}
	return last-first <= s.took()/20
}

// allocated returns what a call allocates: the median of some batches, because a garbage collection empties
// pools.
func allocated(work func(int), calls int) Expense {
	var pieces, bytes []float64
	for range 9 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		work(calls)
		runtime.ReadMemStats(&after)
		pieces = append(pieces, float64(after.Mallocs-before.Mallocs)/float64(calls))
		bytes = append(bytes, float64(after.TotalAlloc-before.TotalAlloc)/float64(calls))
	}
	return Expense{Allocs: Median(pieces), Bytes: Median(bytes)}
}
