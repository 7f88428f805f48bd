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

// bucket is a leaky bucket in Redis, and when its requests proceed.
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

// charge returns a charge that Redis allows now, scheduled that many steps after the start.
func (b *bucket) charge(steps int) []limit.Charge {
	at := time.Since(b.start)
	wait := max(time.Duration(steps)*step-at, 0)
	return []limit.Charge{{
		Counters: b.c, Key: []byte("x"), Cost: 1, At: at.Microseconds(),
		Outcome: limit.Outcome{Allowed: true, Wait: wait.Microseconds(), Reset: step.Microseconds()},
	}}
}

// wait lets a request wait for its scheduled time.
func (b *bucket) wait(ctx context.Context, name string, charges []limit.Charge) {
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

// Requests proceed at their scheduled times.
func TestScheduleInTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBucket(t)
		for i, name := range []string{"a", "b", "c"} {
			ch := b.charge(i)
			b.store.schedule.join(ch)
			b.wait(t.Context(), name, ch)
		}
		b.want("a 0s", "b 20ms", "c 40ms")
	})
}

// When a gateway is late, its requests still proceed one by one, in their order.
func TestScheduleOfALateGateway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBucket(t)
		var all [][]limit.Charge
		for i := range 5 {
			ch := b.charge(i + 1)
			b.store.schedule.join(ch)
			all = append(all, ch)
		}
		time.Sleep(70 * time.Millisecond) // as if no goroutine got processor time
		for i := len(all) - 1; i >= 0; i-- {
			b.wait(t.Context(), fmt.Sprint(i), all[i])
		}
		late := b.charge(6)
		b.store.schedule.join(late)
		b.wait(t.Context(), "5", late)
		b.want("0 70ms", "1 89ms", "2 108ms", "3 127ms", "4 146ms", "5 165ms")
	})
}

// A request that leaves delays no other, and a request without a wait keeps its distance too.
func TestScheduleOfLeavers(t *testing.T) {
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
		b.wait(ctx, "first", first)
		b.wait(t.Context(), "second", second)
		b.wait(t.Context(), "third", third)
		time.Sleep(5 * time.Millisecond)
		leave()
		synctest.Wait()
		b.store.schedule.leave(first)
		time.Sleep(50 * time.Millisecond)
		none := b.charge(0) // scheduled at once
		b.store.schedule.join(none)
		if none[0].Outcome.Wait == 0 {
			t.Error("a request beside a waiting one has no wait")
		}
		b.wait(t.Context(), "fourth", none)
		b.want("first left 5ms", "second 40ms", "fourth 60ms", "third 79ms")
	})
}

// The store looks through the queues of many actors only when their number has doubled.
func TestScheduleOfMany(t *testing.T) {
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

// Queues that delay no request are removed.
func TestScheduleForget(t *testing.T) {
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

// A timer that wakes a little late delays one request, and not those behind it.
func TestScheduleAfterLateTimers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBucket(t)
		var all [][]limit.Charge
		for i := range 20 {
			ch := b.charge(i + 1)
			b.store.schedule.join(ch)
			all = append(all, ch)
		}
		time.Sleep(time.Until(b.start.Add(step + 500*time.Microsecond))) // a timer woke the first 0.5 ms late
		var want []string
		for i, ch := range all {
			b.wait(t.Context(), fmt.Sprint(i), ch)
			want = append(want, fmt.Sprint(i, " ", time.Duration(i+1)*step))
		}
		want[0] = "0 20.5ms"
		b.want(want...)
	})
}
