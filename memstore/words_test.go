// SPDX-License-Identifier: MIT

package memstore

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/diana-limiter/diana/limit"
)

// slowStore decides charges to states of one word, one request after another.
type slowStore struct {
	meters []limit.Meter
	heads  map[string]uint64
}

// take decides charges under the rules with these indexes, as limit.Store describes it.
func (s *slowStore) take(now int64, rules []int, charges []limit.Charge) (allowed bool) {
	allowed = true
	for i := range charges {
		ch := &charges[i]
		ch.Outcome = s.meters[rules[i]].Peek(s.state(rules[i], ch.Key), now, ch.Cost)
		allowed = allowed && (ch.Outcome.Allowed || ch.Shadow)
	}
	for i := range charges {
		ch, m := &charges[i], s.meters[rules[i]]
		if !allowed || !ch.Outcome.Allowed && !ch.Debit {
			continue
		}
		state := s.state(rules[i], ch.Key)
		ch.At = now
		if c, ok := m.(limit.Clamped); ok {
			ch.At = c.Moment(state, now)
		}
		change := m.Take
		if ch.Outcome.Allowed {
			ch.Outcome.Remaining = max(ch.Outcome.Remaining-ch.Cost, 0)
		} else {
			change = func(s limit.State, now, n int64) (head uint64) {
				head, _ = limit.Debit(m, s, now, n)
				return head
			}
		}
		s.heads[fmt.Sprint(rules[i], string(ch.Key))] = change(state, now, ch.Cost)
	}
	return allowed
}

func (s *slowStore) state(rule int, key []byte) limit.State {
	return limit.State{Head: s.heads[fmt.Sprint(rule, string(key))]}
}

// A Store decides any number of charges to states of one word as the slow store does.
func TestTakeAsSlowStore(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		fast, slow := New(Options{}), slowStore{heads: map[string]uint64{}}
		var handles []any
		for i := range 6 {
			a := []limit.Algorithm{limit.TokenBucket(), limit.FixedWindow(), limit.Concurrency()}[rapid.IntRange(0, 2).Draw(t, "algorithm")]
			l := limit.Limit{
				N:    rapid.OneOf(rapid.Int64Range(0, 7), rapid.Int64Range(1, 1000)).Draw(t, "n"),
				Unit: rapid.SampledFrom([]time.Duration{time.Second, time.Minute}).Draw(t, "unit"),
			}
			m, err := a.New(l)
			if err != nil {
				t.Fatal(err)
			}
			c, err := fast.Counters(fmt.Sprint(i), m)
			if err != nil {
				t.Fatal(err)
			}
			slow.meters, handles = append(slow.meters, m), append(handles, c)
		}
		now := time.Unix(1_700_000_000, 0).UnixMicro()
		for range rapid.IntRange(1, 60).Draw(t, "requests") {
			now += rapid.Int64Range(-100_000, 2_000_000).Draw(t, "span")
			rules := rapid.Permutation([]int{0, 1, 2, 3, 4, 5}).Draw(t, "rules")[:rapid.IntRange(1, 6).Draw(t, "charges")]
			got, want := make([]limit.Charge, len(rules)), make([]limit.Charge, len(rules))
			for i, rule := range rules {
				want[i] = limit.Charge{
					Key:    []byte(rapid.SampledFrom([]string{"", "ann", "bob"}).Draw(t, "key")),
					Cost:   rapid.OneOf(rapid.Just[int64](1), rapid.Int64Range(1, 5)).Draw(t, "cost"),
					Shadow: rapid.IntRange(0, 3).Draw(t, "shadow") == 0,
				}
				want[i].Debit = want[i].Shadow && rapid.Bool().Draw(t, "debit")
				got[i] = want[i]
				got[i].Counters = handles[rule]
			}
			allowed, err := fast.Take(context.Background(), now, got)
			if want := slow.take(now, rules, want); allowed != want || err != nil {
				t.Fatalf("charges %+v: allowed %v, %v, want %v", got, allowed, err, want)
			}
			for i := range got {
				if got[i].Outcome != want[i].Outcome || got[i].At != want[i].At || got[i].Ticket != nil || got[i].Shared {
					t.Fatalf("charge %d under rule %d: %+v, want %+v", i, rules[i], got[i], want[i])
				}
			}
		}
	})
}

