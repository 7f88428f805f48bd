// SPDX-License-Identifier: MIT

// Package bounds has the ranges of the numbers that limits and rules can have. The doc comments of
// their fields say the same ranges to users.
package bounds

import "time"

// MaxInteger is the largest whole number of a structured field of HTTP (RFC 9651): fifteen digits. A double
// holds it exactly.
const MaxInteger = 999_999_999_999_999

// Bounds of a limit.
const (
	MaxPriorities = 8  // of a rule
	MaxPercent    = 50 // of keep and least

	MaxN = 1_000_000_000 // requests in a unit, a burst, a queue, or a cost

	MinUnit = time.Millisecond
	MaxUnit = 744 * time.Hour // 31 days

	// MaxWindowN is the bound of a fixed window. It holds more than the other algorithms, because its state
	// is a plain count.
	MaxWindowN    = MaxInteger
	MaxWindowUnit = 366 * 24 * time.Hour

	MaxWarmup    = 10 * time.Minute
	MaxQueueWait = 10 * time.Second // in a leaky bucket

	MinSlices     = 2 // parts of a sliding window
	MaxSlices     = 100
	DefaultSlices = 10
)

// Bounds of time, in microseconds.
const (
	// EndOfTime is later than every moment: in the year 2255. Doubles hold moments exactly until then.
	EndOfTime = 1 << 53

	// Forever is the wait for what no time brings. It is 142 years, and no sum with a moment overflows.
	Forever = 1 << 52
)

// Bounds of a rule.
const (
	MaxActors  = 3 // that a rule combines
	MaxCost    = 1_000_000
	MaxSettled = MaxInteger       // a cost that becomes known with a response
	MaxWait    = 10 * time.Minute // of a request that waits; in a leaky bucket MaxQueueWait counts

	MaxAfter = time.Minute // for which a stream is read on after its client has disconnected

	MinBandwidth = 1_000 // bytes a second
	MaxBandwidth = 1_000_000_000
)

// Bounds of a configuration. They bound the time and memory that the worst text can cost.
const (
	// MaxConfig is the size of the largest remote configuration in bytes, enough for 10,000 rules.
	MaxConfig = 1 << 20

	// MaxFile is the size of the largest local configuration in bytes, enough for 100,000 rules.
	MaxFile = 8 << 20

	MaxEntries = 100_000

	// MaxRules is half of what the local store can count, because a reload counts by two
	// configurations for a moment. No text of MaxConfig bytes has as many rules.
	MaxRules = 1 << 17
)
