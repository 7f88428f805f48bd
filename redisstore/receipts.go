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

// Receipts tell which calls Redis has carried out.
//
// A call that times out may have been carried out, may never be, or may be carried out
// later, when the network delivers it. Each gateway therefore numbers the calls of each
// lane, and a call that changes something writes its number beside the counters, in the
// same script. When the outcome of a call is unknown, the gateway asks for the receipts
// before it uses Redis again. The question sets a fence: Redis refuses every call with an
// older number that arrives after it.
//
//	calls      7    8    9          10 (question)
//	arrive     7    8          10        9
//	           |    |          |         '--- refused: 9 is behind the fence
//	           |    |          '-- answer: 8 was the last; 9 was not carried out
//	receipts   7    8         10
//
// Receipts also show whether Redis remembers. A Redis that has restarted empty has none, and
// a replica that lagged, or an old snapshot, has older ones than the last call that it
// confirmed. Each mutating call compares the two, and so does the question.
//
// Cost: one GET and one SET for each call that changes something; a call decides many
// requests under load.
const (
	receiptsLive = time.Hour // as in receipts.lua
	receiptsSeen = 32        // calls of which the receipts tell
)

//go:embed receipts.lua
var receiptsLua string

//go:embed resolve.lua
var resolveLua string

var resolveScript = plainScript(receiptsLua + announceLua + resolveLua)

// fate is what is known of a call.
type fate int

const (
	unknown fate = iota
	carriedOut
	notCarriedOut // and never will be
)

// receipts are the numbers of a lane's calls. The lane's lock guards them.
type receipts struct {
	last      int64     // the number of the newest call
	asked     int64     // the number of the newest question
	confirmed int64     // the newest call that Redis has confirmed
	at        time.Time // when it has
	open      []*batch  // calls with an unknown fate
}

// next gives the next call its number, and returns which call Redis must remember; 0 if
// none: its receipt may have expired.
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

// confirm notes that Redis has carried out a call that changed something.
func (l *lane) confirm(number int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.receipts.confirmed = max(l.receipts.confirmed, number)
	l.receipts.at = time.Now()
}

// failed notes that a batch has failed. One that was never sent is concluded at once.
func (l *lane) failed(b *batch) {
	l.mu.Lock()
	sent := b.call > 0
	if sent {
		l.receipts.open = append(l.receipts.open, b)
	}
	l.mu.Unlock()
	if !sent {
		l.conclude(b, notCarriedOut)
	}
}

// question returns the number of a question, and which call Redis must remember. The number
// is the last one again if no call was sent since: otherwise many questions that nobody
// answers would push the calls out of the receipts.
func (l *lane) question() (number, known int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := &l.receipts
	if r.asked < r.last || r.asked == 0 {
		r.last++
		r.asked = r.last
	}
	return r.asked, r.known()
}

// resolve says that this gateway lives, asks Redis which calls of the lane it has carried
// out, and concludes those. forgot says that Redis does not remember a call that it had
// confirmed.
func (l *lane) resolve(ctx context.Context) (gateways int, forgot bool, err error) {
	for {
		number, known := l.question()
		arg := fmt.Appendf(nil, "%s %d %d", l.store.announcement(), number, known)
		answer, err := l.store.call(ctx, resolveScript, []string{l.gatewaysKey(), l.receiptsKey()}, arg)
		if err != nil {
			return 0, forgot, err
		}
		n, err := unpack(answer)
		if err != nil || len(n) != 3 {
			return 0, forgot, errNoArray
		}
		if n[1] >= known {
			l.answered(number, n[1], uint32(n[2]))
			return max(int(n[0]), 1), forgot, nil
		}
		forgot = true
		l.mu.Lock()
		l.receipts.confirmed = 0 // ask again, for the fence
		l.mu.Unlock()
	}
}

// answered concludes the calls in front of a question. last and bits are the receipts.
func (l *lane) answered(number, last int64, bits uint32) {
	var before []*batch
	l.mu.Lock()
	l.receipts.confirmed, l.receipts.at = max(l.receipts.confirmed, number), time.Now()
	l.receipts.open = slices.DeleteFunc(l.receipts.open, func(b *batch) bool {
		if b.call < number {
			before = append(before, b)
		}
		return b.call < number
	})
	l.mu.Unlock()
	for _, b := range before {
		back := last - b.call
		if back >= 0 && back < receiptsSeen && bits>>back&1 == 1 {
			l.conclude(b, carriedOut)
		} else {
			l.conclude(b, notCarriedOut)
		}
	}
}

// conclude acts on the fate of a failed batch. What Redis has not carried out of debits and
// refunds is owed again, and the requests that the gateway has allowed by itself are.
// Slots are not: leases.lose has noted their actors, and the exact number is told.
func (l *lane) conclude(b *batch, f fate) {
	l.mu.Lock()
	b.fate = f
	unless := b.unless
	b.unless = nil
	l.mu.Unlock()
	if f == carriedOut {
		return
	}
	s := l.store
	for _, o := range unless {
		s.debts.add(o)
	}
	for _, d := range b.debits {
		if k := b.keys[d.key-1]; !k.c.held {
			s.debts.add(owed{actor: k.actor, c: k.c, debit: d.n})
		}
	}
	for _, g := range b.gives {
		if k := b.keys[g.key-1]; !k.c.held && !k.c.queue && !k.c.reserver {
			s.debts.add(owed{actor: k.actor, c: k.c, refund: g.n, at: g.at})
		}
	}
}

// allConcluded reports whether the fate of every call is known that is not under way.
func (s *Store) allConcluded() bool {
	for _, l := range s.lanes {
		l.mu.Lock()
		open := len(l.receipts.open)
		l.mu.Unlock()
		if open > 0 {
			return false
		}
	}
	return true
}

// owesUnless owes a debit if the batch is not carried out. It reports false if it is certain
// that the batch is not.
func (b *batch) owesUnless(o owed) bool {
	b.lane.mu.Lock()
	defer b.lane.mu.Unlock()
	switch b.fate {
	case unknown:
		b.unless = append(b.unless, o)
	case notCarriedOut:
		return false
	}
	return true
}

func (l *lane) receiptsKey() string {
	return l.store.prefix + ":" + l.tag + "calls:" + strconv.FormatInt(l.store.id, 36)
}

// resolveAll asks in every lane at once.
func (s *Store) resolveAll(ctx context.Context) (gateways int, forgot bool, err error) {
	if len(s.lanes) == 1 {
		return s.lanes[0].resolve(ctx)
	}
	var mu sync.Mutex
	var all sync.WaitGroup
	for _, l := range s.lanes {
		all.Go(func() {
			n, lost, failure := l.resolve(ctx)
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
