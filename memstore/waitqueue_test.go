// SPDX-License-Identifier: MIT

package memstore

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/diana-limiter/diana/limit"
)

// queue is a leaky bucket of one request each 100 ms, under fake time.
type queue struct {
	t     *testing.T
	store *Store
	c     any
	start time.Time

	mu   sync.Mutex
	left []string // "name@ms", in the order in which the requests proceeded
}

func newQueue(t *testing.T, places int64) *queue {
	s := New(Options{})
	c := open(t, s, limit.LeakyBucket(), limit.Limit{N: 10, Unit: time.Second, Queue: places})
	return &queue{t: t, store: s, c: c, start: time.Now()}
}

// arrive makes a request that waits, and returns a function by which it leaves early. It returns
// nil if the request is refused.
func (q *queue) arrive(name string) (leave func()) {
	q.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	charges := []limit.Charge{{Counters: q.c, Key: []byte("x"), Cost: 1}}
	ok, err := q.store.Take(ctx, q.store.Now(), charges)
	if err != nil {
		q.t.Fatal(err)
	}
	if !ok {
		cancel()
		return nil
	}
	go func() {
		if err := q.store.Wait(ctx, charges); err != nil {
			q.store.Refund(charges)
			return
		}
		q.mu.Lock()
		defer q.mu.Unlock()
		q.left = append(q.left, fmt.Sprintf("%s@%d", name, time.Since(q.start).Milliseconds()))
	}()
	synctest.Wait()
	return cancel
}

func (q *queue) expect(want ...string) {
	q.t.Helper()
	time.Sleep(time.Minute)
	q.mu.Lock()
	defer q.mu.Unlock()
	if !slices.Equal(q.left, want) {
		q.t.Errorf("proceeded: %v, want %v", q.left, want)
	}
	if n := len(q.store.records.queues.by); n != 0 {
		q.t.Errorf("%d wait queues are left", n)
	}
}

func TestQueueInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, 3)
		for _, name := range []string{"a", "b", "c", "d"} {
			if q.arrive(name) == nil {
				t.Fatalf("%s was refused", name)
			}
		}
		if q.arrive("e") != nil {
			t.Error("a fourth waiter was allowed, want 3")
		}
		time.Sleep(150 * time.Millisecond) // b has proceeded
		if q.arrive("f") == nil {
			t.Error("f was refused although the queue has room")
		}
		q.expect("a@0", "b@100", "c@200", "d@300", "f@400")
	})
}

func TestQueueLeavers(t *testing.T) {
	for _, tc := range []struct {
		name  string
		leave []string
		want  []string
	}{
		{"none", nil, []string{"a@0", "b@100", "c@200", "d@300", "late@400"}},
		{"first", []string{"b"}, []string{"a@0", "c@100", "d@200", "late@300"}},
		{"middle", []string{"c"}, []string{"a@0", "b@100", "d@200", "late@300"}},
		{"last", []string{"d"}, []string{"a@0", "b@100", "c@200", "late@300"}},
		{"two", []string{"b", "d"}, []string{"a@0", "c@100", "late@200"}},
		{"all", []string{"d", "b", "c"}, []string{"a@0", "late@100"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := newQueue(t, 10)
				leave := map[string]func(){}
				for _, name := range []string{"a", "b", "c", "d"} {
					leave[name] = q.arrive(name)
				}
				time.Sleep(50 * time.Millisecond)
				for _, name := range tc.leave {
					leave[name]()
					synctest.Wait()
				}
				q.arrive("late")
				q.expect(tc.want...)
			})
		})
	}
}

// A waiter that leaves makes room at once, not at its scheduled time.
func TestQueueMakesRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, 1)
		q.arrive("a")
		leave := q.arrive("b")
		if q.arrive("c") != nil {
			t.Fatal("two requests wait, want one")
		}
		leave()
		synctest.Wait()
		if q.arrive("d") == nil {
			t.Fatal("a waiter that left has made no room")
		}
		q.expect("a@0", "d@100")
	})
}

