// SPDX-License-Identifier: MIT

package limit

import "github.com/diana-limiter/diana/internal/bounds"

// LeakyBucket smooths: allowed requests proceed at least Unit/N apart. A request that
// arrives too early waits for its scheduled time. When Queue requests are waiting, the next
// one is refused at once.
//
// The bucket is a queue with a hole of fixed width. Its state is one moment, next, at which
// a request that arrives now would proceed. A request proceeds at
//
//	scheduled = max(now, next)       and moves        next = scheduled + n steps
//
// It is refused if scheduled - now is more than Queue steps, because then Queue requests
// are already waiting. A token bucket has the same moment, but refuses where this waits.
//
// Example: 10 a second (a step of 100 ms), queue 2; five requests at t = 0:
//
//	arrive   A B C D E at 0
//	proceed  A         B         C            D and E find 2 waiting: refused
//	         |---------|---------|--> s
//	         0        0.1       0.2
//
// The step is rounded up to a whole microsecond, so that requests are never closer than
// Unit/N. A wait never exceeds ten seconds, whatever the Queue, because a client that waits
// longer has given up.
//
// A request of cost n takes n steps, from the first free moment.
//
// The Meter only computes scheduled times. The store holds the waiting requests, in order.
// When one leaves early, the store gives its scheduled time to those behind it, and Refund
// moves next back. Refund is only for scheduled times in the future; after that, the
// requests behind may have proceeded.
//
// State: one word, the moment next. Expiry: that moment. Cost: one addition.
// Source: the leaky bucket as a queue, such as nginx limit_req.
func LeakyBucket() Algorithm {
	return Algorithm{
		Names: []string{"LB", "leaky bucket"},
		Keys:  []string{"unit", "queue"},
		New:   newLeakyBucket,
	}
}

type leakyBucket struct {
	step    int64
	longest int64 // the longest wait
	most    int64 // the largest cost: what leaks in a hundred years
}

func newLeakyBucket(l Limit) (Meter, error) {
	if err := l.Check(); err != nil {
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
	case noQueue:
		queue = 0
	}
	b := &leakyBucket{step: ceilDiv(unit, l.N)}
	b.most = maxFill / b.step
	b.longest = min(queue, bounds.MaxQueueWait.Microseconds()/b.step) * b.step
	return b, nil
}

func (b *leakyBucket) StateVersion() string   { return "1" }
func (b *leakyBucket) Cells(State, int64) int { return 0 }

func (b *leakyBucket) Peek(s State, now, n int64) Outcome {
	scheduled := max(now, int64(s.Head))
	wait := scheduled - now
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

// Debit implements Debtor. It takes scheduled times at which no request waits.
func (b *leakyBucket) Debit(s State, now, n int64) (head uint64, cut int64) {
	next := max(now, int64(s.Head)) + min(n, b.most)*b.step
	last := min(next, now+maxFill)
	return uint64(last), n - min(n, b.most) + ceilDiv(next-last, b.step)
}

// Used implements Debtor.
func (b *leakyBucket) Used(s State, now int64) int64 {
	return ceilDiv(max(int64(s.Head)-now, 0), b.step)
}

func (b *leakyBucket) Refund(s State, _, n int64) uint64 {
	return uint64(max(int64(s.Head)-n*b.step, 0))
}

func (b *leakyBucket) Delay(s State, d int64) uint64 { return s.Head + uint64(d) }

func (b *leakyBucket) Expiry(s State) int64 { return int64(s.Head) }
