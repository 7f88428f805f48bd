// SPDX-License-Identifier: MIT

package main

import (
	"time"

	"github.com/go-chi/httprate"
)

// openHTTPRate is what httprate does for a request without what is HTTP about it, and
// without the lock that it holds meanwhile: that makes it faster than it is, and wrong
// when two ask at once.
func openHTTPRate(q quota, _ int) (*localLimiter, error) {
	counter := httprate.NewLocalLimitCounter(q.per)
	decide := func(key string) bool {
		now := time.Now().UTC()
		window := now.Truncate(q.per)
		this, last, err := counter.Get(key, window, window.Add(-q.per))
		if err != nil {
			return false
		}
		passed := float64(now.Sub(window)) / float64(q.per)
		if float64(last)*(1-passed)+float64(this)+1 > float64(q.n) {
			return false
		}
		return counter.IncrementBy(key, window, 1) == nil
	}
	return &localLimiter{decider: func() func(string) bool { return decide }}, nil
}
