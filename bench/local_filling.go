// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"fmt"
	"runtime"
	"time"
)

// What keys cost: the bytes that are kept for each, without the keys' own text, which is
// there before; the time of a full garbage collection over what it was before; and the
// slowest single decision while all the keys come for the first time.

const (
	bytesKey = "bytes/key"
	gcTime   = "full GC, more" // than without the keys
	slowest  = "slowest"       // decision

	onlyClock = "nothing, for 250 ns"
)

func fillingName(millions int) string { return fmt.Sprintf("filling with %d M keys", millions) }

// fill has each of the systems see all the keys, and then does more with it.
func (r *run) fill(ctx context.Context, millions int, keys names, systems []localSystem, then func(*localSystem, *localLimiter)) error {
	return r.interleave(ctx, len(systems), func(_, i int) error {
		s := &systems[i]
		runtime.GOMAXPROCS(2)
		heapBefore, gcBefore := heap()
		l, err := s.open(usual, keys.len())
		if err != nil {
			return err
		}
		defer l.end()
		m := r.row(fillingName(millions), s.name, s.kind)
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

// heap returns how much memory is in use, and how long a full garbage collection takes
// now, the shortest of some. It goes on until no more memory becomes free: what a
// finalizer still holds, as of ulule's store, would count as the next one's.
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
