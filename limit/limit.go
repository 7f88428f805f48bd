// SPDX-License-Identifier: MIT

package limit

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/diana-limiter/diana/internal/bounds"
)

// Limit is what an algorithm enforces: N requests per Unit, and parameters of the
// algorithm. If a field other than N and Unit is zero, the algorithm uses its default.
//
// N, Burst and Queue are at most 1,000,000,000, and N of a FixedWindow 999,999,999,999,999. Durations are
// whole microseconds.
type Limit struct {
	N          int64         // requests per Unit; 0 refuses all. For Concurrency: the number of slots
	Unit       time.Duration // 1 ms to 744 h, which are 31 days; FixedWindow: to 366 days. Concurrency ignores it
	Burst      int64         // TokenBucket: the capacity; 0 means N
	Queue      int64         // LeakyBucket: the most requests that wait at once; 0 means N, -1 means none
	Slices     int64         // SlidingWindow: 2 to 100; 0 means 10
	AlignFirst bool          // FixedWindow: windows begin at the first request, not at multiples of the Unit
	Warmup     time.Duration // TokenBucket: how long its rate climbs from a third; 0 to 10 min

	// AdaptiveConcurrency: Min is the least limit; 0 means 1. Keep is the percentage of the limit that is kept
	// for each higher priority, 0 means 10, and Least the one that a lower priority always gets, 0 means 5.
	// Either is at most 50, and -1 means none.
	Min, Keep, Least int64

	// Calendar replaces the Unit of a FixedWindow by a window of the calendar: "week", which begins on
	// Monday, "month" or "year", or by "total", a window that never ends. The Unit must be 0 then.
	// Empty means windows of the Unit.
	Calendar string

	// Zone is the time zone in which the windows of a FixedWindow begin, by its name in the IANA
	// database, such as "Europe/Berlin". It needs a Unit of an hour or a day, or a Calendar but "total".
	// Empty means UTC.
	Zone string
}

// noQueue is the Queue of a leaky bucket under which no request waits.
const noQueue = -1

// Check returns an error if N, Unit, Burst, Queue or Warmup is out of range, or if there is a Calendar or
// a Zone. It does not check Slices, whose range depends on the algorithm. FixedWindow accepts a larger N,
// a longer Unit, a Calendar and a Zone.
func (l Limit) Check() error {
	if l.Calendar != "" || l.Zone != "" {
		return errors.New("limit: only a fixed window has a calendar or a zone")
	}
	if l.Min != 0 || l.Keep != 0 || l.Least != 0 {
		return errors.New("limit: only adaptive concurrency has min, keep and least")
	}
	return l.check(bounds.MaxN, bounds.MaxUnit)
}

func (l Limit) check(maxN int64, maxUnit time.Duration) error {
	if l.N < 0 || l.N > maxN {
		return fmt.Errorf("limit: N is %d, expected 0 to %d", l.N, maxN)
	}
	if l.Unit < bounds.MinUnit || l.Unit > maxUnit || l.Unit%time.Microsecond != 0 {
		return fmt.Errorf("limit: unit is %v, expected whole microseconds, %v to %v", l.Unit, bounds.MinUnit, maxUnit)
	}
	if l.Burst < 0 || l.Burst > bounds.MaxN {
		return fmt.Errorf("limit: burst is %d, expected 0 to %d", l.Burst, bounds.MaxN)
	}
	if l.Queue < noQueue || l.Queue > bounds.MaxN {
		return fmt.Errorf("limit: queue is %d, expected -1 to %d", l.Queue, bounds.MaxN)
	}
	if l.Warmup < 0 || l.Warmup > bounds.MaxWarmup || l.Warmup%time.Microsecond != 0 {
		return fmt.Errorf("limit: warmup is %v, expected whole microseconds, 0s to %v", l.Warmup, bounds.MaxWarmup)
	}
	return nil
}

