// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"fmt"
	"runtime"
	"time"
)

// The cost of keys has three figures:
//
//   - the bytes for each key, without its text, which exists anyway
//   - the time that the keys add to a full garbage collection
//   - the slowest single decision while all keys appear for the first time

var (
	bytesKey = figure{name: "bytes/key", format: plainText}
	gcTime   = figure{name: "added to a full GC", format: secondsText}
	slowest  = figure{name: "slowest", format: secondsText} // decision
)

const onlyClock = "nothing, for 250 ns"

func fillingName(millions int) string { return fmt.Sprintf("filling with %d M keys", millions) }

// fill lets each system decide once for every key, and then calls the function then.
func fill(ctx context.Context, r *run, millions int, keys names, systems []localSystem, then func(*localSystem, *localLimiter)) error {
	return r.interleave(ctx, len(systems), func(_, i int) error {
		s := &systems[i]
		runtime.GOMAXPROCS(2)
		heapBefore, gcBefore := heap()
		l, err := s.open(usual, keys.len())
		if err != nil {
			return err
		}
		defer l.end()
		m := r.working(fillingName(millions), s.name, s.work, s.kind)
		decide, longest := l.decider(), time.Duration(0)
		took := stopwatch()
		for last, i := took(), 0; i < keys.len(); i++ {
			decide(keys.at(i))
			now := took()
			longest = max(longest, now-last)
			last = now
		}
		m.add(nsDecision, float64(took().Nanoseconds())/float64(keys.len()))
		m.add(slowest, longest.Seconds())
		heapAfter, gcAfter := heap()
		m.add(bytesKey, (float64(heapAfter)-float64(heapBefore))/float64(keys.len()))
		m.add(gcTime, max(gcAfter-gcBefore, 0).Seconds())
		then(s, l)
		runtime.KeepAlive(l)
		return nil
	})
}

// heap returns the memory in use, and the shortest of some full garbage collections. It collects
// until no more memory becomes free. Otherwise memory that a finalizer still holds, such as
// that of ulule's store, would count for the next system.
func heap() (bytes uint64, gc time.Duration) {
	for i := range 10 {
		took := stopwatch()
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
