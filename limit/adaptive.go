// SPDX-License-Identifier: MIT

package limit

import (
	"fmt"
	"time"

	"github.com/diana-limiter/diana/internal/bounds"
)

// AdaptiveConcurrency allows as many requests at the same time as the upstream can answer without a queue. It
// finds that number, the limit, between Min and N by the latencies of the requests.
//
//	  latency                          The upstream has 8 servers. Up to 8 requests at a time find
//	     |                  /          one free, and take as long as with one request: the baseline.
//	2x   |                /            Each further one waits, so the latency grows in proportion,
//	     |              /              and nothing else does. The limit settles just right of the
//	base |-------------+               corner, where all servers are busy.
//	     +-------------|-----|---> requests at the same time
//	                   8    16
//
// Requests have priorities, from Level 0. For each higher one that was active in the last 10 seconds, a lower
// priority leaves Keep percent of the limit unused. It always finds Least percent:
//
//	limit 20   [ . . . . . . . . . . . . . . . . | - - | = = ]     three priorities, Keep 10
//	                lowest: 16 slots               middle: 18   highest: 20
//
// Within a priority, clients that cause much work are refused first; adaptivework.go describes that, and
// adaptivewindow.go how the limit is found.
//
// State: the number of held slots in Head, and about 500 cells (4 KiB). Expiry: ten minutes after the last
// change, if no slot is held. Time frees no slot. Cost: some additions a request, and a look at 96 counters a
// window. Sources: Vegas and Gradient2 of Netflix' concurrency-limits, for latency as the sign of a queue;
// Uber's Cinnamon, for comparing two loads; Little's law.
func AdaptiveConcurrency() Algorithm {
	return Algorithm{
		Names: []string{"AC", "adaptive concurrency"},
		Keys:  []string{"wait", "min", "measure", "hold", "keep", "least", "priority", "priorities"},
		Held:  true,
		New:   newAdaptive,
	}
}

// Flight is what a [Charge] under an [Adaptive] says about its request, and learns about the limit.
type Flight struct {
	Level  int64  // of its priority: 0 is the highest, 7 the lowest
	Client uint64 // a hash of who causes the work; 0 means nobody in particular

	// For Refund: Measured says that Latency is how long the upstream took, in microseconds, also until a timeout.
	// Broken says that it would have taken at least as long: its client left, or the upstream failed. Rejected
	// says that the upstream had too much to do. A refund of 0 slots reports the latency of a request that
	// still holds its slots; its last refund then has Reported.
	Measured, Broken, Rejected, Reported bool

	Latency int64
	Ended   int64 // the moment of the refund; 0 means now, by the store's clock

	// Limit is the limit of the moment. Take and Peek set it. Base is the latency of the unloaded upstream in
	// microseconds, 0 if it is unknown.
	Limit, Base int64
}

// Adaptive is a Meter whose limit follows the latencies of requests. A store calls its methods in place of
// those of Meter with the same purpose. A nil Flight is one of the highest priority, whose end is not known.
type Adaptive interface {
	Meter

	// Admit is Peek for a request.
	Admit(s State, now, n int64, f *Flight) Outcome

	// Enter is Take for a request.
	Enter(s State, now, n int64, f *Flight) uint64

	// Refuse notes a request that Admit has refused at the moment now.
	Refuse(s State, now int64, f *Flight)

	// Leave releases the slots of a request that ends at the moment now, and learns from its Flight. It returns
	// the new Head.
	Leave(s State, now, n int64, f *Flight) uint64
}

// The cells of a state. Moments are in microseconds, limits in 1/1024 of a slot.
const (
	cellLimit    = iota // 0: never used
	cellBase            // latency without a queue; 0: not known
	cellCalm            // the base when there was room left; 0: never yet
	cellMid             // mean of the middles of the windows under about this limit
	cellLast            // middle of the last window
	cellSure            // their samples; 0: none yet
	cellAwaited         // requests whose latency is not known yet
	cellSince           // moment of the last completion, or of the first request after none was awaited
	cellResumed         // moment at which a stall ended last
	cellHalved          // moment at which a stall halved the limit last
	cellBefore          // limit before the stall; 0: there is none
	cellFirst           // of the requests that the first window left in flight, how many must end yet
	cellOpened          // moment at which the window opened
	cellCounted         // moment from which its completions count
	cellEnded           // requests that have ended in the window, measured or not
	cellMeasured        // samples in the window
	cellPeak            // most requests in flight in the window
	cellRefused         // requests refused in the window
	cellRejected        // requests that the upstream rejected in the window
	cellMark            // limit before the question
	cellMarkMid         // latency under that limit
	cellMarkLoad        // mean number of requests that wait for the upstream under that limit
	cellLoad            // mean number of requests that wait for the upstream in those windows
	cellArea            // requests that wait for the upstream times time, since completions count
	cellMoved           // moment up to which that is the sum
	cellAsked           // 1: the limit is below the mark to learn from that
	cellTrust           // 0 to trusted: how sure it is that the base was measured without a queue
	cellGood            // windows in a row that used the limit without a queue
	cellCeiling         // limit at which a queue was found last
	cellProbe           // moment of the next question without a sign
	cellPause           // time between those
	cellPressed         // moment of the last refusal that was no heavy client's
	cellFaded           // moment at which work was halved last
	cellSpread          // how much latencies differ, in 1/1024 of their middle
	cellHeld            // held slots by level
	cellCame     = cellHeld + bounds.MaxPriorities
	cellClients  = cellCame + bounds.MaxPriorities // columns with samples in the window
	cellSeen     = cellClients + 1                 // samples of the window, by the column of the client
	cellSamples  = cellSeen + workColumns          // histogram of latencies
	cellWork     = cellSamples + samples
	cells        = cellWork + workRows*workColumns
)

