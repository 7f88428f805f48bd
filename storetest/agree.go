// SPDX-License-Identifier: MIT

package storetest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/diana-limiter/diana/internal/bounds"
	"github.com/diana-limiter/diana/limit"
)

// agreement is two stores that must decide alike.
type agreement struct {
	*testing.T
	algorithms []limit.Algorithm
	rnd        *rand.Rand
	a, b       limit.Store
}

// run is Suite.Agree.
func (g *agreement) run(n int) {
	g.Helper()
	const most = 500 // operations under the same limits
	for done := 0; done < n && !g.Failed(); done += most {
		r := round{agreement: g, op: done, now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro()}
		if g.rnd.IntN(4) == 0 { // a state must have room for late moments, too
			r.now = lastMoment - 10*longestJump
		}
		r.run(min(most, n-done))
	}
}

// randomPair makes counters of a random limit. An algorithm can reject a limit, such as a burst that
// takes a century to fill. Then randomPair draws again.
func (g *agreement) randomPair(name string) pair {
	g.Helper()
	algorithms := append(slices.Clip(g.algorithms), limit.Reservations())
	var err error
	for range 1000 {
		algorithm, l := algorithms[g.rnd.IntN(len(algorithms))], randomLimit(g.rnd)
		unit := l.Unit
		if algorithm.Called("W") && g.rnd.IntN(4) == 0 {
			l.N = bounds.MaxN + 1 + g.rnd.Int64N(bounds.MaxWindowN-bounds.MaxN)
		}
		if algorithm.Called("W") && g.rnd.IntN(3) == 0 {
			unit = g.calendar(&l)
		}
		var m limit.Meter
		if m, err = algorithm.New(l); err != nil {
			continue
		}
		if q, ok := m.(limit.Queue); ok { // so that no request waits
			m = schedule{q.(limit.Scripted)}
		}
		p := pair{limit: fmt.Sprintf("%s %+v", algorithm.Name(), l), unit: unit, n: l.N, calendar: l.Calendar != "" || l.Zone != ""}
		if p.a, err = g.a.Counters(name, m); err != nil {
			g.Fatal(err)
		}
		if p.b, err = g.b.Counters(name, m); err != nil {
			g.Fatal(err)
		}
		return p
	}
	g.Fatalf("of 1,000 limits none can be kept; the last: %v", err)
	return pair{}
}

// calendar gives a limit windows of the calendar, and returns their usual length. Algorithms reject zones
// that this machine does not know.
func (g *agreement) calendar(l *limit.Limit) (usual time.Duration) {
	zones := []string{"", "Europe/Berlin", "America/New_York", "Asia/Kolkata", "Australia/Lord_Howe", "Africa/Cairo"}
	units := []struct {
		calendar string
		length   time.Duration
	}{{"", time.Hour}, {"", day}, {"week", 7 * day}, {"month", 31 * day}, {"year", 366 * day}, {"total", day}}
	u := units[g.rnd.IntN(len(units))]
	l.AlignFirst, l.Unit, l.Calendar, l.Zone = false, 0, u.calendar, zones[g.rnd.IntN(len(zones))]
	switch u.calendar {
	case "":
		l.Unit = u.length
	case "total":
		l.Zone = ""
	}
	return u.length
}

// longestJump and lastMoment keep moments in the range of the meters: they hold debt of a hundred years
// that ends before the end of time.
const (
	longestJump = 365 * 24 * 3600 * 1e6
	lastMoment  = bounds.EndOfTime - 101*longestJump
)

// pair is the counters of one limit in both stores.
type pair struct {
	a, b  any
	limit string
	unit  time.Duration
	n     int64

	calendar bool // its windows are those of the calendar
}

func (p pair) String() string { return p.limit }

// round is operations under the same limits.
type round struct {
	*agreement
	pairs []pair
	made  [][2][]limit.Charge // and not refunded

	op     int   // the number of the operation
	now    int64 // its moment
	latest int64 // the latest moment of an operation
	wait   int64 // of the last refusal
}