// A refund of a request that did not wait moves the whole wait queue up.
func TestQueueRefundInFront(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, 10)
		front := []limit.Charge{{Counters: q.c, Key: []byte("x"), Cost: 1}}
		if ok, err := q.store.Take(context.Background(), q.store.Now(), front); !ok || err != nil {
			t.Fatal(ok, err)
		}
		q.arrive("b")
		q.arrive("c")
		q.store.Refund(front)
		synctest.Wait()
		q.arrive("d")
		q.expect("b@0", "c@100", "d@200")
	})
}

// A request that proceeds late delays those behind it, so that they keep their distance.
func TestQueueLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, 10)
		q.arrive("a")
		charges := []limit.Charge{{Counters: q.c, Key: []byte("x"), Cost: 1}}
		if ok, err := q.store.Take(context.Background(), q.store.Now(), charges); !ok || err != nil {
			t.Fatal(ok, err)
		}
		q.arrive("c")
		time.Sleep(250 * time.Millisecond) // its scheduled time was 100
		q.arrive("d")
		if err := q.store.Wait(context.Background(), charges); err != nil {
			t.Fatal(err)
		}
		q.expect("a@0", "c@350", "d@450")
	})
}

// Requests of many goroutines proceed at least a step apart. None is lost, and those that
// give up make room.
func TestQueueCrowd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Options{})
		c := open(t, s, limit.LeakyBucket(), limit.Limit{N: 1000, Unit: time.Second})
		var mu sync.Mutex
		var left []int64
		var wg sync.WaitGroup
		allowed := 0
		for i := range 200 {
			wg.Go(func() {
				ctx := context.Background()
				if i%3 == 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, time.Duration(i/2)*time.Millisecond)
					defer cancel()
				}
				charges := []limit.Charge{{Counters: c, Key: []byte("x"), Cost: 1}}
				ok, err := s.Take(ctx, s.Now(), charges)
				if !ok || err != nil {
					t.Error("refused", err)
				}
				err = s.Wait(ctx, charges)
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					s.Refund(charges)
					return
				}
				allowed++
				left = append(left, s.Now())
			})
		}
		wg.Wait()
		slices.Sort(left)
		for i := 1; i < len(left); i++ {
			if d := left[i] - left[i-1]; d < 1000 {
				t.Errorf("two proceeded %d µs apart, want at least 1000", d)
			}
		}
		if allowed < 133 || allowed == 200 {
			t.Errorf("%d of 200 proceeded", allowed)
		}
		// No scheduled time passed unused: there is no gap between the first and the last.
		if span := left[len(left)-1] - left[0]; span > int64(len(left)-1)*1000 {
			t.Errorf("%d requests took %d µs", len(left), span)
		}
	})
}

// A refund has no effect when another request has proceeded since, because the next request keeps its
// distance from that one.
func TestRefundTooLate(t *testing.T) {
	t.Parallel()
	s := New(Options{})
	c := open(t, s, limit.LeakyBucket(), limit.Limit{N: 10, Unit: time.Second})
	now := s.Now()
	take := func(after time.Duration, wait time.Duration) []limit.Charge {
		t.Helper()
		ch := []limit.Charge{{Counters: c, Key: []byte("x"), Cost: 1}}
		ok, err := s.Take(context.Background(), now+after.Microseconds(), ch)
		if o := ch[0].Outcome; !ok || err != nil || o.Wait != wait.Microseconds() {
			t.Errorf("after %v: %v, %v, %+v, want a wait of %v", after, ok, err, o, wait)
		}
		return ch
	}
	first := take(0, 0)
	second := take(150*time.Millisecond, 0)
	s.Refund(first) // another store has refused the request
	third := take(150*time.Millisecond, 100*time.Millisecond)
	s.Refund(third)
	s.Refund(second)
	take(150*time.Millisecond, 0)
}