// Algorithm is a way to limit. It is a value: a program adds its own algorithms beside the
// ones of this package, without a registry.
type Algorithm struct {
	// Names are the names of the algorithm in configurations, in any letter case. The first
	// is the short name, which becomes part of every counter's name.
	Names []string

	// Keys are the keys of a rule, besides rpu, that the algorithm uses: "unit", "burst",
	// "queue", "slices", "align", "warmup", "wait", "zone", and "charge" if a charge can be
	// refunded later. A configuration that sets any other key is rejected. With "zone", the
	// unit can also be one of Limit.Calendar.
	//
	// With "wait", the caller of a Store holds requests until they fit, and needs to know
	// when used requests come back:
	//  - With "burst", one by one, N a Unit.
	//  - If Held, when a request ends.
	//  - Otherwise at most N at a time, and not sooner than a Unit after they were used.
	Keys []string

	// Held reports whether a request releases what it took when it ends.
	Held bool

	// MaxN is the largest N, and the largest cost of a request, that a configuration can set; 0
	// means 1,000,000,000 and a cost of 1,000,000.
	MaxN int64

	// New returns the Meter for l, or an error that names the value of l that is out of range.
	// It is called once for each limit of a configuration.
	New func(l Limit) (Meter, error)
}

// Name returns the short name.
func (a Algorithm) Name() string { return a.Names[0] }

// Called reports whether name is one of a's names, in any letter case.
func (a Algorithm) Called(name string) bool {
	return slices.ContainsFunc(a.Names, func(n string) bool { return strings.EqualFold(n, name) })
}

// Uses reports whether a uses the key of a rule.
func (a Algorithm) Uses(key string) bool { return slices.Contains(a.Keys, key) }

// Algorithms returns the algorithms of this package that every Store can count. The first one is the default.
// [AdaptiveConcurrency] is for a store in one process, and [Reservations] for programs.
func Algorithms() []Algorithm {
	return []Algorithm{
		TokenBucket(), FixedWindow(), SlidingWindow(), SlidingLog(), LeakyBucket(), Concurrency(),
	}
}

// State is the counter of one actor. A store passes it to a Meter and keeps the result.
// The state of an actor that was never seen has a Head of 0, and cells of 0.
type State struct {
	// Head uses the low 63 bits; the highest bit belongs to the store. A state without Cells
	// changes in one atomic step: the store replaces Head.
	Head uint64

	// Cells has at least as many elements as Meter.Cells asks for. Only Take, Debit and
	// Refund may write to it.
	Cells []uint64
}

// Never is the expiry of a state that does not expire with time, because it counts slots that requests
// hold. Stores keep such a state until the requests have ended, and Reset does not change it.
const Never = math.MaxInt64

// Meter enforces one limit. Its methods are pure: they use no clock and no lock, and do not
// allocate. Every n is at least 1. A Meter is safe for concurrent use.
type Meter interface {
	// StateVersion names the format of the states. When a reload changes a limit, the states
	// pass from one Meter to another if algorithm, unit and StateVersion are the same. The
	// requests of an actor then count against the new limit.
	StateVersion() string

	// Cells returns how many cells s needs before a Take of n. If it is 0, the state is all in
	// its Head, and Cells returns 0 for every state of this Meter. When cells are added, the
	// existing cells keep their values.
	Cells(s State, n int64) int

	// Peek evaluates a request of cost n at the moment now. It changes nothing.
	Peek(s State, now, n int64) Outcome

	// Take charges a request of cost n, which Peek must allow for the same state at the same
	// moment. It returns the new Head.
	Take(s State, now, n int64) uint64

	// Refund undoes n of what was charged at the moment at, if it still counts. It returns
	// the new Head.
	Refund(s State, at, n int64) uint64

	// Expiry returns the moment from which s is equivalent to a state that was never used,
	// or Never.
	Expiry(s State) int64
}

// Clamped is a Meter whose states remember a moment. Goroutines that read the clock one
// after another can reach a state in another order; then the later moment counts.
type Clamped interface {
	Meter

	// Moment returns the moment of the charge that Take makes at now. A caller passes this
	// moment to Refund.
	Moment(s State, now int64) int64
}

