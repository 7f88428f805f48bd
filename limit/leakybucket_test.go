// SPDX-License-Identifier: MIT

package limit

import (
	"fmt"
	"testing"
	"time"

	"github.com/diana-limiter/diana/internal/bounds"
	"pgregory.net/rapid"
)

// schedule is the model of LeakyBucket: all allowed requests, each with its scheduled time and
// its cost, which is how many steps it takes.
type schedule struct {
	n, unit, queue int64
	latest         int64 // moment of a charge
	history
}

func newSchedule(l Limit) *schedule {
	m := &schedule{n: l.N, unit: l.Unit.Microseconds(), queue: l.Queue}
	m.queue = min(m.queue, bounds.MaxQueueWait.Microseconds()/m.distance())
	return m
}

// distance is a step: Unit/N, rounded up.
func (m *schedule) distance() int64 { return ceilDiv(m.unit, m.n) }

// next returns the scheduled time of a request that arrives now.
func (m *schedule) next(now int64) int64 {
	if len(m.history) > 0 {
		last := m.history[len(m.history)-1]
		now = max(now, last.at+last.n*m.distance())
	}
	return now
}

// waiting returns how many scheduled times are ahead.
func (m *schedule) waiting(now int64) (n int64) {
	for _, c := range m.history {
		gone := int64(0)
		if now >= c.at {
			gone = (now-c.at)/m.distance() + 1
		}
		n += max(c.n-gone, 0)
	}
	return n
}

func (m *schedule) check(now, n int64, out Outcome) string {
	wait := m.next(now) - now
	if out.Allowed && out.Wait != wait {
		return fmt.Sprintf("the next turn is in %d", wait)
	}
	if m.back(now) { // gaps ahead count as well
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
func (m *schedule) endless(n int64) bool { return n > maxFill/m.distance() }

func (m *schedule) back(now int64) bool { return now < m.latest }

func (m *schedule) take(now, n int64) {
	m.history = append(m.history, moment{m.next(now), n})
	m.latest = max(now, m.latest)
}

// refund moves the requests behind up.
func (m *schedule) refund(i int, _, n int64) {
	m.history[i].n = 0
	for j := range m.history[i+1:] {
		m.history[i+1+j].at -= n * m.distance()
	}
}

func TestLeakyBucketRandom(t *testing.T) {
	t.Parallel()
	check(t, func(t *rapid.T) {
		l := drawLimit(t)
		l.Queue = rapid.OneOf(rapid.Int64Range(1, 5), rapid.Int64Range(1, bounds.MaxN)).Draw(t, "Queue")
		m := newSchedule(l)
		s := &sequence{meter: newMeter(t, LeakyBucket(), l), model: m}
		s.mayRefund = func(i int) bool { // a request that still waits, or has just arrived
			return m.history[i].at >= max(s.now, m.latest)
		}
		s.play(t, l)
	})
}

// Used requests count against a lowered limit, and after it is raised again.
func TestLeakyBucketChanged(t *testing.T) {
	t.Parallel()
	testChanged(t, LeakyBucket(), Limit{Unit: time.Second, Queue: 4}, []changed{
		{n: 10, cost: 3, allowed: true, remaining: 5}, // the next scheduled time is in 300 ms
		{n: 20, cost: 1, remaining: 0},                // 4 steps in 200 ms
		{n: 5, cost: 1, allowed: true, remaining: 3},  // in 500 ms
		{n: 10, cost: 1, remaining: 0},                // 4 steps in 400 ms
	})
}

// Delay moves the scheduled times of later requests.
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

// Without a queue a request proceeds at once or is refused.
func TestNoQueue(t *testing.T) {
	t.Parallel()
	m, err := LeakyBucket().New(Limit{N: 10, Unit: time.Second, Queue: -1})
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
