// SPDX-License-Identifier: MIT

package limit

import _ "embed" // the Lua sources

// Scripted is a Meter that Redis can also evaluate: its Script does in Redis what the Meter
// does in Go. The Go code is the specification, and the Lua code is a transcription of it.
// Package storetest tests both.
type Scripted interface {
	Meter
	Script() Script
}

// Script is a Meter in Lua.
type Script struct {
	// Source is the body of a function that returns a table of functions. It is the same for
	// all Meters of an algorithm. In these functions a is Args and s is a state. Moments and
	// spans are microseconds in doubles, which hold them exactly.
	//
	//	load(value, a)       the state in the value of a key; value is false if there is
	//	                     no key. Returns nil for a value that save did not make.
	//	peek(s, now, n, a)   allowed, wait, remaining, reset, as Meter.Peek
	//	take(s, now, n, a)   as Meter.Take; changes s
	//	refund(s, at, n, a)  as Meter.Refund; changes s
	//	save(s, a)           the value of the key, and its expiry as Meter.Expiry
	//
	// The table can also have
	//
	//	debit(s, now, n, a)  as Debtor.Debit; without it a debit takes what remains
	//
	//	used(s, now, a)      as Debtor.Used, but not rounded: what still counts, debt included.
	//	                     Without it no gateway remembers states
	//	brief(s, now, a)     a shorter value for load that counts at least as much, for a
	//	                     state that is too long to remember; '' if nothing counts
	//
	// and for a Queue
	//
	//	delay(s, d)                   as Queue.Delay; the store calls it after take when the
	//	                              request has a later scheduled time in another queue
	//	leave(s, scheduled, n, a)     instead of refund: the request leaves before its scheduled
	//	                              time, and the requests behind it cannot move up
	//
	// For a Reserver, peek(s, now, n, a, longest) is Reserver.PeekWithin.
	//
	// The globals gateway and lease are the number of this gateway, and how long the other
	// gateways may assume that it lives.
	Source string

	// Short is optional: the most frequent case of what Source decides, a charge that is allowed, as statements
	// without functions or tables. Most calls are cheaper by them. They read these locals:
	//
	//	value      the value of the key, false, or a table if the key holds no string
	//	now, n     as peek
	//	ARGV[1]    has Args, each as a signed number of 7 bytes
	//	from       the position of the first of them
	//
	// and set these, or leave saved nil for Source to decide:
	//
	//	wait, left, reset   as peek returns them; wait is 0 before
	//	saved, expiry       as save returns them after a charge of n, which is allowed as a whole
	//	used, brief         as the functions of that name return them then
	Short string

	// Leased reports whether the table also has
	//
	//	renew(s, now, n)  records that this gateway lives and holds n slots, or none
	//
	// The store calls it regularly while the gateway lives.
	Leased bool

	// Apart reports whether Remaining does not tell how many equal requests are allowed if
	// each costs more than 1. The script then evaluates such requests one by one.
	Apart bool

	// Args are the numbers of the limit, each within plus or minus 2 to the 53rd.
	Args []int64

	// Around returns the numbers that follow Args in a call at about the moment now, within the
	// same bounds. Redis knows no time zones, and decides by its own clock. If Around is nil, no
	// numbers follow. Around is safe for concurrent use.
	Around func(now int64) []int64
}

//go:embed pace.lua
var paceLua string

//go:embed tokenbucket.lua
var tokenBucketLua string

//go:embed tokenbucket_short.lua
var tokenBucketShort string

func (b *tokenBucket) Script() Script {
	return Script{Source: paceLua + tokenBucketLua, Short: tokenBucketShort, Args: []int64{
		b.whole, b.frac, b.den, b.capacity, b.fill.at, b.fill.frac, b.costs(),
	}}
}

//go:embed warmup.lua
var warmupLua string

func (b *warmBucket) Script() Script {
	return Script{Source: paceLua + warmupLua, Apart: true, Args: []int64{
		b.whole, b.frac, b.den, b.capacity, b.fill.at, b.fill.frac, b.warmup, 0, b.costs(),
	}}
}

func (r *warmReservations) Script() Script {
	return Script{Source: paceLua + warmupLua, Args: []int64{r.whole, r.frac, r.den, 1, 0, 0, r.warmup, r.most, r.most}}
}

//go:embed reservations.lua
var reservationsLua string

func (r *reservations) Script() Script {
	return Script{Source: paceLua + reservationsLua, Args: []int64{
		r.whole, r.frac, r.den, r.steps(point{}, r.stored), r.stored.at, r.stored.frac, r.most,
	}}
}

//go:embed leakybucket.lua
var leakyBucketLua string

//go:embed leakybucket_short.lua
var leakyBucketShort string

func (b *leakyBucket) Script() Script {
	return Script{Source: leakyBucketLua, Short: leakyBucketShort, Args: []int64{b.step, b.longest, b.most}}
}

//go:embed fixedwindow.lua
var fixedWindowLua string

//go:embed fixedwindow_short.lua
var fixedWindowShort string

func (w *fixedWindow) Script() Script {
	first := int64(0)
	if w.first {
		first = 1
	}
	return Script{Source: fixedWindowLua, Short: fixedWindowShort, Args: []int64{w.n, w.unit, first, w.most()}}
}

//go:embed calendar.lua
var calendarLua string

func (c *calendar) Script() Script {
	s := Script{Source: calendarLua, Args: []int64{c.n, maxWide}}
	if c.turns.unit != total {
		s.Around = c.around
	}
	return s
}

//go:embed slidingwindow.lua
var slidingWindowLua string

//go:embed slidingwindow_short.lua
var slidingWindowShort string

func (w *slidingWindow) Script() Script {
	return Script{Source: slidingWindowLua, Short: slidingWindowShort, Args: []int64{w.n, w.unit, w.slices, 1<<w.width - 1}}
}

//go:embed slidinglog.lua
var slidingLogLua string

//go:embed slidinglog_short.lua
var slidingLogShort string

func (g *slidingLog) Script() Script {
	return Script{Source: slidingLogLua, Short: slidingLogShort, Args: []int64{g.n, g.unit, g.most}}
}

//go:embed concurrency.lua
var concurrencyLua string

func (c *concurrency) Script() Script {
	return Script{Source: concurrencyLua, Leased: true, Args: []int64{c.n}}
}

//go:embed closed.lua
var closedLua string

func (c closed) Script() Script { return Script{Source: closedLua, Args: []int64{int64(c)}} }
