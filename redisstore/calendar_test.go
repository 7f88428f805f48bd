// SPDX-License-Identifier: MIT

package redisstore

import (
	"context"
	"testing"
	"time"
	_ "time/tzdata" // the tests need zones on every machine

	"github.com/diana-limiter/diana/internal/redistest"
	"github.com/diana-limiter/diana/limit"
)

// The counter of a total stays in Redis without a time to live, until it is reset. That of a month ends
// with its month.
func TestTotalStaysInRedis(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t)
	s := open(t, r)
	month := limit.Limit{N: 5, Calendar: "month", Zone: "Asia/Shanghai"}
	for _, tc := range []struct {
		limit limit.Limit
		left  int64 // milliseconds, -1: none
	}{
		{limit.Limit{N: 5, Calendar: "total"}, -1},
		{month, leftOf(month)},
	} {
		c := s.at(t, limit.FixedWindow(), tc.limit)
		ch := []limit.Charge{{Counters: c, Key: []byte("ann"), Cost: 2}}
		if ok, err := s.Take(t.Context(), 0, ch); err != nil || !ok {
			t.Fatal(ok, err)
		}
		name := s.keys.counter(s.batchers.batcher(&ch[0]).tag, hashOf(&ch[0]))
		if ttl := r.Must("PTTL", name).(int64); tc.left < 0 && ttl != -1 || tc.left > 0 && (ttl < 1 || ttl > tc.left+1000) {
			t.Errorf("%+v: the key lives for %d ms, want about %d", tc.limit, ttl, tc.left)
		}
		if err := s.Reset(t.Context(), c, []byte("ann")); err != nil {
			t.Fatal(err)
		}
		if n := r.Must("EXISTS", name).(int64); n != 0 {
			t.Errorf("%+v: the key is still there after a reset", tc.limit)
		}
	}
}

// leftOf returns how long the present window of a limit still lasts, in milliseconds.
func leftOf(l limit.Limit) int64 {
	now := time.Now()
	_, end := l.Window(now)
	return end.Sub(now).Milliseconds()
}

// A gateway whose clock is so wrong that Redis does not learn when the window began never allows more
// than the limit. Its next call is right, because it has learned Redis' clock.
func TestClocksApartByYears(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	s := open(t, redistest.Start(t))
	longest := (25 * time.Hour).Microseconds()
	for _, apart := range []time.Duration{-4000 * day, -100 * day, 100 * day, 4000 * day} {
		wrong := func() { s.ahead.Store(apart.Microseconds()) }
		c := s.at(t, limit.FixedWindow(), limit.Limit{N: 3, Unit: day, Zone: "Europe/Berlin"})
		key := []byte(apart.String())
		take := func() limit.Charge {
			t.Helper()
			ch := []limit.Charge{{Counters: c, Key: key, Cost: 1}}
			if _, err := s.Take(context.Background(), 0, ch); err != nil {
				t.Fatal(err)
			}
			return ch[0]
		}
		wrong()
		first := take()
		if o := first.Outcome; !o.Allowed || o.Remaining != 2 || o.Reset != time.Second.Microseconds() {
			t.Errorf("%v apart: the first request: %+v", apart, o)
		}
		if ahead := time.Duration(s.ahead.Load()) * time.Microsecond; ahead.Abs() > time.Minute {
			t.Errorf("%v apart: after a call Redis' clock is still %v ahead", apart, ahead)
		}
		if o := take().Outcome; !o.Allowed || o.Remaining != 1 || o.Reset > longest {
			t.Errorf("%v apart: the second request: %+v", apart, o)
		}
		wrong()
		if o := take().Outcome; !o.Allowed || o.Remaining != 0 {
			t.Errorf("%v apart: the third request: %+v", apart, o)
		}
		wrong()
		if o := take().Outcome; o.Allowed || o.Wait != time.Second.Microseconds() {
			t.Errorf("%v apart: a request over the limit: %+v", apart, o)
		}
		wrong()
		s.Refund([]limit.Charge{first})
		s.calls.wait(nil)
		if o := take().Outcome; !o.Allowed || o.Remaining != 0 {
			t.Errorf("%v apart: after a refund: %+v", apart, o)
		}
	}
}
