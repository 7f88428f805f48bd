// SPDX-License-Identifier: MIT

package source

import (
	"context"
	"math/rand/v2"
	"time"
)

// A centre that does not report changes is polled, after a random time from shortestPoll to
// longestPoll. So a gateway notices a change within two seconds, and gateways that were
// started together poll at different times.
const (
	shortestPoll = 1000 * time.Millisecond
	longestPoll  = 1800 * time.Millisecond
)

// Poll is the Wait of a Source whose centre does not report changes. It returns after a random
// time of 1 to 1.8 s, or with the error of ctx.
func Poll(ctx context.Context) error { return pause(ctx, shortestPoll, longestPoll) }

// pause waits for a random time from least to most, or returns the error of ctx.
func pause(ctx context.Context, least, most time.Duration) error {
	if !sleep(ctx, least+rand.N(most-least+1)) {
		return ctx.Err()
	}
	return nil
}

// sleep waits for d. It returns false if ctx ends first.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