const (
	slot    = 1 << 10 // in 1/1024
	started = 20 * slot

	activeFor   = 10_000_000  // how long a priority counts as active after its last request
	forgetAfter = 600_000_000 // how long a limit is remembered that nobody uses
)

// adaptive is the Meter. Its percentages are out of 100.
type adaptive struct {
	min, max    int64 // in 1/1024 of a slot
	keep, least int64
}

func newAdaptive(l Limit) (Meter, error) {
	plain := l
	plain.Unit, plain.Min, plain.Keep, plain.Least = time.Second, 0, 0, 0 // check does not accept them
	if err := plain.Check(); err != nil {
		return nil, err
	}
	switch {
	case l.N == 0:
		return closed(time.Second.Microseconds()), nil
	case l.Min < 0 || l.Min > l.N:
		return nil, fmt.Errorf("limit: min is %d, expected 1 to N, which is %d", l.Min, l.N)
	case l.Keep < -1 || l.Keep > bounds.MaxPercent || l.Least < -1 || l.Least > bounds.MaxPercent:
		return nil, fmt.Errorf("limit: keep is %d and least is %d, expected -1 to %d", l.Keep, l.Least, bounds.MaxPercent)
	}
	return &adaptive{min: max(l.Min, 1) * slot, max: l.N * slot,
		keep: percent(l.Keep, 10), least: percent(l.Least, 5)}, nil
}

// percent returns the percentage that p stands for in a Limit.
func percent(p, otherwise int64) int64 {
	switch p {
	case 0:
		return otherwise
	case -1:
		return 0
	}
	return p
}

func (a *adaptive) StateVersion() string   { return "2" }
func (a *adaptive) Cells(State, int64) int { return cells }

// limit returns the limit of a state, in 1/1024 of a slot.
func (a *adaptive) limit(s State) int64 {
	l := int64(0)
	if len(s.Cells) > 0 {
		l = int64(s.Cells[cellLimit])
	}
	if l == 0 {
		l = started
	}
	return min(max(l, a.min), a.max)
}

func (a *adaptive) Peek(s State, now, n int64) Outcome { return a.Admit(s, now, n, nil) }

// Admit implements Adaptive.
func (a *adaptive) Admit(s State, now, n int64, f *Flight) Outcome {
	l := a.limit(s) / slot
	held := int64(s.Head)
	out := Outcome{Remaining: max(l-held, 0)}
	level, client := int64(0), uint64(0)
	if f != nil {
		level, client = min(max(f.Level, 0), bounds.MaxPriorities-1), f.Client
		f.Limit, f.Base = l, 0
		if len(s.Cells) > 0 {
			f.Base = int64(s.Cells[cellBase])
		}
	}
	if held+n <= l && (len(s.Cells) == 0 || a.mayEnter(s, now, n, l, level, client)) {
		out.Allowed = true
		return out
	}
	// No better time is known. Clients that all came back at once would make the next overload.
	out.Wait = (1 + int64(mix(uint64(now)^client)%3)) * time.Second.Microseconds()
	return out
}

// mayEnter reports whether a request finds a slot that is free for its priority and its client. l is the limit
// in slots, below which there is room.
func (a *adaptive) mayEnter(s State, now, n, l, level int64, client uint64) bool {
	held, most := int64(s.Head), l
	for higher := range level {
		if came := s.Cells[cellCame+higher]; came > 0 && now-int64(came) < activeFor || s.Cells[cellHeld+higher] > 0 {
			most -= (l*a.keep + 99) / 100
		}
	}
	if held+n <= most-spare(most) {
		return true
	}
	if own := int64(s.Cells[cellHeld+level]); level > 0 && a.least > 0 && own+n <= max(l*a.least/100, 1) {
		return true
	}
	return held+n <= most && !a.leaves(s, now, client)
}

