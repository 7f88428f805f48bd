// SPDX-License-Identifier: MIT

package limit

import "fmt"

// TokenBucket allows bursts of up to Burst, and N per Unit in the long run.
//
// A bucket holds up to Burst tokens and starts full. It gains a token every Unit/N. A
// request takes a token, and is refused if there is no whole one. The state is only one
// moment, full, at which the bucket will be full again. Each token that is taken moves it
// one step (Unit/N) further away. Before that moment the bucket lacks (full - now) / step
// tokens, so a request of cost n conforms if
//
//	full + n steps  <=  now + Burst steps
//
// Example: 2 a second, burst 3, so one step is 0.5 s.
//
//	tokens
//	3 o--.           .--o            full = the moment when the bucket is full again
//	2    |    .--.   |               t=0.0  3 taken  full = 1.5
//	1    | .--'  '---'               t=0.5  1 token  full = 1.5 (a whole one: taken, full = 2.0)
//	0    '-'                         t=0.7  refused: 2.0 + 0.5 > 0.7 + 1.5, wait 0.3
//	    0   0.5  1.0  1.5  2.0 s
//
// In any interval of length t at most Burst + N*t/Unit requests are allowed. No request is
// refused that finds a whole token. Both are exact, because the step is kept as a fraction.
//
// State: one word, the moment full. Expiry: that moment, because a full bucket is the same
// as a new one. When a limit changes under a state, the moment stays: a bucket that would
// be full in a second still will be.
//
// Refund moves the moment back. It puts tokens into the bucket whenever they were taken,
// and drops those that do not fit. One moment does not show whether other tokens have
// dripped in since. So from an actor's first request on, at most Burst + N*t/Unit charges
// are not refunded. But charges that are refunded late and all at once can allow another
// burst. A caller should refund soon.
//
// Rejected: to count the tokens that may be refunded, and let no others drip in for them.
// The meter would also have to know which charges stay, and in Redis leases would have to
// hold them.
//
// With a Warmup the bucket also grows cold while it is not used, and a request to a cold bucket
// costs up to three steps.
//
// Cost: one addition and two comparisons. Source: GCRA, ITU-T I.371.
func TokenBucket() Algorithm {
	return Algorithm{
		Names: []string{"TB", "token bucket"},
		Keys:  []string{"unit", "burst", "warmup", "charge", "wait"},
		New:   newTokenBucket,
	}
}

type tokenBucket struct {
	pace
	capacity int64
	fill     point // capacity steps: how long an empty bucket takes to fill
	last     point // capacity-1 steps: how long a bucket with one token takes to fill
	drip     int64 // one step, in microseconds, rounded up
}

func newTokenBucket(l Limit) (Meter, error) {
	if err := l.Check(); err != nil {
		return nil, err
	}
	if l.N == 0 {
		return closed(l.Unit.Microseconds()), nil
	}
	b := &tokenBucket{pace: newPace(l.N, l.Unit), capacity: l.Burst}
	if b.capacity == 0 {
		b.capacity = l.N
	}
	fill, err := b.span(b.capacity)
	if err != nil {
		return nil, fmt.Errorf("limit: a burst of %d at %d per %v: %w", b.capacity, l.N, l.Unit, err)
	}
	if l.Warmup > 0 {
		return &warmBucket{newWarmth(b.pace, l.Warmup), b.capacity, fill}, nil
	}
	b.fill, b.last, b.drip = fill, b.sub(fill, 1), b.add(point{}, 1).until(0)
	return b, nil
}

func (b *tokenBucket) StateVersion() string   { return b.stateVersion() }
func (b *tokenBucket) Cells(State, int64) int { return b.cells() }

// full returns the moment at which the bucket is full, not before now.
func (b *tokenBucket) full(s State, now int64) point {
	lack := b.lack(s, now)
	return point{now + lack.at, lack.frac}
}

// lack returns how long it is until the bucket is full.
func (b *tokenBucket) lack(s State, now int64) point {
	lack := b.load(s)
	if lack.at -= now; lack.at < 0 {
		return point{}
	}
	return lack
}

func (b *tokenBucket) Peek(s State, now, n int64) Outcome {
	lack := b.lack(s, now)
	if n > b.capacity {
		left := b.remaining(lack)
		return Outcome{Wait: lack.until(0), Remaining: left, Reset: b.reset(left, lack)}
	}
	most := b.last // the most that a bucket with n tokens can lack
	if n != 1 {
		most = b.sub(b.fill, n)
	}
	out := Outcome{Allowed: true}
	if lack.after(most) {
		out = Outcome{Wait: lack.less(most).at}
	}
	if out.Allowed || n != 1 {
		out.Remaining = b.remaining(lack)
	}
	out.Reset = b.reset(out.Remaining, lack)
	return out
}

// remaining returns the whole tokens in the bucket.
func (b *tokenBucket) remaining(lack point) int64 {
	if lack.after(b.fill) { // the burst was larger when the state was made
		return 0
	}
	return b.steps(lack, b.fill)
}

// reset returns the span in which no more than r tokens become available: the time that r
// tokens take to drip in. So r/reset never promises more than the rate. In debt, it is the time until the
// first token.
func (b *tokenBucket) reset(r int64, lack point) int64 {
	if r == 0 {
		return max(b.drip, lack.less(b.last).at)
	}
	if r == 1 || b.den == 1 {
		return b.drip * r
	}
	return b.add(point{}, r).until(0)
}

func (b *tokenBucket) Take(s State, now, n int64) uint64 {
	return b.store(s, b.add(b.full(s, now), n))
}

// Decide implements Word. The usual request costs 1, and the usual step is whole microseconds. A
// request without a cost takes nothing.
func (b *tokenBucket) Decide(head uint64, now, n int64) (uint64, Outcome) {
	if n != 1 || b.den > 1 {
		return decide(b, head, now, n)
	}
	lack := max(b.loadWord(head).at-now, 0)
	if lack > b.last.at {
		wait := lack - b.last.at
		return head, Outcome{Wait: wait, Reset: max(b.drip, wait)}
	}
	left := b.wholeSteps(b.fill.at - lack)
	next := point{now + lack + b.whole, 0}
	return word(next), Outcome{Allowed: true, Remaining: left - 1, Reset: left * b.drip}
}

// Debit implements Debtor. Debt that takes longer than maxFill to drip in is cut off.
func (b *tokenBucket) Debit(s State, now, n int64) (head uint64, cut int64) {
	full, cut := b.debit(b.full(s, now), now, n)
	return b.store(s, full), cut
}

// Used implements Debtor.
func (b *tokenBucket) Used(s State, now int64) int64 { return b.ceilSteps(b.lack(s, now)) }

func (b *tokenBucket) Refund(s State, _, n int64) uint64 {
	return b.store(s, b.sub(b.load(s), n))
}

func (b *tokenBucket) Expiry(s State) int64 { return b.load(s).until(0) }
