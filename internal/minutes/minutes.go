// SPDX-License-Identifier: MIT

// Package minutes keeps what a gateway has decided in each minute of the last day.
package minutes

import (
	"sync"
	"time"
)

// Day is how many minutes a Ledger keeps.
const Day = 24 * 60

// Counts are decisions by their kind.
type Counts struct{ Allowed, Refused, ShadowRefused, Delayed int64 }

// Plus returns the sum.
func (c Counts) Plus(d Counts) Counts {
	return Counts{c.Allowed + d.Allowed, c.Refused + d.Refused, c.ShadowRefused + d.ShadowRefused, c.Delayed + d.Delayed}
}

// Since returns how many decisions were made since earlier, and none of a kind that has become fewer.
func (c Counts) Since(earlier Counts) Counts {
	return Counts{
		max(c.Allowed-earlier.Allowed, 0), max(c.Refused-earlier.Refused, 0),
		max(c.ShadowRefused-earlier.ShadowRefused, 0), max(c.Delayed-earlier.Delayed, 0),
	}
}

// Ledger has the decisions of each minute. A minute's counts never fall, also when the clock is set back.
// The zero value is empty. A Ledger is safe for concurrent use.
type Ledger struct {
	mu    sync.Mutex // guards the rest
	total Counts     // at the latest Note
	slots []slot     // by the minute modulo Day; nil before the first decision
}

type slot struct {
	minute int64 // since 1970
	counts Counts
}

// Note adds to the minute of now what was decided since the Note before. total has all decisions since
// the start. Before the first decision there are no minutes; later, one without decisions is a minute too.
func (l *Ledger) Note(now time.Time, total Counts) {
	l.mu.Lock()
	defer l.mu.Unlock()
	more := total.Since(l.total)
	l.total = l.total.Plus(more)
	if l.total == (Counts{}) {
		return
	}
	if l.slots == nil {
		l.slots = make([]slot, Day)
	}
	minute := now.Unix() / 60
	s := &l.slots[place(minute)]
	if s.minute != minute {
		*s = slot{minute: minute}
	}
	s.counts = s.counts.Plus(more)
}

// Each calls f for each minute of the last day, the oldest first, with when it began. f must not use the
// Ledger.
func (l *Ledger) Each(now time.Time, f func(at time.Time, c Counts)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.slots == nil {
		return
	}
	last := now.Unix() / 60
	for minute := last - Day + 1; minute <= last; minute++ {
		if s := l.slots[place(minute)]; s.minute == minute {
			f(time.Unix(minute*60, 0).UTC(), s.counts)
		}
	}
}

// place returns the index of a minute.
func place(minute int64) int64 { return ((minute % Day) + Day) % Day }
