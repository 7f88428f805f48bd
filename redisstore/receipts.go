// SPDX-License-Identifier: MIT

package redisstore

import (
	"context"
	_ "embed" // the Lua sources
	"fmt"
	"slices"
	"sync"
	"time"
)

// Receipts record which calls Redis has carried out.
//
// Redis may have carried out a call that times out, or may do so later when the network delivers
// it, or never. Therefore each gateway numbers the calls of each batcher. A call that changes
// something writes its number beside the counters, in the same script. If the outcome of a call
// is unknown, the gateway asks for the receipts before it uses Redis again. The question sets a
// fence: Redis refuses every call with an older number that arrives after the question.
//
//	calls      7    8    9          10 (question)
//	arrive     7    8          10        9
//	           |    |          |         '--- refused: 9 is behind the fence
//	           |    |          '-- answer: 8 was the last; 9 was not carried out
//	receipts   7    8         10
//
// Receipts also show whether Redis has lost its memory. A Redis that has restarted empty has none.
// A replica that lagged, or an old snapshot, has older receipts than the last call that it
// confirmed. Each call that changes something compares the two, and so does the question.
//
// Cost: one GET and one SET for each call that changes something. Under load a call decides
// many requests.
const (
	receiptsLive = time.Hour // as in receipts.lua
	receiptsSeen = 32        // the number of calls that the receipts cover
)

//go:embed receipts.lua
var receiptsLua string

//go:embed resolve.lua
var resolveLua string

var resolveScript = plainScript(receiptsLua + announceLua + resolveLua)

// fate is what is known about a call.
type fate int

const (
	unknown fate = iota
	carriedOut
	notCarriedOut // and never will be
)

// receipts are the numbers of a batcher's calls, and the calls with an unknown fate.
type receipts struct {
	debts *debts // get what Redis has not carried out

	mu        sync.Mutex // guards the rest
	last      int64      // the number of the newest call
	asked     int64      // the number of the newest question
	confirmed int64      // the newest call that Redis has confirmed
	at        time.Time  // when Redis confirmed it
	open      []*batch   // calls with an unknown fate
}

// next returns the number of the next call, and the call that Redis must remember; 0 means none,
// because its receipt may have expired.
func (r *receipts) next() (number, known int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last++
	return r.last, r.knownLocked()
}

func (r *receipts) knownLocked() int64 {
	if time.Since(r.at) > receiptsLive/2 {
		return 0
	}
	return r.confirmed
}

// confirm records that Redis has carried out a call that changed something.
func (r *receipts) confirm(number int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.confirmed = max(r.confirmed, number)
	r.at = time.Now()
}

// forget is called when Redis has lost the newest call that it had confirmed.
func (r *receipts) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.confirmed = 0
}

// failed records that a batch has failed. A batch that was never sent is concluded at once.
func (r *receipts) failed(b *batch) {
	if b.call == 0 {
		r.conclude(b, notCarriedOut)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.open = append(r.open, b)
}

// anyOpen reports whether the fate of a call is unknown.
func (r *receipts) anyOpen() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.open) > 0
}

// question returns the number of a question, and the call that Redis must remember. If no call was
// sent since the last question, the number is the same. Otherwise many unanswered questions would
// push the calls out of the receipts.
func (r *receipts) question() (number, known int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.asked < r.last || r.asked == 0 {
		r.last++
		r.asked = r.last
	}
	return r.asked, r.knownLocked()
}

// answered concludes the calls before a question. last and bits are the receipts.
func (r *receipts) answered(number, last int64, bits uint32) {
	var before []*batch
	r.mu.Lock()
	r.confirmed, r.at = max(r.confirmed, number), time.Now()
	r.open = slices.DeleteFunc(r.open, func(b *batch) bool {
		if b.call < number {
			before = append(before, b)
		}
		return b.call < number
	})
	r.mu.Unlock()
	for _, b := range before {
		back := last - b.call
		if back >= 0 && back < receiptsSeen && bits>>back&1 == 1 {
			r.conclude(b, carriedOut)
		} else {
			r.conclude(b, notCarriedOut)
		}
	}
}

// conclude handles the fate of a failed batch. If Redis has not carried it out, its debits and refunds
// become debts again, and so do requests that the gateway has allowed by itself. Slots do not,
// because leases.lose has recorded their actors, and a renewal sends the exact number.
func (r *receipts) conclude(b *batch, f fate) {
	r.mu.Lock()
	b.fate = f
	unless := b.unless
	b.unless = nil
	r.mu.Unlock()
	if f == carriedOut {
		return
	}
	for _, o := range unless {
		r.debts.add(o)
	}
	for _, d := range b.debits {
		if k := b.keys[d.key-1]; !k.c.held {
			r.debts.add(debt{actor: k.actor, c: k.c, debit: d.n, at: d.at})
		}
	}
	for _, g := range b.refunds {
		if k := b.keys[g.key-1]; !k.c.held && !k.c.queue && !k.c.reserver {
			r.debts.add(debt{actor: k.actor, c: k.c, refund: g.n, at: g.at})
		}
	}
}

// abandon concludes the calls with an unknown fate of a Store that has ended, as if Redis had not carried
// them out.
func (r *receipts) abandon() {
	r.mu.Lock()
	open := r.open
	r.open = nil
	r.mu.Unlock()
	for _, b := range open {
		r.conclude(b, notCarriedOut)
	}
}

// debitUnless adds a debit to the debts unless Redis has carried out the batch, once that is known. It
// returns false if it is certain that Redis has not.
func (r *receipts) debitUnless(b *batch, o debt) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch b.fate {
	case unknown:
		b.unless = append(b.unless, o)
	case notCarriedOut:
		return false
	}
	return true
}

// resolve announces this gateway, asks Redis which calls of the batcher it has carried out, and
// concludes those. forgot reports whether Redis has lost a call that it had confirmed.
func (w *watcher) resolve(ctx context.Context, br *batcher) (gateways int, forgot bool, err error) {
	s := w.store
	keys := []string{s.keys.gateways(br.tag), s.keys.receipts(br.tag)}
	for {
		number, known := br.receipts.question()
		arg := fmt.Appendf(nil, "%s %d %d", s.gateway.announcement(), number, known)
		answer, err := s.link.call(ctx, resolveScript, keys, arg)
		if err != nil {
			return 0, forgot, err
		}
		n, err := unpack(answer)
		if err != nil || len(n) != 3 {
			return 0, forgot, errNoArray
		}
		if n[1] >= known {
			br.receipts.answered(number, n[1], uint32(n[2]))
			return max(int(n[0]), 1), forgot, nil
		}
		forgot = true
		br.receipts.forget() // ask again to set the fence
	}
}

// resolveAll asks the receipts of all batchers at once.
func (w *watcher) resolveAll(ctx context.Context) (gateways int, forgot bool, err error) {
	s := w.store
	if len(s.batchers) == 1 {
		return w.resolve(ctx, s.batchers[0])
	}
	var mu sync.Mutex
	var all sync.WaitGroup
	for _, br := range s.batchers {
		all.Go(func() {
			n, lost, failure := w.resolve(ctx, br)
			mu.Lock()
			defer mu.Unlock()
			gateways, forgot = max(gateways, n), forgot || lost
			if err == nil {
				err = failure
			}
		})
	}
	all.Wait()
	return gateways, forgot, err
}
