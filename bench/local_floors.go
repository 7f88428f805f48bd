// SPDX-License-Identifier: MIT

package main

import (
	"hash/maphash"
	"sync/atomic"
	"time"
)

// openClock is what everyone must do: hash the key and read the clock.
func openClock(quota, int) (*localLimiter, error) {
	start, seed := time.Now(), maphash.MakeSeed()
	return &localLimiter{decider: func() func(string) bool {
		return func(key string) bool {
			return maphash.String(seed, key) != uint64(time.Since(start))
		}
	}}, nil
}

// openCompareAndSwap is a token bucket for all keys together that is one moment, and as
// little as one can be: the clock, a comparison, and one atomic step if it is allowed.
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

// openNothing does nothing for about as long as others work: what the system lets
// a thread wait in that time is not theirs.
func openNothing(quota, int) (*localLimiter, error) {
	return &localLimiter{decider: func() func(string) bool {
		return func(string) bool {
			for took := stopwatch(); took() < 250*time.Nanosecond; {
			}
			return true
		}
	}}, nil
}
