// SPDX-License-Identifier: MIT

// Package bounds has the ranges of the numbers that limits and rules can have. The doc comments of
// their fields say the same ranges to users.
package bounds

import "time"

// Bounds of a limit.
const (
	MaxN = 1_000_000_000 // requests in a unit, a burst, a queue, or a cost

	MinUnit = time.Millisecond
	MaxUnit = 744 * time.Hour // 31 days

	MaxWarmup    = 10 * time.Minute
	MaxQueueWait = 10 * time.Second // in a leaky bucket

	// The number of parts of a sliding window.
	MinSlices     = 2
	MaxSlices     = 100
	DefaultSlices = 10
)

// Bounds of a rule.
const (
	MaxActors = 3 // that a rule combines
	MaxCost   = 1_000_000
	MaxWait   = 10 * time.Minute // of a request that waits; in a leaky bucket MaxQueueWait counts

	// The rate of a bandwidth, in bytes a second.
	MinBandwidth = 1_000
	MaxBandwidth = 1_000_000_000
)

// MaxConfig is the size of the largest configuration in bytes, enough for 10,000 rules. It bounds
// the time and memory that the worst text can cost.
const MaxConfig = 1 << 20
