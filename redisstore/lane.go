// SPDX-License-Identifier: MIT

package redisstore

import (
	"context"
	"sync"
	"time"

	"github.com/diana-limiter/diana/limit"
)

// lane gathers requests, and sends one call after another. A request that finds no call
// under way makes its own, in its caller's goroutine: to hand it to another and back takes
// as long as Redis does. What has come meanwhile is sent by a goroutine that lives until
// there is nothing left. Much that waits goes while a call is still under way, so that Redis
// has something to do while an answer travels.
type lane struct {
	store *Store
	tag   string // in every key; in a Cluster it puts the lane's keys into one slot

	mu    sync.Mutex // guards the rest
	next  *batch     // of requests that wait for the call under way to end; nil when closed
	busy  int        // calls under way
	alone bool       // no other may go beside the one under way
	sent  *batch     // whose tables can be used again

	receipts receipts
}

func newLane(s *Store, tag string) *lane {
	l := &lane{store: s, tag: tag}
	l.next = newBatch(l, nil)
	return l
}

// place is where in a batch a request stands.
type place struct {
	*batch
	group int32
	nth   int32  // of the group's equal requests
	given uint64 // refusals.given when it came
}

// submit lets a request go in the next call, to which join adds it. If that can be at once and
// the caller has nothing else to do, it returns when Redis has answered.
func (l *lane) submit(now int64, charges []limit.Charge, wait bool, join func(*batch, []limit.Charge) place) (place, error) {
	l.mu.Lock()
	if l.next == nil || !l.store.Up() { // in doubt, calls may take longer than a request waits
		l.mu.Unlock()
		return place{}, ErrUnavailable
	}
	l.begin()
	if l.store.options.CallerClock {
		l.next.now = now
	}
	p := join(l.next, charges)
	p.given = l.store.refused.given.Load()
	b := l.free()
	l.mu.Unlock()
	if b != nil {
		l.run(b, wait)
	}
	return p, nil
}

// add lets something go in the next call, and returns that batch, or nil if the lane is
// closed. It does not wait.
func (l *lane) add(what func(*batch)) *batch {
	l.mu.Lock()
	into := l.next
	if into == nil {
		l.mu.Unlock()
		return nil
	}
	l.begin()
	what(into)
	b := l.free()
	l.mu.Unlock()
	if b != nil {
		l.run(b, false)
	}
	return into
}

// begin notes when the first of a batch came. l.mu is held.
func (l *lane) begin() {
	if l.next.empty() {
		l.next.born = time.Now()
	}
}

// much is how many groups of requests go while a call is under way. Fewer are better off
// with those that come until it ends.
const much = 32

// free returns the next batch to be sent, or nil if there is none, or it has to wait for a
// call under way. l.mu is held.
func (l *lane) free() *batch {
	if l.next == nil || l.next.empty() {
		return nil
	}
	renews := len(l.next.renewals) > 0 // and what is given back after it must come to Redis after it
	if l.busy > 1 || l.busy == 1 && (l.alone || renews || len(l.next.groups) < much) {
		return nil
	}
	l.busy++
	l.alone = l.next.changes() // and a request that comes after them is judged after them
	l.store.calls.begin()
	b := l.next
	b.call, b.known = l.receipts.next()
	for i := range b.renewals {
		b.renewals[i].n = b.number(&b.renewals[i])
	}
	l.next, l.sent = newBatch(l, l.sent), nil
	return b
}

// run sends a batch, and then those that have been gathered meanwhile. If wait is true it
// sends the first one itself.
func (l *lane) run(b *batch, wait bool) {
	if wait {
		if b = l.send(b); b == nil {
			return
		}
	}
	go func() {
		for b != nil {
			b = l.send(b)
		}
	}()
}

// send sends a batch, and returns the next one to be sent, or nil.
func (l *lane) send(b *batch) *batch {
	if l.store.Up() || b.urgent {
		b.send()
	} else { // it has waited for a call that failed, and does not wait for another
		b.call = 0
		b.end(ErrUnavailable)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.store.calls.end()
	l.sent = b
	l.busy--
	return l.free()
}

// close ends the lane: nobody waits for it any more.
func (l *lane) close() {
	l.mu.Lock()
	b := l.next
	l.next = nil
	l.mu.Unlock()
	if b != nil {
		b.end(ErrUnavailable)
	}
}

// wait returns when the batch has been decided, or ctx has ended.
func (b *batch) wait(ctx context.Context) error {
	select {
	case <-b.done:
		return nil
	default:
	}
	select {
	case <-b.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
