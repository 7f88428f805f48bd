// SPDX-License-Identifier: MIT

package redisstore

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/diana-limiter/diana/internal/redistest"
	"github.com/diana-limiter/diana/limit"
)

// A refused actor costs Redis nothing while the refusal is certain.
func TestRefusalsAreRemembered(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t)
	s := open(t, r)
	now := int64(1_000_000)
	for _, a := range []limit.Algorithm{limit.TokenBucket(), limit.FixedWindow(), limit.SlidingWindow(), limit.SlidingLog()} {
		c := s.at(t, a, limit.Limit{N: 2, Unit: 24 * time.Hour, AlignFirst: a.Uses("align")})
		other := s.at(t, limit.TokenBucket(), limit.Limit{N: 1000, Unit: time.Hour})
		take := func(key string) (bool, []limit.Charge) {
			ch := []limit.Charge{{Counters: other, Key: []byte("all"), Cost: 1}, {Counters: c, Key: []byte(key), Cost: 1}}
			ok, err := s.Take(context.Background(), now, ch)
			if err != nil {
				t.Fatal(err)
			}
			return ok, ch
		}
		_, made := take("x")
		take("x")
		if ok, _ := take("x"); ok {
			t.Fatalf("%s: three of two", a.Name())
		}
		c100 := costOf(r, nil, func() {
			for range 100 {
				now += 10_000
				ok, ch := take("x")
				if ok || ch[0].Outcome.Remaining != limit.Unknown {
					t.Fatalf("%s: %v, %+v", a.Name(), ok, ch)
				}
				if o := ch[1].Outcome; o.Allowed || o.Wait < time.Hour.Microseconds() || o.Wait > (27*time.Hour).Microseconds() {
					t.Fatalf("%s: %+v", a.Name(), o)
				}
			}
		})
		if c100.calls != 0 {
			t.Errorf("%s: 100 refusals took %d calls", a.Name(), c100.calls)
		}
		if ok, _ := take("y"); !ok {
			t.Errorf("%s: someone else was refused", a.Name())
		}
		s.Refund(made) // by this gateway, which therefore knows it
		if ok, _ := take("x"); !ok {
			t.Errorf("%s: refused after one was refunded", a.Name())
		}
		if ok, _ := take("x"); ok {
			t.Errorf("%s: three of two, later", a.Name())
		}
		for _, name := range r.Must("KEYS", "*").([]any) { // by an operator
			if name != s.keys.receipts(s.batchers[0].tag) {
				r.Must("DEL", fmt.Sprint(name))
			}
		}
		if ok, _ := take("x"); ok {
			t.Errorf("%s: not remembered", a.Name())
		}
		now += longestRefusal
		if ok, _ := take("x"); !ok {
			t.Errorf("%s: remembered for longer than is certain", a.Name())
		}
	}
}

// A request that two limits refuse gets the wait of both, also without a call to Redis.
func TestRefusedTwice(t *testing.T) {
	t.Parallel()
	s := open(t, redistest.Start(t))
	minute := s.at(t, limit.TokenBucket(), limit.Limit{N: 1, Unit: time.Minute})
	day := s.at(t, limit.TokenBucket(), limit.Limit{N: 1, Unit: 24 * time.Hour})
	for i := range 3 {
		ch := []limit.Charge{{Counters: minute, Cost: 1}, {Counters: day, Cost: 1}}
		ok, err := s.Take(context.Background(), 1, ch)
		if err != nil || ok != (i == 0) {
			t.Fatal(i, ok, err)
		}
		if i == 0 {
			continue
		}
		if m, d := ch[0].Outcome, ch[1].Outcome; m.Allowed || d.Allowed || d.Wait < 23*time.Hour.Microseconds() {
			t.Errorf("refusal %d: %+v and %+v", i, m, d)
		}
	}
}

// A refusal that Redis decided before a refund is not remembered after it.
func TestRefundedMeanwhile(t *testing.T) {
	t.Parallel()
	s := open(t, redistest.Start(t))
	c := s.at(t, limit.TokenBucket(), limit.Limit{N: 1, Unit: time.Hour})
	ask := func() (entry, []limit.Charge) {
		ch := []limit.Charge{{Counters: c, Cost: 1}}
		p, err := s.batchers.batcher(&ch[0]).submit(1, ch, true, takes)
		if err != nil {
			t.Fatal(err)
		}
		return p, ch
	}
	first, ch := ask()
	second, late := ask()
	if ok, err := s.conclude(first, 1, ch); !ok || err != nil {
		t.Fatal(ok, err)
	}
	s.Refund(ch)
	if ok, err := s.conclude(second, 1, late); ok || err != nil {
		t.Fatal(ok, err)
	}
	if ok, err := s.Take(context.Background(), 1, ch); !ok || err != nil {
		t.Errorf("%v, %v, want it admitted", ok, err)
	}
}

// handle returns a handle of the same counters, for n an hour.
func handle(t *testing.T, s *Store, n int64) any {
	t.Helper()
	m, err := limit.SlidingLog().New(limit.Limit{N: n, Unit: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	c, err := s.Counters("x", m)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// A refund of a charge under one limit clears the refusal of another limit of the same counters: that of an
// override, or of the configuration before a reload.
func TestRefundUnderAnotherLimit(t *testing.T) {
	t.Parallel()
	s := open(t, redistest.Start(t))
	take := func(c any) (bool, []limit.Charge) {
		t.Helper()
		ch := []limit.Charge{{Counters: c, Key: []byte("x"), Cost: 1}}
		ok, err := s.Take(context.Background(), 1, ch)
		if err != nil {
			t.Fatal(err)
		}
		return ok, ch
	}
	one, two := handle(t, s, 1), handle(t, s, 2)
	_, made := take(two)
	if ok, _ := take(one); ok {
		t.Fatal("a second was allowed where there is one")
	}
	s.Refund(made)
	if ok, _ := take(one); !ok {
		t.Error("refused when all had been refunded")
	}
}

// A limit that a reload has changed is asked again.
func TestRefusalsOfAnotherLimit(t *testing.T) {
	t.Parallel()
	s := open(t, redistest.Start(t))
	take := func(c any) bool {
		ok, err := s.Take(context.Background(), 1, []limit.Charge{{Counters: c, Key: []byte("x"), Cost: 1}})
		if err != nil {
			t.Fatal(err)
		}
		return ok
	}
	one := handle(t, s, 1)
	if !take(one) || take(one) || take(one) {
		t.Error("a limit of 1 is not kept")
	}
	if two := handle(t, s, 2); !take(two) || take(two) {
		t.Error("a limit of 2 is not kept after one of 1")
	}
}