// leaves reports whether a client leaves the spare slots to others.
func (a *adaptive) leaves(s State, now int64, client uint64) bool {
	return crowds(s, client) || a.pressed(s, now) && heavy(s, client)
}

// spare returns how many of so many slots only clients with little work may use while requests are refused.
func spare(slots int64) int64 { return min(max(slots/8, 1), max(slots-1, 0)) }

// pressed reports whether requests were refused lately because no slot was free.
func (a *adaptive) pressed(s State, now int64) bool {
	return s.Cells[cellPressed] > 0 && now-int64(s.Cells[cellPressed]) < max(longestWindow, 4*int64(s.Cells[cellBase]))
}

func (a *adaptive) Take(s State, now, n int64) uint64 { return a.Enter(s, now, n, nil) }

// Enter implements Adaptive.
func (a *adaptive) Enter(s State, now, n int64, f *Flight) uint64 {
	level := a.came(s, now, f)
	a.roll(s, now)
	pass(s, now)
	if s.Cells[cellAwaited]++; s.Cells[cellAwaited] == 1 {
		s.Cells[cellSince] = uint64(now)
	}
	held := s.Head + uint64(n)
	s.Cells[cellHeld+level] += uint64(n)
	s.Cells[cellPeak] = max(s.Cells[cellPeak], held)
	if f != nil {
		addWork(s, now, f.Client, advance(s), n)
	}
	return held
}

// came notes that a request of a priority has come, and returns the priority.
func (a *adaptive) came(s State, now int64, f *Flight) int64 {
	level := int64(0)
	if f != nil {
		level = min(max(f.Level, 0), bounds.MaxPriorities-1)
	}
	s.Cells[cellCame+level] = uint64(now)
	return level
}

// Refuse implements Adaptive.
func (a *adaptive) Refuse(s State, now int64, f *Flight) {
	if len(s.Cells) == 0 {
		return
	}
	level := a.came(s, now, f)
	s.Cells[cellRefused]++
	if f == nil || !a.leaves(s, now, f.Client) || int64(s.Head)+1 > a.limit(s)/slot || level > 0 {
		s.Cells[cellPressed] = uint64(now)
	}
	a.roll(s, now)
}

func (a *adaptive) Refund(s State, _, n int64) uint64 {
	if len(s.Cells) > 0 {
		s.Cells[cellAwaited] -= min(s.Cells[cellAwaited], 1)
	}
	return a.release(s, n, bounds.MaxPriorities-1)
}

// release releases slots of a priority, and of the lower and higher ones if that one holds too few.
func (a *adaptive) release(s State, n, level int64) uint64 {
	n = min(n, int64(s.Head))
	for i, left := int64(0), n; i < bounds.MaxPriorities && left > 0 && len(s.Cells) > 0; i++ {
		held := &s.Cells[cellHeld+(level-i+bounds.MaxPriorities)%bounds.MaxPriorities]
		part := min(uint64(left), *held)
		*held -= part
		left -= int64(part)
	}
	return s.Head - uint64(n)
}

// Leave implements Adaptive.
func (a *adaptive) Leave(s State, now, n int64, f *Flight) uint64 {
	if f == nil || len(s.Cells) == 0 {
		return a.Refund(s, now, n)
	}
	pass(s, now)
	if (f.Measured || !f.Reported) && s.Cells[cellAwaited] > 0 {
		s.Cells[cellAwaited]--
	}
	head := a.release(s, n, min(max(f.Level, 0), bounds.MaxPriorities-1))
	if !f.Measured {
		addWork(s, now, f.Client, 0, -n)
		return head
	}
	if a.quiet(s, now) {
		s.Cells[cellResumed] = uint64(now)
	}
	if before := s.Cells[cellBefore]; before > 0 { // the stall has ended, and was no sign of a queue
		a.set(s, max(int64(before), a.limit(s)))
		s.Cells[cellBefore] = 0
	}
	a.learn(s, now, f)
	addWork(s, now, f.Client, min(f.Latency, longestWork)-advance(s), -n)
	s.Cells[cellSince] = uint64(now)
	a.roll(State{Head: head, Cells: s.Cells}, now)
	return head
}

// Debit implements Debtor.
func (a *adaptive) Debit(s State, _, n int64) (head uint64, cut int64) {
	head = min(s.Head+uint64(n), 1<<53)
	s.Cells[cellHeld+bounds.MaxPriorities-1] += head - s.Head
	return head, n - int64(head-s.Head)
}

// Used implements Debtor.
func (a *adaptive) Used(s State, _ int64) int64 { return int64(s.Head) }

func (a *adaptive) Expiry(s State) int64 {
	if s.Head > 0 {
		return Never
	}
	if len(s.Cells) == 0 || s.Cells[cellSince] == 0 {
		return 0
	}
	return int64(s.Cells[cellSince]) + forgetAfter
}
