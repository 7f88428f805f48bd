// SPDX-License-Identifier: MIT

package limit

import (
	"cmp"
	"sync/atomic"
	"time"

	"github.com/diana-limiter/diana/internal/bounds"
)

// A calendar is a fixed window of a Calendar or with a Zone. Its windows have different lengths, so it
// asks turns when they begin and end:
//
//	N = 3, a month     | o o o x x |   o o   |       o   |
//	                   January     February  March
//
// Some gateways may have another edition of the IANA database, and so another idea of a window's begin. A
// state that was begun in the present window therefore stays, whichever moment it says. So the
// present window never counts from zero twice.
//
// A total has one window, from 1970 to the end of time. No time renews it, so its outcomes have no Reset.
//
// State: two words, the begin of the window and the count. Expiry: the window's end; that of a total is
// bounds.EndOfTime. It is not Never, which stores take for slots that requests hold. Cost: a comparison,
// and about a microsecond when the window is another than that of the last call.
type calendar struct {
	n     int64
	turns turns
	last  atomic.Pointer[window] // that was asked for
	sent  atomic.Pointer[sent]
}

// sent is what Script.Around has returned last.
type sent struct {
	window window
	begins []int64
}

func newCalendar(l Limit) (Meter, error) {
	t, err := newTurns(l)
	if err != nil {
		return nil, err
	}
	plain := l
	plain.Calendar, plain.Zone, plain.Unit = "", "", cmp.Or(l.Unit, time.Hour)
	if t.unit != total && t.zone == time.UTC && l.Unit != 0 {
		return newFixedWindow(plain)
	}
	if err := plain.check(bounds.MaxWindowN, bounds.MaxWindowUnit); err != nil {
		return nil, err
	}
	if l.N == 0 {
		return closed(plain.Unit.Microseconds()), nil
	}
	return &calendar{n: l.N, turns: t}, nil
}

// Window returns the window of a FixedWindow with a Calendar or a Zone at the moment at. Both times are
// zero for "total", and for every other limit. Cost: about a microsecond.
func (l Limit) Window(at time.Time) (begin, end time.Time) {
	if l.Calendar == "" && l.Zone == "" {
		return begin, end
	}
	t, err := newTurns(l)
	if err != nil || t.unit == total {
		return begin, end
	}
	w := t.window(at.UnixMicro())
	return time.UnixMicro(w.begin).In(t.zone), time.UnixMicro(w.end).In(t.zone)
}

func (c *calendar) StateVersion() string { return "calendar" }

func (c *calendar) Cells(State, int64) int { return 1 }

// window returns the window of a moment.
func (c *calendar) window(at int64) window {
	if w := c.last.Load(); w != nil && w.begin <= at && at < w.end {
		return *w
	}
	w := c.turns.window(at)
	c.last.Store(&w)
	return w
}

// load returns the begin of the window of s, and how many requests were taken in it.
func (c *calendar) load(s State) (begin, count int64) {
	if len(s.Cells) == 0 {
		return 0, 0
	}
	return int64(s.Head), int64(s.Cells[0])
}

// at returns the same for the window of now, and its end. If the clock went back before the window, the
// window stays.
func (c *calendar) at(s State, now int64) (begin, count, end int64) {
	begin, count = c.load(s)
	w := c.window(max(now, begin))
	if begin < w.begin {
		return w.begin, 0, w.end
	}
	return begin, count, w.end
}

func (c *calendar) Peek(s State, now, n int64) Outcome {
	_, count, end := c.at(s, now)
	out := Outcome{Remaining: max(c.n-count, 0), Reset: end - now}
	wait := out.Reset
	if c.turns.unit == total {
		wait, out.Reset = bounds.Forever, 0
	}
	if count+n > c.n {
		out.Wait = wait
		return out
	}
	out.Allowed = true
	return out
}

func (c *calendar) Take(s State, now, n int64) uint64 {
	begin, count, _ := c.at(s, now)
	s.Cells[0] = uint64(count + n)
	return uint64(begin)
}

// Debit implements Debtor. Debt ends with its window.
func (c *calendar) Debit(s State, now, n int64) (head uint64, cut int64) {
	begin, count, _ := c.at(s, now)
	cut = max(count+n-maxWide, 0)
	s.Cells[0] = uint64(count + n - cut)
	return uint64(begin), cut
}

// Used implements Debtor.
func (c *calendar) Used(s State, now int64) int64 {
	_, count, _ := c.at(s, now)
	return count
}

func (c *calendar) Refund(s State, at, n int64) uint64 {
	begin, count := c.load(s)
	if len(s.Cells) > 0 && begin <= at && at < c.window(begin).end {
		s.Cells[0] = uint64(max(count-n, 0))
	}
	return s.Head
}

func (c *calendar) Expiry(s State) int64 {
	begin, count := c.load(s)
	if begin == 0 && count == 0 { // no window has begun
		return 0
	}
	return c.window(begin).end
}

// Moment implements Clamped.
func (c *calendar) Moment(s State, now int64) int64 {
	begin, _ := c.load(s)
	return max(now, begin)
}

// beside is how many windows before and after the present one Redis knows. A clock that differs by
// more is so wrong that it is set soon.
const beside = 2

// around returns the begins of the window of now and of those beside it, and the end of the last one.
func (c *calendar) around(now int64) []int64 {
	present := c.window(now)
	if s := c.sent.Load(); s != nil && s.window == present {
		return s.begins
	}
	w := present
	for range beside {
		w = c.turns.window(max(w.begin-1, 0))
	}
	begins := make([]int64, 0, 2*beside+2)
	for w.begin < present.begin {
		begins = append(begins, w.begin)
		w = c.turns.window(w.end)
	}
	for range beside + 1 {
		begins = append(begins, w.begin)
		w = c.turns.window(w.end)
	}
	begins = append(begins, w.begin)
	c.sent.Store(&sent{present, begins})
	return begins
}
