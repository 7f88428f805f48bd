// SPDX-License-Identifier: MIT

package main

import (
	"sync"
	"sync/atomic"
	"time"
)

// load is what a number of callers got that asked again as soon as they were answered.
type load struct {
	callers   int
	took      time.Duration
	latencies histogram
	errors    int64
	err       error // one of them
}

// rate returns the answers a second.
func (l *load) rate() float64 { return float64(l.latencies.n) / l.took.Seconds() }

// drive has so many callers ask for so long. caller makes what caller i asks by. An
// answer that is an error counts as none. Everyone asks once at least.
//
// The time is the same for all and not the number of questions, as systems are measured
// here of which one does twenty times as many as another.
func drive(callers int, d time.Duration, caller func(i int) (ask func() error)) *load {
	l := &load{callers: callers}
	var mu sync.Mutex
	var done sync.WaitGroup
	var stop atomic.Bool
	begin := make(chan struct{})
	for i := range callers {
		ask := caller(i)
		done.Go(func() {
			var latencies histogram
			var errors int64
			var failure error
			<-begin
			// One clock reading a question: an answer's time is the next question's.
			for last, ended := time.Now(), false; !ended; ended = stop.Load() {
				err := ask()
				now := time.Now()
				if err != nil {
					errors++
					failure = err
				} else {
					latencies.add(now.Sub(last))
				}
				last = now
			}
			mu.Lock()
			defer mu.Unlock()
			l.latencies.merge(&latencies)
			l.errors += errors
			if failure != nil {
				l.err = failure
			}
		})
	}
	took := stopwatch()
	close(begin)
	time.Sleep(d)
	stop.Store(true)
	done.Wait()
	l.took = took()
	return l
}
