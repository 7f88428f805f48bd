// SPDX-License-Identifier: MIT

package main

import (
	"sync"
	"sync/atomic"
	"time"
)

// load is the result of concurrent callers that ask again as soon as they have an answer.
type load struct {
	callers   int
	took      time.Duration
	latencies histogram
	errors    int64
	err       error // one of the errors
}

// rate returns the number of answers a second.
func (l *load) rate() float64 { return float64(l.latencies.n) / l.took.Seconds() }

// drive lets callers ask for a duration. caller returns the function by which caller i asks. An
// error does not count as an answer. Every caller asks at least once.
//
// The duration is fixed and not the number of requests, because one system may answer twenty
// times as many as another.
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
			// The time of an answer is also the time of the next request, which saves a clock reading.
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
