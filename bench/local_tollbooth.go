// SPDX-License-Identifier: MIT

package main

import "github.com/didip/tollbooth/v7/limiter"

// openTollbooth asks the limiter itself: what tollbooth does around it is for HTTP.
func openTollbooth(q quota, _ int) (*localLimiter, error) {
	l := limiter.New(nil).SetMax(float64(q.n) / q.per.Seconds()).SetBurst(int(q.n))
	decide := func(key string) bool { return !l.LimitReached(key) }
	return &localLimiter{decider: func() func(string) bool { return decide }}, nil
}
