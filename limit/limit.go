// SPDX-License-Identifier: MIT

package limit

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// MaxN is the largest number of requests per unit, and the largest burst,
// queue or cost.
const MaxN = 1_000_000_000

// MinUnit and MaxUnit bound the unit of time of a limit.
const (
	MinUnit = time.Millisecond
	MaxUnit = 744 * time.Hour // 31 days
)

// MaxWarmup is the longest Warmup of a limit.
const MaxWarmup = 10 * time.Minute

// Align says where the windows of a fixed window begin.
type Align int

// The values of Align.
const (
	AlignClock Align = iota // at multiples of the unit since the Unix epoch, UTC
	AlignFirst              // at the first request
)

// Limit is what is promised: N requests per Unit, and what an algorithm needs
// to know besides. The zero value of each field but N and Unit asks for the
// algorithm's default.
type Limit struct {
	N      int64         // requests per Unit; 0 refuses all. For Concurrency: how many may be inside
	Unit   time.Duration // whole microseconds, MinUnit to MaxUnit. Concurrency ignores it
	Burst  int64         // TokenBucket: the capacity; 0 means N
	Queue  int64         // LeakyBucket: most requests that wait at once; 0 means N, NoQueue none
	Slices int64         // SlidingWindow: 2 to 100; 0 means 10
	Align  Align         // FixedWindow
	Warmup time.Duration // TokenBucket: in which its rate climbs from a third; whole microseconds, 0 to MaxWarmup
}

// NoQueue is the Queue of a leaky bucket in which no one waits.
const NoQueue = -1

// check returns an error if the fields that all algorithms share are out of range.
func (l Limit) check() error {
	if l.N < 0 || l.N > MaxN {
		return fmt.Errorf("limit: N is %d, expected 0 to %d", l.N, MaxN)
	}
	if l.Unit < MinUnit || l.Unit > MaxUnit || l.Unit%time.Microsecond != 0 {
		return fmt.Errorf("limit: unit is %v, expected whole microseconds, %v to %v", l.Unit, MinUnit, MaxUnit)
	}
	if l.Burst < 0 || l.Burst > MaxN {
		return fmt.Errorf("limit: burst is %d, expected 0 to %d", l.Burst, MaxN)
	}
	if l.Queue < NoQueue || l.Queue > MaxN {
		return fmt.Errorf("limit: queue is %d, expected NoQueue or 0 to %d", l.Queue, MaxN)
	}
	if l.Warmup < 0 || l.Warmup > MaxWarmup || l.Warmup%time.Microsecond != 0 {
		return fmt.Errorf("limit: warmup is %v, expected whole microseconds, 0s to %v", l.Warmup, MaxWarmup)
	}
	return nil
}

// Algorithm is a way to limit, as a value: programs add their own beside the
// ones of this package, without a registry.
type Algorithm struct {
	// Names are what configurations call it, without regard to letter case.
	// The first is its short name, which becomes part of every counter's name.
	Names []string

	// Keys are the keys of a rule, besides rpu, that mean something to it:
	// "unit", "burst", "queue", "slices", "align", "warmup", "wait", and "charge" if what was
	// taken can be given back later. Giving any other is an error. With "wait", what is used
	// comes back one by one, n a unit, if there is "burst"; when a request is finished, if
	// Held; and otherwise at most n at a time and not sooner than a unit after.
	Keys []string

	// Held says that what a request takes is given back when it is finished.
	Held bool

	// New returns the Meter that keeps l, or an error that says which value of
	// l it cannot keep. It is called once for each limit of a configuration.
	New func(l Limit) (Meter, error)
}

// Name returns the short name.
func (a Algorithm) Name() string { return a.Names[0] }

// Called reports whether name is one of a's names; letter case does not matter.
func (a Algorithm) Called(name string) bool {
	return slices.ContainsFunc(a.Names, func(n string) bool { return strings.EqualFold(n, name) })
}

// Uses reports whether the key of a rule means something to a.
func (a Algorithm) Uses(key string) bool { return slices.Contains(a.Keys, key) }

// Algorithms returns the algorithms of this package, the default one first.
func Algorithms() []Algorithm {
	return []Algorithm{
		TokenBucket(), FixedWindow(), SlidingWindow(), SlidingLog(), LeakyBucket(), Concurrency(),
	}
}

// State is what is remembered of one actor. A store hands it to a Meter and
// keeps what comes back. An actor never seen has a Head of 0 and cells of 0.
type State struct {
	// Head uses the low 63 bits; the highest belongs to the store. A state
	// without Cells is changed by replacing Head in one atomic step.
	Head uint64

	// Cells is room for more. It is as long as the Meter asked for with
	// Meter.Cells or longer, and only Take, Debit and Refund may write to it.
	Cells []uint64
}

// Never is the expiry of a state that is not forgotten with time.
const Never = math.MaxInt64

