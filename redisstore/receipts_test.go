// SPDX-License-Identifier: MIT

package redisstore

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/diana-limiter/diana/internal/redistest"
	"github.com/diana-limiter/diana/limit"
)

// Calls arrive late or in another order, and answers get lost. The receipts still say what Redis has done: a call
// that counts as not carried out never is, and otherwise its moment is that of its charge.
func TestReceiptsInAnyOrder(t *testing.T) {
	t.Parallel()
	w := watch(t, Options{URL: redistest.Start(t).URL()})
	window := w.at(t, limit.FixedWindow(), limit.Limit{N: 1000, Unit: 72 * time.Hour})
	ctx := context.Background()
	fates := map[fate]int{}
	for seed := range uint64(60) {
		rnd := rand.New(rand.NewPCG(seed, 0))
		r := &receipts{debts: &debts{store: w.Store}} // not the Store's own, so that its calls do not interfere
		tag := fmt.Sprint("{", seed, "}")
		type sending struct {
			*batch
			names []string
			told  []byte
			made  int64 // when Redis carried it out; 0: it has not
		}
		var all, travelling, waiting []*sending // waiting: for an answer
		pick := func(from []*sending) *sending { return from[rnd.IntN(len(from))] }
		drop := func(from []*sending, c *sending) []*sending {
			return slices.DeleteFunc(from, func(o *sending) bool { return o == c })
		}
		deliver := func(c *sending) (answered bool) {
			travelling = drop(travelling, c)
			answer, err := w.link.call(ctx, w.scripts.script.Load(), c.names, c.told)
			if err != nil {
				return false // behind the fence
			}
			n, _, err := unpackNumbers(answer)
			if err != nil {
				t.Fatal(err)
			}
			c.made = n[0]
			return true
		}
		for range 200 {
			switch op := rnd.IntN(10); {
			case op < 4 && len(waiting) < 2:
				b := newBatch(w.batchers[0], nil)
				b.born = time.Now()
				b.debit(&limit.Charge{Counters: window, Key: fmt.Append(nil, seed, " ", len(all)), Cost: 1, At: w.now()}, &posting{stage: sent})
				var ok bool
				if b.call, b.known, ok = r.next(); !ok {
					continue
				}
				c := &sending{batch: b, names: []string{w.keys.counter(tag, b.keys[0].hash), w.keys.epoch(tag), w.keys.receipts(tag)}, told: b.pack()}
				all, travelling, waiting = append(all, c), append(travelling, c), append(waiting, c)
			case op < 7 && len(travelling) > 0:
				c := pick(travelling)
				if deliver(c) && slices.Contains(waiting, c) && rnd.IntN(3) > 0 {
					waiting = drop(waiting, c)
					r.confirm(c.call)
				}
			case op < 8 && len(waiting) > 0:
				c := pick(waiting)
				waiting = drop(waiting, c)
				r.failed(c.batch)
			case op >= 8:
				fence, known := r.question()
				arg := fmt.Appendf(nil, "%s %d %d 0", "", fence, known)
				answer, err := w.link.call(ctx, resolveScript, []string{w.keys.gateways(tag), w.keys.receipts(tag), w.keys.epoch(tag)}, arg)
				if err != nil {
					t.Fatal(err)
				}
				n, err := unpack(answer)
				if err != nil || n[1] != 1 {
					t.Fatal("the receipts were lost", n, err)
				}
				if rnd.IntN(2) == 0 {
					r.fence, r.answer = fence, n[3:]
					r.answered()
				}
			}
		}
		for len(travelling) > 0 {
			deliver(travelling[0])
		}
		for _, c := range all {
			fates[c.fate]++
			switch {
			case c.fate == carriedOut && c.batch.made != c.made, c.fate == notCarriedOut && c.made != 0:
				t.Errorf("seed %d: call %d counts as fate %d at %d, and Redis carried it out at %d", seed, c.call, c.fate, c.batch.made, c.made)
			}
		}
	}
	if fates[carriedOut] < 100 || fates[notCarriedOut] < 100 || fates[neverKnown] > 0 {
		t.Errorf("%d calls count as carried out, %d as not, and %d as never known", fates[carriedOut], fates[notCarriedOut], fates[neverKnown])
	}
}