// Goroutines charge the same actors in any order, few at a time or many. Every request is charged
// under all its rules or under none, and each rule allows exactly its limit.
func TestExactInAnyOrder(t *testing.T) {
	t.Parallel()
	const rules, actors = 6, 4
	s := New(Options{})
	now := s.Now()
	var handles []any
	var n [rules]int64
	for i := range rules {
		a := []limit.Algorithm{limit.FixedWindow(), limit.TokenBucket(), limit.Concurrency()}[i%3]
		n[i] = int64(churn) / 2 * int64(i+1)
		handles = append(handles, named(t, s, fmt.Sprint(i), a, limit.Limit{N: n[i], Unit: 744 * time.Hour}))
	}
	var used [rules][actors]atomic.Int64
	crowd(func(rnd *rand.Rand) {
		for range churn {
			order := rnd.Perm(rules)[:1+rnd.IntN(rules)]
			charges := make([]limit.Charge, len(order))
			for i, rule := range order {
				charges[i] = limit.Charge{Counters: handles[rule], Key: []byte{byte(rnd.IntN(actors))}, Cost: 1 + rnd.Int64N(3), Shadow: rnd.IntN(4) == 0}
				charges[i].Debit = charges[i].Shadow && rnd.IntN(2) == 0
			}
			allowed, err := s.Take(context.Background(), now, charges)
			if err != nil {
				t.Error(err)
			}
			for i, rule := range order {
				if ch := charges[i]; allowed && (ch.Outcome.Allowed || ch.Debit) {
					used[rule][ch.Key[0]].Add(ch.Cost)
				} else if allowed && !ch.Shadow {
					t.Errorf("a request was allowed, and its charge %+v was refused", ch)
				}
			}
		}
	})
	for rule := range rules {
		for actor := range actors {
			left := peek(t, s, handles[rule], now, string([]byte{byte(actor)})).Outcome.Remaining
			used := used[rule][actor].Load()
			if over := used - n[rule]; over > 0 { // by debits
				debt := limit.Charge{Counters: handles[rule], Key: []byte{byte(actor)}, Cost: over + 1, At: now, Outcome: limit.Outcome{Allowed: true}}
				s.Refund([]limit.Charge{debt})
				left, used = peek(t, s, handles[rule], now, string([]byte{byte(actor)})).Outcome.Remaining, n[rule]-1
			}
			if left != n[rule]-used {
				t.Errorf("rule %d, actor %d: %d remain after charges of %d to a limit of %d", rule, actor, left, used, n[rule])
			}
		}
	}
}

// No call sees only some charges of a request: whoever sees one of them in a counter then sees the
// others in theirs.
func TestChargesAppearAtOnce(t *testing.T) {
	t.Parallel()
	s := New(Options{})
	now := s.Now()
	var handles []any
	for i := range mostWords {
		handles = append(handles, named(t, s, fmt.Sprint(i), limit.FixedWindow(), limit.Limit{N: 1e9, Unit: 744 * time.Hour}))
	}
	key := []byte("x")
	remaining := func(rule int) int64 {
		charges := []limit.Charge{{Counters: handles[rule], Key: key, Cost: 1}}
		if err := s.Peek(context.Background(), now, charges); err != nil {
			t.Error(err)
		}
		return charges[0].Outcome.Remaining
	}
	crowd(func(rnd *rand.Rand) {
		charges := make([]limit.Charge, mostWords)
		for range churn / 4 {
			order := rnd.Perm(mostWords)
			for i, rule := range order {
				charges[i] = limit.Charge{Counters: handles[rule], Key: key, Cost: 1}
			}
			if allowed, err := s.Take(context.Background(), now, charges); !allowed || err != nil {
				t.Error(allowed, err)
			}
			if first, second := remaining(order[0]), remaining(order[1]); first < second {
				t.Errorf("%d remain under one rule, and later %d under another", first, second)
			}
		}
	})
	for rule := range handles {
		if got, want := remaining(rule), int64(1e9-16*(churn/4)); got != want {
			t.Errorf("rule %d: %d remain, want %d", rule, got, want)
		}
	}
}

// BenchmarkTakeThree is one request under three rules: for all, and for two actors.
func BenchmarkTakeThree(b *testing.B) {
	for _, own := range []bool{false, true} {
		b.Run(fmt.Sprintf("own=%v", own), func(b *testing.B) {
			s := New(Options{})
			var handles []any
			for i := range 3 {
				handles = append(handles, named(b, s, fmt.Sprint(i), limit.TokenBucket(), limit.Limit{N: 1e9, Unit: time.Second}))
			}
			var workers atomic.Int64
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				key := []byte("actor-0")
				if own {
					key = fmt.Append(nil, "actor-", workers.Add(1))
				}
				charges := []limit.Charge{{Counters: handles[0]}, {Counters: handles[1], Key: key}, {Counters: handles[2], Key: key}}
				for i := range charges {
					charges[i].Cost = 1
				}
				for pb.Next() {
					if allowed, err := s.Take(context.Background(), s.Now(), charges); !allowed || err != nil {
						b.Error(allowed, err)
					}
				}
			})
		})
	}
}