// Meter keeps one limit. Its methods are pure: no clock, no lock, no
// allocation. Every n is at least 1. A Meter is safe for concurrent use.
type Meter interface {
	// StateVersion names how states are laid out. States pass from one Meter to
	// another of the same algorithm, unit and layout, as when a limit is changed by
	// a reload: what has been used then counts against the new limit.
	StateVersion() string

	// Cells returns how many cells the state needs for n more to be taken. It
	// is 0 for a state that is all in its Head, and then 0 for every state of
	// this Meter. Cells already there are kept when more are added.
	Cells(s State, n int64) int

	// Peek judges a request of cost n at the moment now. It changes nothing.
	Peek(s State, now, n int64) Outcome

	// Take charges a request of cost n that Peek allows of the same state at
	// the same moment, and returns the new Head.
	Take(s State, now, n int64) uint64

	// Refund gives back n that were taken at the moment at, as far as they still
	// count, and returns the new Head.
	Refund(s State, at, n int64) uint64

	// Expiry returns the moment from which s means the same as a state never
	// used, or Never.
	Expiry(s State) int64
}

// Clamped is a Meter whose states remember a moment. Goroutines that read the clock one
// after another may come to a state in another order; then the later moment counts.
type Clamped interface {
	Meter

	// Moment returns the moment that Take charges at when it is asked to at now. It is
	// the one to Refund back at.
	Moment(s State, now int64) int64
}

// Debtor is a Meter whose states can be in debt. Which Meters are one is told by this
// interface. To any other Meter a store debits no more than what is left.
type Debtor interface {
	Meter

	// Debit charges n at the moment now without asking, into debt if need be, and returns
	// the new Head. Debt that the state cannot hold is cut to what it can hold. The state
	// has the cells that Cells asks for.
	Debit(s State, now, n int64) uint64
}

// Debit charges n at the moment now to a state of any Meter, as [Debtor] says, and returns the
// new Head. It is for stores.
func Debit(m Meter, s State, now, n int64) uint64 {
	if d, ok := m.(Debtor); ok {
		return d.Debit(s, now, n)
	}
	if out := m.Peek(s, now, n); !out.Allowed {
		n = min(n, out.Remaining)
	}
	if n <= 0 {
		return s.Head
	}
	return m.Take(s, now, n)
}

// Aging is a Meter whose states grow with use, and need fewer cells again as time passes. A
// store can replace such a state by a copy at any moment. Which Meters are one is told by this
// interface.
type Aging interface {
	Meter

	// CellsAt returns how many cells a copy of the state at the moment now needs for n more to
	// be taken.
	CellsAt(s State, now, n int64) int

	// Copy copies to cells what still counts of s at the moment now, and returns the Head of
	// the copy. The cells are zero, and at least as many as Cells asks for in a state never
	// used. If they are fewer than CellsAt asks for, the copy is less exact, and never allows
	// more than s does. The same holds for a Take or Debit in fewer cells than Cells asks for.
	Copy(s State, now int64, cells []uint64) uint64
}

// Queue is a Meter that lets requests wait: its outcomes may be allowed with a
// Wait. Which Meters are one is told by this interface.
type Queue interface {
	Meter

	// Delay puts off by d microseconds the turns of all who come from now on, and
	// returns the new Head. A store calls it when a waiter left later than its turn,
	// so that those behind still keep their distance. With a d below 0 it takes back
	// what it put off.
	Delay(s State, d int64) uint64
}

// Reserver is a Meter that lets a request in ahead of time, for as far as its caller would
// wait. Its outcomes may be allowed with a Wait, and yet it is no Queue: nobody is held. The
// caller sleeps by itself until its turn, which stays as it was told, whoever else comes or
// goes. Which Meters are one is told by this interface.
//
// Peek of a Reserver is PeekWithin of 0, and its Remaining how many requests of cost 1 would
// be allowed without a wait. Refund is given the turn, which is the moment of the charge and
// its Wait. It gives back what nobody has reserved behind: the others keep their turns, and
// no two may have one.
type Reserver interface {
	Meter

	// PeekWithin is Peek for a request that would wait for so many microseconds at most. The
	// Wait of a refusal is how long it would be until it could be allowed with that wait.
	PeekWithin(s State, now, n, longest int64) Outcome
}

// Outcome is what becomes of a request. From [Meter.Peek] it describes the state
// before the request is charged, from a [Store] the state after.
type Outcome struct {
	Allowed bool

	// Wait, in microseconds. Allowed: hold the request for so long before it
	// goes on. Refused: after so long the same request would be allowed if no
	// one else asked, as far as time alone can tell; for a cost over the whole
	// limit, which is never allowed, the time in which the limit is whole again.
	Wait int64

	// Remaining is how many requests of cost 1 would be allowed at this moment; Unknown if
	// a Store had no need to find out.
	Remaining int64

	// Reset, in microseconds, is how long at most Remaining can be relied on: in
	// that span no more than Remaining become available. 0 if time has no part in it.
	Reset int64
}

// Unknown is the Remaining of a charge that a Store has not judged, as another one of the
// request was surely refused.
const Unknown = -1

func ceilDiv(a, b int64) int64 { return (a + b - 1) / b }