func (r *round) run(n int) {
	r.Helper()
	r.latest = r.now
	for i := range 1 + r.rnd.IntN(4) {
		p := r.randomPair(fmt.Sprintf("%d.%d", r.op, i))
		defer r.a.Retire(p.a)
		defer r.b.Retire(p.b)
		r.pairs = append(r.pairs, p)
	}
	for range n {
		r.move()
		switch {
		case len(r.made) > 0 && r.rnd.IntN(8) == 0:
			r.refund()
		case r.rnd.IntN(16) == 0:
			r.debit()
		case r.rnd.IntN(32) == 0:
			r.reset()
		default:
			r.take()
		}
		r.op++
	}
}

// move chooses the next moment.
func (r *round) move() {
	first := r.pairs[0]
	switch unit := first.unit.Microseconds(); r.rnd.IntN(8) {
	case 0, 1: // at the same moment
	case 2:
		r.now += r.rnd.Int64N(2*unit + 1)
	case 3:
		r.now -= r.rnd.Int64N(r.longestBack() + 1)
	case 4: // at an edge, or just beside it
		r.now += []int64{unit, min(r.wait, longestJump)}[r.rnd.IntN(2)] + r.rnd.Int64N(3) - 1
	default:
		r.now += r.rnd.Int64N(unit/max(first.n, 1) + 2)
	}
	r.now = min(r.now, lastMoment)
}

// longestBack returns how far a clock goes back, in microseconds. A store that knows only the windows around
// a moment is not exact after a longer way back.
func (r *round) longestBack() int64 {
	back := r.pairs[0].unit
	for _, p := range r.pairs {
		if p.calendar {
			back = min(back, p.unit)
		}
	}
	return back.Microseconds() / 10
}

func (r *round) refund() {
	i := r.rnd.IntN(len(r.made))
	if r.rnd.IntN(2) == 0 {
		r.refundPart(r.made[i])
		return
	}
	r.a.Refund(r.made[i][0])
	r.b.Refund(r.made[i][1])
	r.made[i] = r.made[len(r.made)-1]
	r.made = r.made[:len(r.made)-1]
}

// refundPart refunds a part of each charge of a request, as a cost does that is less than its reservation.
func (r *round) refundPart(made [2][]limit.Charge) {
	for i := range made[0] {
		ca, cb := &made[0][i], &made[1][i]
		part := r.rnd.Int64N(ca.Cost + 1)
		if part == 0 {
			continue
		}
		rest := ca.Cost - part
		ca.Cost, cb.Cost = part, part
		r.a.Refund(made[0][i : i+1])
		r.b.Refund(made[1][i : i+1])
		ca.Cost, cb.Cost = rest, rest
	}
}

func (r *round) debit() {
	p := r.pairs[r.rnd.IntN(len(r.pairs))]
	ch := limit.Charge{Key: r.key(), Cost: 1 + r.rnd.Int64N(2*p.n+2)}
	if r.rnd.IntN(8) == 0 {
		ch.Cost = []int64{bounds.MaxN, bounds.MaxSettled}[r.rnd.IntN(2)]
	}
	r.latest = max(r.latest, r.now)
	ch.Counters = p.a
	r.a.Debit(r.now, []limit.Charge{ch})
	ch.Counters = p.b
	r.b.Debit(r.now, []limit.Charge{ch})
}

func (r *round) reset() {
	r.Helper()
	p, key := r.pairs[r.rnd.IntN(len(r.pairs))], r.key()
	r.succeeded(r.a.Reset(context.Background(), p.a, key), r.b.Reset(context.Background(), p.b, key))
}

func (r *round) take() {
	r.Helper()
	ca, cb := r.charges()
	peeked := r.rnd.IntN(2) == 0
	allowed := peeked && r.peek(slices.Clone(ca), slices.Clone(cb))
	okA, errA := r.a.Take(context.Background(), r.now, ca)
	okB, errB := r.b.Take(context.Background(), r.now, cb)
	r.succeeded(errA, errB)
	if got, want := describe(okB, cb), describe(okA, ca); got != want {
		r.Fatalf("operation %d at %d, of %v:\n%sand the other:\n%s", r.op, r.now, r.pairs, want, got)
	}
	if peeked && allowed != okA {
		r.Fatalf("operation %d at %d, of %v: Peek says allowed %v, and Take %v", r.op, r.now, r.pairs, allowed, okA)
	}
	for _, ch := range ca {
		if !ch.Outcome.Allowed {
			r.wait = ch.Outcome.Wait
		}
	}
	if r.latest = max(r.latest, r.now); okA && r.now == r.latest { // otherwise the stores differ in the moment of the charge
		r.made = append(r.made, [2][]limit.Charge{ca, cb})
	}
}

