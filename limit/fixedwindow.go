// SPDX-License-Identifier: MIT

package limit

import (
	"time"

	"github.com/diana-limiter/diana/internal/bounds"
)

// FixedWindow allows N requests in each window of length Unit.
//
// Windows follow one another without a gap. They begin at multiples of the
// unit since the Unix epoch, the same for all actors and processes. With AlignFirst an
// actor's window begins with its first request, and the next window with the first
// request after that.
//
//	N = 3      at the clock           |  AlignFirst
//	           | o o o x |   o  o  |  |     [o o o x ][      [o  o
//	           0         1         2  |  0            1         2
//
// Known flaw: around the edge of two windows up to 2 N requests can pass within less than
// one Unit, because the state is one number. Use a sliding window or a token bucket if
// that matters.
//
// State: the window, and how many requests were taken in it. It is one word (33 bits for the
// window's number, 30 for the count) at the clock, with a unit of a second or more and N up
// to 1,000,000,000. Otherwise it is two words. If N moves over that bound, counters start
// from zero. Expiry: the window's end. Cost: one division.
//
// With a Calendar or a Zone the windows are those of the calendar; see calendar.go.
//
// Source: the rate limiters in the documentation of Redis' INCR. AlignFirst is the one whose counter
// expires a Unit after the first request.
func FixedWindow() Algorithm {
	return Algorithm{
		Names: []string{"W", "window"},
		Keys:  []string{"unit", "align", "charge", "wait", "zone"},
		MaxN:  bounds.MaxWindowN,
		New:   newFixedWindow,
	}
}

const countBits = 30 // bounds.MaxN fits

// maxCount is the largest count that a state of one word holds, and maxWide that of two words. Debt
// beyond it is cut off. A double holds maxWide and the largest cost exactly.
const (
	maxCount = 1<<countBits - 1
	maxWide  = 1<<52 - 1
)

type fixedWindow struct {
	n, unit int64
	first   bool // Limit.AlignFirst
	oneWord bool
}

func newFixedWindow(l Limit) (Meter, error) {
	if l.Calendar != "" || l.Zone != "" {
		return newCalendar(l)
	}
	if err := l.check(bounds.MaxWindowN, bounds.MaxWindowUnit); err != nil {
		return nil, err
	}
	if l.N == 0 {
		return closed(l.Unit.Microseconds()), nil
	}
	return &fixedWindow{
		n: l.N, unit: l.Unit.Microseconds(),
		first: l.AlignFirst, oneWord: !l.AlignFirst && l.Unit >= time.Second && l.N <= bounds.MaxN,
	}, nil
}

func (w *fixedWindow) StateVersion() string {
	switch {
	case w.first:
		return "first"
	case w.oneWord:
		return "1"
	}
	return "2"
}

func (w *fixedWindow) Cells(State, int64) int {
	if w.oneWord {
		return 0
	}
	return 1
}

// load returns the start of the window of s, and how many requests were taken in it.
func (w *fixedWindow) load(s State) (start, count int64) {
	switch {
	case w.oneWord:
		return int64(s.Head>>countBits) * w.unit, int64(s.Head & (1<<countBits - 1))
	case len(s.Cells) > 0:
		return int64(s.Head), int64(s.Cells[0])
	}
	return 0, 0
}

// at returns the same for the window of now. If the clock went back before the window, the
// window stays current, even if all its requests were refunded.
func (w *fixedWindow) at(s State, now int64) (start, count int64) {
	start, count = w.load(s)
	switch {
	case now < start, now < start+w.unit && (count > 0 || !w.first):
		return start, count
	case w.first:
		return now, 0
	}
	return now - now%w.unit, 0
}

func (w *fixedWindow) store(s State, start, count int64) uint64 {
	if w.oneWord {
		return uint64(start/w.unit)<<countBits | uint64(count)
	}
	s.Cells[0] = uint64(count)
	return uint64(start)
}

func (w *fixedWindow) Peek(s State, now, n int64) Outcome {
	start, count := w.at(s, now)
	left := start + w.unit - now
	out := Outcome{Remaining: max(w.n-count, 0), Reset: left}
	if count+n > w.n {
		out.Wait = left
		return out
	}
	out.Allowed = true
	return out
}

func (w *fixedWindow) Take(s State, now, n int64) uint64 {
	start, count := w.at(s, now)
	return w.store(s, start, count+n)
}

// Decide implements Word.
func (w *fixedWindow) Decide(head uint64, now, n int64) (uint64, Outcome) {
	window, count := int64(head>>countBits), int64(head&maxCount)
	if now >= (window+1)*w.unit {
		window, count = now/w.unit, 0
	}
	left := (window+1)*w.unit - now
	if count+n > w.n {
		return head, Outcome{Wait: left, Remaining: max(w.n-count, 0), Reset: left}
	}
	count += n
	return uint64(window)<<countBits | uint64(count), Outcome{Allowed: true, Remaining: w.n - count, Reset: left}
}

// Debit implements Debtor. Debt ends with its window.
func (w *fixedWindow) Debit(s State, now, n int64) (head uint64, cut int64) {
	start, count := w.at(s, now)
	cut = max(count+n-w.most(), 0)
	return w.store(s, start, count+n-cut), cut
}

// Used implements Debtor.
func (w *fixedWindow) Used(s State, now int64) int64 {
	_, count := w.at(s, now)
	return count
}

// most is the largest count that a state holds.
func (w *fixedWindow) most() int64 {
	if w.oneWord {
		return maxCount
	}
	return maxWide
}

func (w *fixedWindow) Refund(s State, at, n int64) uint64 {
	start, count := w.load(s)
	if at < start || at >= start+w.unit { // charged to a window that has ended
		return s.Head
	}
	return w.store(s, start, max(count-n, 0))
}

func (w *fixedWindow) Expiry(s State) int64 {
	start, count := w.load(s)
	if s.Head == 0 || w.first && count == 0 { // no window has begun
		return start
	}
	return start + w.unit
}

// Moment implements Clamped.
func (w *fixedWindow) Moment(s State, now int64) int64 {
	start, _ := w.load(s)
	return max(now, start)
}
