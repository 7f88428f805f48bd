// SPDX-License-Identifier: MIT

package limit

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// turns is the model of LeakyBucket: all admitted requests, each with the moment at
// which it goes on and its cost, which is how many turns it takes.
type turns struct {
	n, unit, queue int64
	latest         int64 // moment of a charge
	history
}

func newTurns(l Limit) *turns {
	m := &turns{n: l.N, unit: l.Unit.Microseconds(), queue: l.Queue}
	m.queue = min(m.queue, MaxQueueWait.Microseconds()/m.distance())
	return m
}

// distance is what turns are apart: Unit/N, rounded up.
func (m *turns) distance() int64 { return ceilDiv(m.unit, m.n) }

// next returns when whoever comes now has a turn.
func (m *turns) next(now int64) int64 {
	if len(m.history) > 0 {
		last := m.history[len(m.history)-1]
		now = max(now, last.at+last.n*m.distance())
	}
	return now
}

// waiting returns how many turns have not come yet.
func (m *turns) waiting(now int64) (n int64) {
	for _, c := range m.history {
		gone := int64(0)
		if now >= c.at {
			gone = (now-c.at)/m.distance() + 1
		}
		n += max(c.n-gone, 0)
	}
	return n
}

func (m *turns) check(now, n int64, out Outcome) string {
	wait := m.next(now) - now
	if out.Allowed && out.Wait != wait {
		return fmt.Sprintf("the next turn is in %d", wait)
	}
	if m.back(now) { // then gaps that lie ahead count as well
		return ""
	}
	waiting := m.waiting(now)
	left := max(m.queue-waiting, 0)
	if wait == 0 {
		left++
	}
	if out.Allowed != (left > 0 && !m.endless(n)) || out.Remaining != left {
		return fmt.Sprintf("%d are waiting", waiting)
	}
	return ""
}

// endless reports whether a cost takes over a hundred years to leak.
func (m *turns) endless(n int64) bool { return n > maxFill/m.distance() }

func (m *turns) back(now int64) bool { return now < m.latest }

func (m *turns) take(now, n int64) {
	m.history = append(m.history, moment{m.next(now), n})
	m.latest = max(now, m.latest)
}

// give lets those behind move up.
func (m *turns) give(i int, _, n int64) {
	m.history[i].n = 0
	for j := range m.history[i+1:] {
		m.history[i+1+j].at -= n * m.distance()
	}
}

func TestLeakyBucketRandom(t *testing.T) {
	t.Parallel()
	check(t, func(t *rapid.T) {
		l := drawLimit(t)
		l.Queue = rapid.OneOf(rapid.Int64Range(1, 5), rapid.Int64Range(1, MaxN)).Draw(t, "Queue")
		m := newTurns(l)
		s := &sequence{meter: newMeter(t, LeakyBucket(), l), model: m}
		s.mayGive = func(i int) bool { // whoever still waits, or has just come
			return m.history[i].at >= max(s.now, m.latest)
		}
		s.play(t, l)
	})
}

// What has been used counts against a limit that is lowered, or raised again.
func TestLeakyBucketChanged(t *testing.T) {
	t.Parallel()
	testChanged(t, LeakyBucket(), Limit{Unit: time.Second, Queue: 4}, []changed{
		{n: 10, cost: 3, allowed: true, remaining: 5}, // the next turn is in 300 ms
		{n: 20, cost: 1, remaining: 0},                // 4 turns in 200 ms
		{n: 5, cost: 1, allowed: true, remaining: 3},  // in 500 ms
		{n: 10, cost: 1, remaining: 0},                // 4 turns in 400 ms
	})
}

// Delay moves the turns of those who come.
func TestLeakyBucketDelay(t *testing.T) {
	t.Parallel()
	m := newMeter(t, LeakyBucket(), Limit{N: 10, Unit: time.Second}).(Queue)
	s := State{}
	s.Head = m.Take(s, epoch2026, 1)
	s.Head = m.Delay(s, 70_000)
	if out := m.Peek(s, epoch2026, 1); !out.Allowed || out.Wait != 170_000 {
		t.Errorf("%+v, want a wait of 170 ms", out)
	}
}

// With NoQueue a request goes on at once or not at all.
func TestNoQueue(t *testing.T) {
	t.Parallel()
	m, err := LeakyBucket().New(Limit{N: 10, Unit: time.Second, Queue: NoQueue})
	if err != nil {
		t.Fatal(err)
	}
	s := State{Head: m.Take(State{}, epoch2026, 1)}
	if out := m.Peek(s, epoch2026+99_999, 1); out.Allowed || out.Wait != 1 {
		t.Errorf("a microsecond too early: %+v, want a refusal for 1 µs", out)
	}
	if out := m.Peek(s, epoch2026+100_000, 1); !out.Allowed || out.Wait != 0 {
		t.Errorf("in time: %+v, want it allowed at once", out)
	}
	if _, err := LeakyBucket().New(Limit{N: 1, Unit: time.Second, Queue: -2}); err == nil {
		t.Error("a queue of -2 was accepted")
	}
}