// peek calls Peek of both stores, and reports whether a Take at this moment is allowed.
func (r *round) peek(ca, cb []limit.Charge) (allowed bool) {
	r.Helper()
	r.succeeded(r.a.Peek(context.Background(), r.now, ca), r.b.Peek(context.Background(), r.now, cb))
	allowed = !slices.ContainsFunc(ca, func(ch limit.Charge) bool { return !ch.Outcome.Allowed && !ch.Shadow })
	if got, want := describe(allowed, cb), describe(allowed, ca); got != want {
		r.Fatalf("operation %d at %d, peek of %v:\n%sand the other:\n%s", r.op, r.now, r.pairs, want, got)
	}
	return allowed
}

// charges returns random charges of one request, for each of the stores.
func (r *round) charges() (ca, cb []limit.Charge) {
	for _, i := range r.rnd.Perm(len(r.pairs))[:1+r.rnd.IntN(len(r.pairs))] {
		p := r.pairs[i]
		ch := limit.Charge{Key: r.key(), Cost: 1, Shadow: r.rnd.IntN(4) == 0}
		ch.Debit = ch.Shadow && r.rnd.IntN(2) == 0
		if r.rnd.IntN(3) == 0 {
			ch.Cost = r.rnd.Int64N(p.n + 3) // 0 only looks
		}
		if r.rnd.IntN(2) == 0 { // only a limit.Reserver uses it
			ch.Longest = []int64{1, r.rnd.Int64N(3 * p.unit.Microseconds()), 1 << 52}[r.rnd.IntN(3)]
		}
		ch.Counters = p.a
		ca = append(ca, ch)
		ch.Counters = p.b
		cb = append(cb, ch)
	}
	return ca, cb
}

// key returns one of three actors.
func (r *round) key() []byte { return fmt.Append(nil, r.rnd.IntN(3)) }

// succeeded fails the test if an operation of a store has failed.
func (r *round) succeeded(errA, errB error) {
	r.Helper()
	if errA != nil || errB != nil {
		r.Fatalf("operation %d: %v, %v", r.op, errA, errB)
	}
}

// describe returns the result of a request as text.
func describe(ok bool, charges []limit.Charge) string {
	text := fmt.Sprintln("allowed:", ok)
	for _, ch := range charges {
		text += fmt.Sprintf("%d by %s, shadow %v, debit %v: %+v\n", ch.Cost, ch.Key, ch.Shadow, ch.Debit, ch.Outcome)
	}
	return text
}

// schedule is a queue whose requests do not wait.
type schedule struct{ limit.Scripted }

// Debit implements limit.Debtor.
func (q schedule) Debit(s limit.State, now, n int64) (head uint64, cut int64) {
	return limit.Debit(q.Scripted, s, now, n)
}

// Used implements limit.Debtor.
func (q schedule) Used(s limit.State, now int64) int64 { return q.Scripted.(limit.Debtor).Used(s, now) }

func randomLimit(rnd *rand.Rand) limit.Limit {
	pick := func(from ...int64) int64 { return from[rnd.IntN(len(from))] }
	l := limit.Limit{
		N:          pick(0, 1, 2, 3, 7, 10, 100, 65535, 65536, 70000, 999_999_937, bounds.MaxN, 1+rnd.Int64N(50)),
		Unit:       time.Duration(pick(1e3, 7e3, 1e6, 6e7, 36e8, 864e8, 744*36e8, 1e3+rnd.Int64N(1e7))) * time.Microsecond,
		AlignFirst: rnd.IntN(2) == 1,
	}
	if rnd.IntN(3) == 0 {
		l.Warmup = time.Duration(pick(1, 2, 999_999, 1e6, 6e8, 1+rnd.Int64N(1e7))) * time.Microsecond
	}
	if rnd.IntN(2) == 0 {
		l.Burst, l.Queue, l.Slices = 1+rnd.Int64N(20), 1+rnd.Int64N(20), 2+rnd.Int64N(99)
	}
	return l
}
