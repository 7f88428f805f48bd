// SPDX-License-Identifier: MIT

package refusals

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/diana-limiter/diana/rule"
)

// reports collects the reports of a Log and their times.
type reports struct {
	log   *Log
	rule  Rule
	total atomic.Int64 // refusals of the rule

	mu   sync.Mutex // guards the rest
	list []Refusal
	at   []time.Time
}

func newReports() *reports {
	o := &reports{}
	o.log = NewLog(o.add, func() int64 { return time.Now().UnixMicro() })
	o.rule = Rule{Name: "r", Total: o.total.Load}
	return o
}

func (o *reports) add(r Refusal) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.list, o.at = append(o.list, r), append(o.at, time.Now())
}

// refuse records a refusal of an actor.
func (o *reports) refuse(actor string) {
	o.log.Note(time.Now().UnixMicro(), &o.rule, 1, []byte(actor), &rule.Request{Method: "GET", Path: "/"}, false, false)
	o.total.Add(1)
}

// Reports of refusals stay within their bounds for all actors and all rates. Every refusal is in
// exactly one count.
func TestReportsAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := newReports()
		defer o.log.Close()
		random := rand.New(rand.NewPCG(1, 2))
		for range 20_000 {
			name := fmt.Sprint(random.IntN(5000)) // most are new ones
			if random.IntN(3) == 0 {
				name = fmt.Sprint(random.IntN(3))
			}
			o.refuse(name)
			time.Sleep(time.Duration(random.IntN(40)) * time.Millisecond)
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		total := o.total.Load()
		last := map[string]time.Time{}
		for i, r := range o.list {
			if i >= 10 && o.at[i].Sub(o.at[i-10]) < time.Second {
				t.Fatalf("report %d comes %v after the tenth before it", i, o.at[i].Sub(o.at[i-10]))
			}
			total -= r.Count + r.LeftOut
			if r.LeftOut > 0 {
				continue
			}
			if at, ok := last[r.Actor]; ok && o.at[i].Sub(at) < time.Minute {
				t.Fatalf("%s is reported after %v", r.Actor, o.at[i].Sub(at))
			}
			last[r.Actor] = o.at[i]
		}
		if total != 0 {
			t.Errorf("%d refusals are in no count", total)
		}
	})
}

// Close reports how many refusals were left out, and nothing is reported afterwards.
func TestLeftOutAtClose(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := newReports()
		for i := range 12 {
			o.refuse(fmt.Sprint(i))
		}
		o.log.Close()
		if n := len(o.list); n != 10 || o.list[9] != (Refusal{LeftOut: 3}) {
			t.Errorf("%d reports, the last is %+v", n, o.list[n-1])
		}
		o.log.Close()
		time.Sleep(time.Hour)
		if n := len(o.list); n != 10 {
			t.Errorf("%d reports after Close", n-10)
		}
	})
}

// A Sampler allows 32 records in a millisecond of its clock, whatever came before.
func TestSampler(t *testing.T) {
	t.Parallel()
	var s Sampler
	for _, now := range []int64{0, 1 << 20, 1<<20 + 1<<10, 1 << 40, 5} { // the clock may be set back
		allowed := 0
		for range 100 {
			if s.Allow(now) {
				allowed++
			}
		}
		if allowed != 32 {
			t.Errorf("at %d: %d records are allowed, want 32", now, allowed)
		}
	}
}

// If only a sample of the refusals is recorded, Top scales the counts up and says that they are not
// exact.
func TestTopOfASample(t *testing.T) {
	t.Parallel()
	total := int64(6)
	r := Rule{Name: "r", Total: func() int64 { return total }}
	l := NewLog(nil, func() int64 { return 0 })
	if got := l.Top(&r); got != nil {
		t.Errorf("no refusal: %+v", got)
	}
	for i := range 6 {
		l.Note(int64(i), &r, 1, []byte{"aab"[i%3]}, &rule.Request{}, false, false)
	}
	for _, row := range []struct {
		total int64
		a, b  Top
	}{
		{6, Top{"a", 4, true}, Top{"b", 2, true}},
		{600, Top{"a", 400, false}, Top{"b", 200, false}},
	} {
		total = row.total
		if got := l.Top(&r); len(got) != 2 || got[0] != row.a || got[1] != row.b {
			t.Errorf("of %d: %+v, want %+v and %+v", total, got, row.a, row.b)
		}
	}
}
