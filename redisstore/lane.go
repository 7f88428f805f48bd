// SPDX-License-Identifier: MIT

package redisstore

import (
	"context"
	"sync"
	"time"

	"github.com/diana-limiter/diana/limit"
)

// lane gathers requests, and sends one call after another.
type lane struct {
	store *Store
	tag   string // in every key; in a Cluster it puts the lane's keys into one slot

	mu   sync.Mutex // guards next
	next *batch     // of requests that wait for the call under way to end

	wake chan struct{} // gets a value when next is no longer empty
}

func newLane(s *Store, tag string) *lane {
	l := &lane{store: s, tag: tag, wake: make(chan struct{}, 1)}
	l.next = newBatch(l, nil)
	return l
}

// place is where in a batch a request stands.
type place struct {
	*batch
	group int32
	nth   int32 // of the group's equal requests
}

// submit lets a request go in the next call.
func (l *lane) submit(now int64, charges []limit.Charge) (p place, err error) {
	err = ErrUnavailable // if the store is closed
	l.add(func(b *batch) {
		if l.store.callerClock {
			b.now = now
		}
		p, err = b.take(charges), nil
	})
	return p, err
}

// add lets something go in the next call, if the store is not closed.
func (l *lane) add(what func(*batch)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.next == nil {
		return
	}
	if l.next.empty() {
		l.next.born = time.Now()
	}
	what(l.next)
	select {
	case l.wake <- struct{}{}:
	default: // it is awake
	}
}

// work sends one batch after another, until the store is closed.
func (l *lane) work() {
	var used *batch
	for {
		select {
		case <-l.wake:
		case <-l.store.stop:
			l.mu.Lock()
			b := l.next
			l.next = nil
			l.mu.Unlock()
			b.end(ErrUnavailable)
			return
		}
		l.mu.Lock()
		b := l.next
		l.next = newBatch(l, used)
		l.mu.Unlock()
		switch {
		case b.empty():
		case l.store.Up() || len(b.renewals) > 0: // which come before the rest after an outage
			b.send()
		default: // it has waited for a call that failed, and does not wait for another
			b.end(ErrUnavailable)
		}
		used = b
	}
}

// wait returns when the batch has been decided, or ctx has ended.
func (b *batch) wait(ctx context.Context) error {
	select {
	case <-b.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
