// SPDX-License-Identifier: MIT

package main

import (
	"hash/maphash"
	"sync/atomic"
	"time"
)

// openClock does what every limiter must do: hash the key and read the clock.
func openClock(quota, int) (*localLimiter, error) {
	start, seed := time.Now(), maphash.MakeSeed()
	return &localLimiter{decider: func() func(string) bool {
		return func(key string) bool {
			return maphash.String(seed, key) != uint64(time.Since(start))
		}
	}}, nil
}

// openCompareAndSwap is the least possible token bucket, one for all keys together: a clock
// reading, a comparison, and one atomic operation if the request is allowed.
func openCompareAndSwap(q quota, _ int) (*localLimiter, error) {
	start := time.Now()
	step, full := q.step().Nanoseconds(), q.per.Nanoseconds()
	var state atomic.Int64
	return &localLimiter{decider: func() func(string) bool {
		return func(string) bool {
			now := int64(time.Since(start))
			for {
				at := state.Load()
				next := max(at, now) + step
				if next > now+full {
					return false
				}
				if state.CompareAndSwap(at, next) {
					return true
				}
			}
		}
	}}, nil
}

// openNothing does nothing for about the time of a decision. It shows how long the operating
// system suspends a thread meanwhile.
func openNothing(quota, int) (*localLimiter, error) {
	return &localLimiter{decider: func() func(string) bool {
		return func(string) bool {
			for took := stopwatch(); took() < 250*time.Nanosecond; {
			}
			return true
		}
	}}, nil
}
