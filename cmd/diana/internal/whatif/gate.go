// SPDX-License-Identifier: MIT

package whatif

import "context"

// gate lets one goroutine at a time proceed. Those that wait proceed in their order, and before those that do not wait.
// Operators wait and strangers do not. So a stranger keeps an operator waiting, but not out.
type gate chan struct{}

// enter reports whether the goroutine may proceed until leave. If it may wait it does so until the end of ctx, but no
// longer than two replays take.
func (g gate) enter(ctx context.Context, wait bool) bool {
	select {
	case g <- struct{}{}:
		return true
	default:
	}
	if !wait {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, 2*longest)
	defer cancel()
	select {
	case g <- struct{}{}: // leave hands the gate over, so it is never open in between
		return true
	case <-ctx.Done():
		return false
	}
}

func (g gate) leave() { <-g }
