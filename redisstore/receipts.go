// SPDX-License-Identifier: MIT

package redisstore

import (
	"context"
	_ "embed" // the Lua sources
	"fmt"
	"slices"
	"strconv"
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

// receipts are the numbers of a batcher's calls. The batcher's lock guards them.
type receipts struct {
	last      int64     // the number of the newest call
	asked     int64     // the number of the newest question
	confirmed int64     // the newest call that Redis has confirmed
	at        time.Time // when Redis confirmed it
	open      []*batch  // calls with an unknown fate
}

// next returns the number of the next call, and the call that Redis must remember; 0 means none,
// because its receipt may have expired.
func (r *receipts) next() (number, known int64) {
	r.last++
	return r.last, r.known()
}

func (r *receipts) known() int64 {
	if time.Since(r.at) > receiptsLive/2 {
		return 0
	}
	return r.confirmed
}

// confirm records that Redis has carried out a call that changed something.
func (br *batcher) confirm(number int64) {
	br.mu.Lock()
	defer br.mu.Unlock()
	br.receipts.confirmed = max(br.receipts.confirmed, number)
	br.receipts.at = time.Now()
}

// failed records that a batch has failed. A batch that was never sent is concluded at once.
func (br *batcher) failed(b *batch) {
	br.mu.Lock()
	sent := b.call > 0
	if sent {
		br.receipts.open = append(br.receipts.open, b)
	}
	br.mu.Unlock()
	if !sent {
		br.conclude(b, notCarriedOut)
	}
}

// question returns the number of a question, and the call that Redis must remember. If no call was
// sent since the last question, the number is the same. Otherwise many unanswered questions would
// push the calls out of the receipts.
func (br *batcher) question() (number, known int64) {
	br.mu.Lock()
	defer br.mu.Unlock()
	r := &br.receipts
	if r.asked < r.last || r.asked == 0 {
		r.last++
		r.asked = r.last
	}
	return r.asked, r.known()
}

// resolve announces this gateway, asks Redis which calls of the batcher it has carried out, and
// concludes those. forgot reports whether Redis has lost a call that it had confirmed.
func (br *batcher) resolve(ctx context.Context) (gateways int, forgot bool, err error) {
	for {
		number, known := br.question()
		arg := fmt.Appendf(nil, "%s %d %d", br.store.announcement(), number, known)
		answer, err := br.store.call(ctx, resolveScript, []string{br.gatewaysKey(), br.receiptsKey()}, arg)
		if err != nil {
			return 0, forgot, err
		}
		n, err := unpack(answer)
		if err != nil || len(n) != 3 {
			return 0, forgot, errNoArray
		}
		if n[1] >= known {
			br.answered(number, n[1], uint32(n[2]))
			return max(int(n[0]), 1), forgot, nil
		}
		forgot = true
		br.mu.Lock()
		br.receipts.confirmed = 0 // ask again to set the fence
		br.mu.Unlock()
	}
}

// answered concludes the calls before a question. last and bits are the receipts.
func (br *batcher) answered(number, last int64, bits uint32) {
	var before []*batch
	br.mu.Lock()
	br.receipts.confirmed, br.receipts.at = max(br.receipts.confirmed, number), time.Now()
	br.receipts.open = slices.DeleteFunc(br.receipts.open, func(b *batch) bool {
		if b.call < number {
			before = append(before, b)
		}
		return b.call < number
	})
	br.mu.Unlock()
	for _, b := range before {
		back := last - b.call
		if back >= 0 && back < receiptsSeen && bits>>back&1 == 1 {
			br.conclude(b, carriedOut)
		} else {
			br.conclude(b, notCarriedOut)
		}
	}
}

// conclude handles the fate of a failed batch. If Redis has not carried it out, its debits and refunds
// become debts again, and so do requests that the gateway has allowed by itself. Slots do not,
// because leases.lose has recorded their actors, and a renewal sends the exact number.
func (br *batcher) conclude(b *batch, f fate) {
	br.mu.Lock()
	b.fate = f
	unless := b.unless
	b.unless = nil
	br.mu.Unlock()
	if f == carriedOut {
		return
	}
	s := br.store
	for _, o := range unless {
		s.debts.add(o)
	}
	for _, d := range b.debits {
		if k := b.keys[d.key-1]; !k.c.held {
			s.debts.add(owed{actor: k.actor, c: k.c, debit: d.n})
		}
	}
	for _, g := range b.refunds {
		if k := b.keys[g.key-1]; !k.c.held && !k.c.queue && !k.c.reserver {
			s.debts.add(owed{actor: k.actor, c: k.c, refund: g.n, at: g.at})
		}
	}
}

// allConcluded reports whether the fate of every call is known that is not in flight.
func (s *Store) allConcluded() bool {
	for _, br := range s.batchers {
		br.mu.Lock()
		open := len(br.receipts.open)
		br.mu.Unlock()
		if open > 0 {
			return false
		}
	}
	return true
}

// owesUnless makes a debit a debt if the batch is not carried out. It returns false if it is certain that
// Redis has not carried it out.
func (b *batch) owesUnless(o owed) bool {
	b.batcher.mu.Lock()
	defer b.batcher.mu.Unlock()
	switch b.fate {
	case unknown:
		b.unless = append(b.unless, o)
	case notCarriedOut:
		return false
	}
	return true
}

func (br *batcher) receiptsKey() string {
	return br.store.prefix + ":" + br.tag + "calls:" + strconv.FormatInt(br.store.id, 36)
}

// resolveAll asks the receipts of all batchers at once.
func (s *Store) resolveAll(ctx context.Context) (gateways int, forgot bool, err error) {
	if len(s.batchers) == 1 {
		return s.batchers[0].resolve(ctx)
	}
	var mu sync.Mutex
	var all sync.WaitGroup
	for _, br := range s.batchers {
		all.Go(func() {
			n, lost, failure := br.resolve(ctx)
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
