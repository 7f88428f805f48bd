// SPDX-License-Identifier: MIT

package source

import (
	"context"
	"math/rand/v2"
	"time"
)

// A centre that cannot say when something has changed is asked again after a random time
// from soonest to latest. So a change is known within two seconds, and a hundred gateways
// that were started together ask at different times.
const (
	soonest = 1000 * time.Millisecond
	latest  = 1800 * time.Millisecond
)

// Poll is the Wait of a Source that has no better one: it returns when it is time to ask
// again, which is after 1 to 1.8 s.
func Poll(ctx context.Context) error { return rest(ctx, soonest, latest) }

// rest waits for a random time from least to most, or returns the error of ctx.
func rest(ctx context.Context, least, most time.Duration) error {
	if !sleep(ctx, least+rand.N(most-least+1)) {
		return ctx.Err()
	}
	return nil
}
