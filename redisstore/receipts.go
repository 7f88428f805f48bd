// SPDX-License-Identifier: MIT

package redisstore

import (
	"context"
	_ "embed" // the Lua sources
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Receipts record which calls Redis has carried out.
//
// Redis may have carried out a call that times out, or may do so later when the network delivers
// it, or never. Therefore each gateway numbers the calls of each batcher. A call that changes
// something writes its number beside the counters, in the same script. If the outcome of a call
// is unknown, the gateway asks for the receipts before it uses Redis again. The question sets a
// fence at the newest number: Redis refuses every call up to there that arrives after the question.
//
//	calls      7    8    9         question, fence 9
//	arrive     7    8              question            9
//	           |    |              |                   '--- refused: not above the fence
//	           |    |              '-- answer: 7 and 8 were carried out, and 9 never will be
//	receipts   7    7, 8           7, 8
//
// A question is no call and has no number, but the first one skips number 1 if there is no call yet. So a question whose answer is lost changes nothing that a
// later one reads, however many there are.
//
// The invariant: a call is debited again only if the receipts cover its number, and it has none. They
// cover the last 32 numbers, and all newer ones. The fate of an older call stays unknown, and it is never
// debited again. So the doubt can only forget this one call, and Options.Reconciled counts it. It cannot
// arise while calls fail, because next numbers no call that would push an open one out. It can arise if
// a call fails after 32 later ones were carried out, or after the receipts have expired.
//
// Receipts also show whether Redis has lost its memory. A Redis that has restarted empty has none.
// A replica that lagged, or an old snapshot, has older receipts, and an older fence, than the last that
// it confirmed. Each call that changes something compares the two, and so does the question.
//
// Cost: one GET and one SET for each call that changes something. Under load a call decides
// many requests. A batcher that changes nothing asks four times in the time that receipts live, because a loss
// after that would not be noticed.
const (
	receiptsLive = time.Hour // as in receipts.lua
	receiptsSeen = 32        // the number of calls that the receipts cover
	momentsSeen  = 8         // the number of calls whose moments they have
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
	neverKnown    // because the receipts no longer cover the call
)

// receipts are the numbers of a batcher's calls, and the calls with an unknown fate.
type receipts struct {
	debts *debts // get what Redis has not carried out

	epoch   atomic.Int64 // the newest that this gateway knows; 0: none
	learned atomic.Int64 // when it learned of that, in nanoseconds since 1970

	// Only the watcher uses these.
	asked  bool    // Redis has answered a question
	fence  int64   // of the answer
	answer []int64 // as in receipts.lua; nil: there is none to conclude

	mu        sync.Mutex // guards the rest
	last      int64      // the number of the newest call
	confirmed int64      // the newest call, or fence, that Redis has confirmed
	at        time.Time  // when Redis confirmed it
	open      []*batch   // calls with an unknown fate
}

// restoring reports whether states may still be put back after a loss.
func (r *receipts) restoring() bool {
	return time.Since(time.Unix(0, r.learned.Load())) < restoreTime
}

// next returns the number of the next call, and the call that Redis must remember; 0 means none,
// because its receipt may have expired. ok is false if the receipts would lose the moment of an open call.
func (r *receipts) next() (number, known int64, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, b := range r.open {
		if r.last+1-b.call >= momentsSeen {
			return 0, 0, false
		}
	}
	r.last++
	return r.last, r.knownLocked(), true
}

func (r *receipts) knownLocked() int64 {
	if time.Since(r.at) > receiptsLive/2 {
		return 0
	}
	return r.confirmed
}

// old reports whether the receipts need a question, so that Redis keeps them while the batcher has nothing to change.
func (r *receipts) old() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return time.Since(r.at) > receiptsLive/4
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
		r.conclude(b, notCarriedOut, 0)
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

// question returns the fence of a question, and the call that Redis must remember.
func (r *receipts) question() (fence, known int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last = max(r.last, 1) // a fence of 0 would not show that Redis has lost its memory
	return r.last, r.knownLocked()
}

// answered concludes the calls up to the fence of the answer.
func (r *receipts) answered() {
	if r.answer == nil {
		return
	}
	fence, last, bits, moments := r.fence, r.answer[0], r.answer[1], r.answer[3:]
	r.answer = nil
	var open []*batch
	r.mu.Lock()
	r.confirmed, r.at = max(r.confirmed, fence), time.Now()
	r.open = slices.DeleteFunc(r.open, func(b *batch) bool {
		if b.call <= fence {
			open = append(open, b)
		}
		return b.call <= fence
	})
	r.mu.Unlock()
	for _, b := range open {
		switch back := last - b.call; {
		case back >= receiptsSeen, last == 0 && time.Since(b.born) > receiptsLive/2:
			r.conclude(b, neverKnown, 0)
		case back >= 0 && bits>>back&1 == 1:
			moment := int64(0)
			if back < momentsSeen {
				moment = moments[b.call%momentsSeen]
			}
			r.conclude(b, carriedOut, moment)
		default:
			r.conclude(b, notCarriedOut, 0)
		}
	}
}

// conclude handles the fate of a failed batch, which was carried out at a moment or 0. If Redis has not
// carried it out, its debits and refunds become debts again, and so do requests that the gateway has allowed
// by itself. Slots do not, because leases.lose has recorded their actors, and a renewal sends the exact
// number.
func (r *receipts) conclude(b *batch, f fate, moment int64) {
	r.mu.Lock()
	b.fate, b.made = f, moment
	debits := b.unless
	b.unless = nil
	r.mu.Unlock()
	for _, d := range b.debits {
		if o := b.debt(d); !o.c.held {
			debits = append(debits, o)
		}
	}
	d := r.debts
	switch f {
	case neverKnown:
		d.store.reconciled(0, 1)
	case carriedOut:
		d.store.reconciled(b.late, 0)
	}
	for _, o := range debits {
		if f == notCarriedOut {
			d.add(o)
		} else {
			d.made(o, moment)
		}
	}
	if f != notCarriedOut {
		return
	}
	for _, g := range b.refunds {
		if k := b.keys[g.key-1]; !k.c.held && !k.c.queue && !k.c.reserver {
			d.add(debt{actor: k.actor, c: k.c, refund: g.n, at: g.at})
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
		r.conclude(b, notCarriedOut, 0)
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
	default:
		r.debts.made(o, b.made)
	}
	return true
}

// resolve announces this gateway, and asks Redis which calls of the batcher it has carried out. The caller concludes
// those. forgot reports whether Redis has lost a call that it had confirmed.
func (w *watcher) resolve(ctx context.Context, br *batcher) (gateways int, forgot bool, err error) {
	s := w.store
	keys := []string{s.keys.gateways(br.tag), s.keys.receipts(br.tag), s.keys.epoch(br.tag)}
	for {
		fence, known := br.receipts.question()
		arg := fmt.Appendf(nil, "%s %d %d %d", s.gateway.announcement(), fence, known, br.receipts.epoch.Load())
		answer, err := s.link.call(ctx, resolveScript, keys, arg)
		if err != nil {
			return 0, forgot, err
		}
		n, err := unpack(answer)
		if err != nil || len(n) != 6+momentsSeen {
			return 0, forgot, errNoArray
		}
		if n[2] > br.receipts.epoch.Load() {
			br.receipts.learned.Store(time.Now().UnixNano()) // first: a call with the epoch needs restores
			br.receipts.epoch.Store(n[2])
			forgot = forgot || br.receipts.asked
		}
		if n[1] == 1 {
			br.receipts.asked = true
			br.receipts.fence, br.receipts.answer = fence, n[3:]
			return max(int(n[0]), 1), forgot, nil
		}
		forgot, br.receipts.asked = true, true
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
