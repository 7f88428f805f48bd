// SPDX-License-Identifier: MIT

package measure

import (
	"sync"
	"sync/atomic"
	"time"
)

// Load is the result of concurrent callers that ask again as soon as they have an answer.
type Load struct {
	Took      time.Duration
	Latencies Histogram
	Errors    int64
	Err       error // one of the errors
}

// Rate returns the number of answers a second.
func (l *Load) Rate() float64 { return float64(l.Latencies.N) / l.Took.Seconds() }

// Drive lets callers ask for a duration, see Span. caller returns the function by which caller i asks. An
// error does not count as an answer. Every caller asks at least once.
//
// The duration is fixed and not the number of requests, because one system may answer twenty
// times as many as another.
func (r *Run) Drive(callers int, span time.Duration, caller func(i int) (ask func() error)) *Load {
	l := &Load{}
	var mu sync.Mutex
	var done sync.WaitGroup
	var stop atomic.Bool
	begin := make(chan struct{})
	for i := range r.Count(callers) {
		ask := caller(i)
		done.Go(func() {
			var latencies Histogram
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
					latencies.Add(now.Sub(last))
				}
				last = now
			}
			mu.Lock()
			defer mu.Unlock()
			l.Latencies.merge(&latencies)
			l.Errors += errors
			if failure != nil {
				l.Err = failure
			}
		})
	}
	began := time.Now()
	close(begin)
	time.Sleep(r.Span(span))
	stop.Store(true)
	done.Wait()
	l.Took = time.Since(began)
	return l
}
