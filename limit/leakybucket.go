// SPDX-License-Identifier: MIT

package limit

import (
	"time"
)

// LeakyBucket smooths: admitted requests leave at least Unit/N apart. A request
// that comes too early waits for its turn; when Queue are waiting, the next is
// refused at once.
//
// The bucket is a queue with a hole of fixed width. Its state is one moment, next,
// at which whoever comes now would leave. A request leaves at
//
//	turn = max(now, next)         and moves        next = turn + n steps
//
// and it is refused if turn - now is more than Queue steps: then Queue are already
// waiting. This is the token bucket's moment read as a wait instead of a refusal.
//
// Example: 10 a second (a step of 100 ms), queue 2; five requests at t = 0:
//
//	arrive  A B C D E at 0
//	leave   A         B         C            D and E find 2 waiting: refused
//	        |---------|---------|--> s
//	        0        0.1       0.2
//
// The step is rounded up to a whole microsecond, so that neighbours never come
// closer than Unit/N. A wait never exceeds ten seconds, whatever the queue: a
// client that is kept longer has given up.
//
// A cost of n takes n turns, beginning with the first that is free.
//
// The Meter only reserves turns. The store holds the waiting, in order, and gives
// the turn of one that leaves early to those behind it (Refund moves next back). Refund
// is for turns that have not come yet: later, those behind may have gone on.
//
// State: one word, the moment next. Expiry: that moment. Cost: one addition.
// Source: source 001 asks for waiting in the calling thread, by calculation.
func LeakyBucket() Algorithm {
	return Algorithm{
		Names: []string{"LB", "leaky bucket"},
		Keys:  []string{"unit", "queue"},
		New:   newLeakyBucket,
	}
}

// MaxQueueWait is the longest that a leaky bucket makes a request wait.
const MaxQueueWait = 10 * time.Second

type leakyBucket struct {
	step    int64
	longest int64 // the longest wait
	most    int64 // the largest cost: what leaks in a hundred years
}

func newLeakyBucket(l Limit) (Meter, error) {
	if err := l.check(); err != nil {
		return nil, err
	}
	unit := l.Unit.Microseconds()
	if l.N == 0 {
		return closed(unit), nil
	}
	queue := l.Queue
	switch queue {
	case 0:
		queue = l.N
	case NoQueue:
		queue = 0
	}
	b := &leakyBucket{step: ceilDiv(unit, l.N)}
	b.most = maxFill / b.step
	b.longest = min(queue, MaxQueueWait.Microseconds()/b.step) * b.step
	return b, nil
}

func (b *leakyBucket) StateVersion() string   { return "1" }
func (b *leakyBucket) Cells(State, int64) int { return 0 }

func (b *leakyBucket) Peek(s State, now, n int64) Outcome {
	turn := max(now, int64(s.Head))
	wait := turn - now
	out := Outcome{Allowed: wait <= b.longest && n <= b.most, Wait: wait, Reset: b.step}
	if wait <= b.longest {
		out.Remaining = (b.longest-wait)/b.step + 1
	} else if n <= b.most {
		out.Wait -= b.longest
	}
	return out
}

func (b *leakyBucket) Take(s State, now, n int64) uint64 {
	return uint64(max(now, int64(s.Head)) + n*b.step)
}

// Debit implements Debtor: it reserves n turns that nobody waits for.
func (b *leakyBucket) Debit(s State, now, n int64) uint64 {
	next := max(now, int64(s.Head)) + min(n, b.most)*b.step
	return uint64(min(next, now+maxFill))
}

func (b *leakyBucket) Refund(s State, _, n int64) uint64 {
	return uint64(max(int64(s.Head)-n*b.step, 0))
}

func (b *leakyBucket) Delay(s State, d int64) uint64 { return s.Head + uint64(d) }

func (b *leakyBucket) Expiry(s State) int64 { return int64(s.Head) }
