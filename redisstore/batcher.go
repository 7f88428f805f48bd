// SPDX-License-Identifier: MIT

package redisstore

import (
	"sync"
	"time"

	"github.com/diana-limiter/diana/limit"
)

// batcher collects requests in batches, and sends one call after another. A request that finds
// no call in flight makes its own call in its caller's goroutine. To pass it to another goroutine
// and back would take as long as Redis does. A goroutine sends what has arrived meanwhile,
// and ends when nothing is left. If many requests wait, they are sent while a call is in
// flight, so that Redis has work while an answer travels.
type batcher struct {
	store *Store
	tag   string // in every key; in a Cluster it puts the batcher's keys on one node

	receipts receipts

	mu    sync.Mutex // guards the rest
	next  *batch     // requests that wait for the call in flight to end; nil when closed
	busy  int        // calls in flight
	alone bool       // no second call may be sent beside the one in flight
	sent  *batch     // its tables can be reused
}

func newBatcher(s *Store, tag string) *batcher {
	br := &batcher{store: s, tag: tag}
	br.receipts.debts = &s.debts
	br.next = newBatch(br, nil)
	return br
}

// entry is the position of a request in a batch.
type entry struct {
	*batch
	group      int32
	nth        int32  // among the group's equal requests
	generation uint64 // refusals.generation when the request arrived
}

// verb is what a request does.
type verb bool

const (
	takes verb = false
	peeks verb = true
)

// submit adds a request to the next call. If that call can be sent at once and wait is true, submit
// sends it and returns when Redis has answered.
func (br *batcher) submit(now int64, charges []limit.Charge, wait bool, v verb) (entry, error) {
	var room [8]hash
	hashes := hashesOf(charges, room[:0]) // before the lock, because it takes longer than the rest
	br.mu.Lock()
	if br.next == nil || !br.store.Up() { // in doubt, a call may take longer than a request waits
		br.mu.Unlock()
		return entry{}, br.store.link.unavailable()
	}
	br.begin()
	if br.store.options.CallerClock {
		br.next.now = now
	}
	p := br.next.join(charges, hashes, v)
	p.generation = br.store.refused.generation.Load()
	b := br.free()
	br.mu.Unlock()
	if b != nil {
		br.run(b, wait)
	}
	return p, nil
}

// add adds something to the next call, and returns that batch, or nil if the batcher is closed. It
// does not wait.
func (br *batcher) add(what func(*batch)) *batch {
	br.mu.Lock()
	into := br.next
	if into == nil {
		br.mu.Unlock()
		return nil
	}
	br.begin()
	what(into)
	b := br.free()
	br.mu.Unlock()
	if b != nil {
		br.run(b, false)
	}
	return into
}

// begin records when the first request of a batch arrived. br.mu is held.
func (br *batcher) begin() {
	if br.next.empty() {
		br.next.born = time.Now()
	}
}

// enough is how many groups of requests are sent while a call is in flight. Fewer groups wait, so
// that later requests can join them.
const enough = 32

// free returns the next batch to send, or nil if there is none or it must wait for a call in
// flight. br.mu is held.
func (br *batcher) free() *batch {
	if br.next == nil || br.next.empty() {
		return nil
	}
	renews := len(br.next.renewals) > 0 // later refunds must reach Redis after it
	if br.busy > 1 || br.busy == 1 && (br.alone || renews || len(br.next.groups) < enough) {
		return nil
	}
	br.busy++
	br.alone = br.next.changes() // later requests are evaluated after the changes
	br.store.calls.begin()
	b := br.next
	b.epoch = br.receipts.epoch.Load() // before the states are added that a newer one needs
	if br.receipts.restoring() {
		b.addRestores()
	}
	for i := range b.renewals {
		b.renewals[i].n = br.store.leases.number(b, &b.renewals[i])
	}
	br.next, br.sent = newBatch(br, br.sent), nil
	return b
}

// run sends a batch, and then the batches that were collected meanwhile. If wait is true it sends
// the first one itself.
func (br *batcher) run(b *batch, wait bool) {
	if wait {
		if b = br.send(b); b == nil {
			return
		}
	}
	go func() {
		for b != nil {
			b = br.send(b)
		}
	}()
}

// send sends a batch, and returns the next one to send, or nil.
func (br *batcher) send(b *batch) *batch {
	ok := br.store.Up() || b.urgent // otherwise it has waited for a call that failed, and must not wait for another
	if ok {
		b.call, b.known, ok = br.receipts.next()
	}
	if ok {
		b.send()
	} else {
		b.end(br.store.link.unavailable())
	}
	br.mu.Lock()
	defer br.mu.Unlock()
	defer br.store.calls.end()
	br.sent = b
	br.busy--
	return br.free()
}

// close ends the batcher: no request waits for it any more.
func (br *batcher) close() {
	br.mu.Lock()
	b := br.next
	br.next = nil
	br.mu.Unlock()
	if b != nil {
		b.end(ErrUnavailable)
	}
}
