// SPDX-License-Identifier: MIT

package redisstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unique"

	"github.com/diana-limiter/diana/limit"
)

const step = 20 * time.Millisecond

// bucket is what a leaky bucket in Redis says to its requests, and when they proceed.
type bucket struct {
	t     *testing.T
	store *Store
	start time.Time
	c     *counters

	mu        sync.Mutex
	proceeded []string
	wg        sync.WaitGroup
}

func newBucket(t *testing.T) *bucket {
	return &bucket{t: t, store: &Store{}, start: time.Now(), c: &counters{name: unique.Make("lb"), queue: true}}
}

// charge returns a charge that Redis has allowed now, at a turn that so many steps after the
// beginning has.
func (b *bucket) charge(turn int) []limit.Charge {
	at := time.Since(b.start)
	wait := max(time.Duration(turn)*step-at, 0)
	return []limit.Charge{{
		Counters: b.c, Key: []byte("x"), Cost: 1, At: at.Microseconds(),
		Outcome: limit.Outcome{Allowed: true, Wait: wait.Microseconds(), Reset: step.Microseconds()},
	}}
}

// come has a request wait whose turn Redis has told.
func (b *bucket) come(ctx context.Context, name string, charges []limit.Charge) {
	b.wg.Go(func() {
		err := b.store.Wait(ctx, charges)
		if err != nil && !errors.Is(err, ctx.Err()) {
			b.t.Error(err)
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		if err != nil {
			name += " left"
		}
		b.proceeded = append(b.proceeded, fmt.Sprint(name, " ", time.Since(b.start)))
	})
	synctest.Wait()
}

func (b *bucket) want(want ...string) {
	b.t.Helper()
	b.wg.Wait()
	if !slices.Equal(b.proceeded, want) {
		b.t.Errorf("got  %s\nwant %s", strings.Join(b.proceeded, ", "), strings.Join(want, ", "))
	}
}

// Requests proceed when Redis has told them to.
func TestTurnsInTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBucket(t)
		for i, name := range []string{"a", "b", "c"} {
			ch := b.charge(i)
			b.store.schedule.join(ch)
			b.come(t.Context(), name, ch)
		}
		b.want("a 0s", "b 20ms", "c 40ms")
	})
}

// A gateway that is late lets its requests proceed one by one all the same, in their order.
func TestTurnsOfALateGateway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBucket(t)
		var all [][]limit.Charge
		for i := range 5 {
			ch := b.charge(i + 1)
			b.store.schedule.join(ch)
			all = append(all, ch)
		}
		time.Sleep(70 * time.Millisecond) // in which no goroutine gets any processor time
		for i := len(all) - 1; i >= 0; i-- {
			b.come(t.Context(), fmt.Sprint(i), all[i])
		}
		late := b.charge(6)
		b.store.schedule.join(late)
		b.come(t.Context(), "5", late)
		b.want("0 70ms", "1 90ms", "2 110ms", "3 130ms", "4 150ms", "5 170ms")
	})
}

// A request that leaves holds up nobody, and one without a wait keeps its distance as well.
func TestTurnsOfLeavers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBucket(t)
		first := b.charge(1)
		b.store.schedule.join(first)
		second := b.charge(2)
		b.store.schedule.join(second)
		third := b.charge(3)
		b.store.schedule.join(third)
		ctx, leave := context.WithCancel(t.Context())
		b.come(ctx, "first", first)
		b.come(t.Context(), "second", second)
		b.come(t.Context(), "third", third)
		time.Sleep(5 * time.Millisecond)
		leave()
		synctest.Wait()
		b.store.schedule.leave(first)
		time.Sleep(50 * time.Millisecond)
		none := b.charge(0) // Redis sees no reason to wait
		b.store.schedule.join(none)
		if none[0].Outcome.Wait == 0 {
			t.Error("a request beside a waiting one has no wait")
		}
		b.come(t.Context(), "fourth", none)
		b.want("first left 5ms", "second 40ms", "fourth 60ms", "third 80ms")
	})
}

// TestTurnsOfMany lets many actors' queues say something. The store looks through all of them only
// when their number has doubled.
func TestTurnsOfMany(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBucket(t)
		looked := 0
		for i := range 20 * mostQueues {
			before := b.store.schedule.sweep
			ch := b.charge(0)
			ch[0].Key = fmt.Append(nil, i)
			b.store.schedule.join(ch)
			if b.store.schedule.sweep != before {
				looked += i
			}
		}
		if n := len(b.store.schedule.by); n != 20*mostQueues || looked > 2*n {
			t.Errorf("%d queues, and %d looked through on the way, want at most twice as many", n, looked)
		}
	})
}

// Queues that say nothing any more are removed.
func TestTurnsForget(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBucket(t)
		for i := range 3 * mostQueues {
			ch := b.charge(0)
			ch[0].Key = fmt.Append(nil, i)
			b.store.schedule.join(ch)
			if ch[0].Ticket != nil {
				t.Fatalf("actor %d waits", i)
			}
			time.Sleep(step)
		}
		if n := len(b.store.schedule.by); n > mostQueues+1 {
			t.Errorf("%d queues, want %d at most", n, mostQueues)
		}
	})
}