// Debtor is a Meter whose states can be in debt. For any other Meter, a store debits at
// most what remains.
type Debtor interface {
	Meter

	// Debit charges n at the moment now, into debt if necessary, and returns the new Head.
	// It cuts off debt that the state cannot hold, and returns how much that is. The state
	// has the cells that Cells asks for.
	Debit(s State, now, n int64) (head uint64, cut int64)

	// Used returns how much of the charges to s still counts at the moment now, debt
	// included. It rounds up.
	Used(s State, now int64) int64
}

// Debit charges n at the moment now to a state of any Meter, as [Debtor] describes. It returns
// the new Head, and how much it has cut off. A debit of 0 changes nothing, not even debt that a clock
// which went back would cut off. Stores use it.
func Debit(m Meter, s State, now, n int64) (head uint64, cut int64) {
	if n == 0 {
		return s.Head, 0
	}
	if d, ok := m.(Debtor); ok {
		return d.Debit(s, now, n)
	}
	most := n
	if out := m.Peek(s, now, n); !out.Allowed {
		most = min(n, out.Remaining)
	}
	if most <= 0 {
		return s.Head, n
	}
	return m.Take(s, now, most), n - most
}

// Aging is a Meter whose states grow with use and shrink with time. A store can replace
// such a state by a copy at any moment.
type Aging interface {
	Meter

	// CellsAt returns how many cells a copy of s at the moment now needs before a Take of n.
	CellsAt(s State, now, n int64) int

	// Copy copies to cells what still counts of s at the moment now, and returns the Head of
	// the copy. The cells are zero, and at least as many as Cells asks for in a state that was
	// never used. With fewer cells than CellsAt asks for, the copy is less exact, but never
	// allows more than s. The same holds for Take and Debit with fewer cells than Cells
	// asks for.
	Copy(s State, now int64, cells []uint64) uint64
}

// Queue is a Meter under which requests wait: an Outcome can be allowed and have a Wait.
// A store holds such a request until its scheduled time.
type Queue interface {
	Meter

	// Delay moves the scheduled times of all later requests by d microseconds, and returns
	// the new Head. A store calls it when a waiting request proceeded later than scheduled,
	// so that the next ones keep their distance. A negative d takes back an earlier delay.
	Delay(s State, d int64) uint64
}

// Reserver is a Meter that lets a caller reserve a scheduled time, if that is not further
// ahead than the caller would wait. An Outcome can be allowed and have a Wait, but a
// Reserver is no Queue: the store holds no request. The caller itself sleeps until its
// scheduled time, which never changes.
//
// Peek of a Reserver is PeekWithin with a longest of 0. Its Remaining is how many requests
// of cost 1 would be allowed without a wait. The moment that Refund gets is the scheduled
// time: the moment of the charge plus its Wait. Refund undoes a charge only if nobody has
// reserved a later time, because no two callers may have the same one.
type Reserver interface {
	Meter

	// PeekWithin is Peek for a caller that would wait for longest microseconds. The Wait of a
	// refusal is the time until a request with that longest wait could be allowed.
	PeekWithin(s State, now, n, longest int64) Outcome
}

// Outcome is the result of one charge. From [Meter.Peek] and [Store.Peek] it describes the
// state before the charge, and from [Store.Take] the state after it.
type Outcome struct {
	Allowed bool

	// Wait is a span in microseconds. Of an allowed request it is how long to hold the
	// request. Of a refused one it is the time after which the same request would be
	// allowed if no other request came. Under Concurrency no time is known, so it is a
	// second. For a cost over the whole limit, which is never allowed, it is the time until
	// the limit is unused again. It is over a century if no time renews the limit.
	Wait int64

	// Remaining is how many requests of cost 1 would be allowed at this moment. It is Unknown
	// if the Store did not evaluate the charge.
	Remaining int64

	// Reset is a span in microseconds in which no more requests become available than
	// remained before the charge, or one if none did. It is 0 if that does not depend on time.
	Reset int64
}

// Unknown is the Remaining of a charge that a Store has not evaluated, because another
// charge of the request was refused for certain.
const Unknown = -1

func ceilDiv(a, b int64) int64 { return (a + b - 1) / b }
