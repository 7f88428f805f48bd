// SPDX-License-Identifier: MIT

package memstore

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/diana-limiter/diana/limit"
)

// lines are the actors for whom someone waits, with who waits, in order.
//
// The meter of a queue reserves a turn for everyone who is admitted. A line makes
// the turns true for waiters that live: one that leaves gives its turn to those
// behind, and one that wakes up late puts the others off by as much, so that
// neighbours never come closer than the meter had them.
//
// A line and the record it belongs to change together, under the record's lock.
// lines.mu only guards the map.
type lines struct {
	mu sync.Mutex
	by map[lineKey]*line
}

type lineKey struct {
	shard *shard
	meta  uint64
}

type line struct{ waiters []*waiter }

// waiter is one call that waits. It is the Ticket of its charge.
type waiter struct {
	item               // where the charge was made; for later use by this waiter alone
	line *line         // nil once it has left
	turn int64         // moment to go on
	late int64         // by how much that is put off for its turn in another line
	wake chan struct{} // gets a value when it has become the first
}

func (l *lines) exists(shard *shard, meta uint64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, ok := l.by[lineKey{shard, meta}]
	return ok
}

// get returns the line of a record, or nil.
func (l *lines) get(p *place) *line {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.by[lineKey{p.shard, p.meta}]
}

// queue adds a waiter to the line of a record that is locked.
func (s *Store) queue(it *item, turn, late int64) *waiter {
	w := &waiter{item: *it, turn: turn, late: late, wake: make(chan struct{}, 1)}
	w.charge = nil // the caller's memory
	s.lines.mu.Lock()
	defer s.lines.mu.Unlock()
	key := lineKey{it.shard, it.meta}
	if w.line = s.lines.by[key]; w.line == nil {
		w.line = &line{}
		if s.lines.by == nil {
			s.lines.by = map[lineKey]*line{}
		}
		s.lines.by[key] = w.line
	}
	w.line.waiters = append(w.line.waiters, w)
	return w
}

// catchUp puts everyone off whose turn depends on one that should have gone on
// already and is late. The record is locked.
func (s *Store) catchUp(it *item, now int64) {
	l := s.lines.get(&it.place)
	if l == nil {
		return
	}
	if late := now - l.waiters[0].turn; late > 0 {
		for _, w := range l.waiters {
			w.turn += late
		}
		it.head = it.c.queue.Delay(limit.State{Head: it.head}, late)
	}
}

// remove takes w out of its line, and wakes the one that becomes the first. The
// record is locked.
func (s *Store) remove(w *waiter) {
	l := w.line
	w.line = nil
	i := slices.Index(l.waiters, w)
	l.waiters = slices.Delete(l.waiters, i, i+1)
	if len(l.waiters) == 0 {
		s.lines.mu.Lock()
		delete(s.lines.by, lineKey{w.shard, w.meta})
		s.lines.mu.Unlock()
	} else if i == 0 {
		select {
		case l.waiters[0].wake <- struct{}{}:
		default: // it has been woken already
		}
	}
}

// Wait implements limit.Store. A request that stands in several lines stays in all of
// them until it goes on.
func (s *Store) Wait(ctx context.Context, charges []limit.Charge) error {
	for i := range charges {
		if w, ok := charges[i].Ticket.(*waiter); ok {
			if err := s.await(ctx, w); err != nil {
				return err
			}
		}
	}
	for i := range charges {
		if w, ok := charges[i].Ticket.(*waiter); ok {
			s.goOn(w)
		}
	}
	return nil
}

// await waits until w is the first of its line and its turn has come.
func (s *Store) await(ctx context.Context, w *waiter) error {
	timer := time.NewTimer(time.Hour) // for when w is the first
	defer timer.Stop()
	for {
		wait, first := s.position(w)
		if first && wait <= 0 {
			return nil
		}
		if first {
			timer.Reset(time.Duration(wait) * time.Microsecond)
		}
		select {
		case <-timer.C:
		case <-w.wake:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// position tells whether w is the first of its line, and if so how long it is until
// its turn.
func (s *Store) position(w *waiter) (wait int64, first bool) {
	if !s.acquire(&w.item) {
		return 0, true // impossible while it waits: see Store.expired
	}
	defer func() { w.unlock(w.head) }()
	if w.line == nil || w.line.waiters[0] != w {
		return 0, w.line == nil
	}
	return w.turn - s.Now(), true
}

// goOn takes w, whose turn has come, out of its line.
func (s *Store) goOn(w *waiter) {
	if !s.acquire(&w.item) {
		return
	}
	defer func() { w.unlock(w.head) }()
	if w.line != nil {
		s.catchUp(&w.item, s.Now())
		s.remove(w)
	}
}

// leave takes a waiter out of its line before its turn, and moves those behind it
// up. For one that has gone on there is nothing to give back: its turn is over.
func (s *Store) leave(w *waiter, at, n int64) {
	if !s.acquire(&w.item) {
		return
	}
	defer func() { w.unlock(w.head) }()
	if w.line == nil {
		return
	}
	gained := s.giveBack(&w.item, at, n) + w.late
	w.head = w.c.queue.Delay(limit.State{Head: w.head}, -w.late)
	i := slices.Index(w.line.waiters, w)
	for _, behind := range w.line.waiters[i+1:] {
		behind.turn -= gained
	}
	s.remove(w)
}

// giveTurn gives back the turn of one that did not have to wait, or as a shadow did not,
// and moves the whole line up. If others have gone on since, it is over: whoever comes next
// must keep the distance from them. The record is locked.
func (s *Store) giveTurn(it *item, turn, n int64) {
	before := it.head
	next := it.c.Expiry(limit.State{Head: before}) // who comes now, or is the first to wait
	l := s.lines.get(&it.place)
	if l != nil {
		next = l.waiters[0].turn
	}
	gained := s.giveBack(it, turn, n)
	if next-gained > turn {
		it.head = before
		return
	}
	if l == nil {
		return
	}
	for _, w := range l.waiters {
		w.turn -= gained
	}
	select {
	case l.waiters[0].wake <- struct{}{}: // it set its timer for the old turn
	default:
	}
}
