// SPDX-License-Identifier: MIT

package memstore

import "github.com/diana-limiter/diana/limit"

// words are the charges of one request while a Store makes them, if each has a record whose state
// is one word. takeAll makes all other requests.
//
// The Store evaluates the charges first. Then it locks all records but the first, each only if its
// head is the one that was evaluated. Replacing the first head makes all charges at once, because a
// goroutine that reads one of the others waits until that has its new head too.
//
// A rule for all clients usually is the first. So no goroutine waits for the counter that all use.
//
// Goroutines may lock the same records in different orders. None waits while it holds a lock, so
// they cannot wait for each other.
type words []word

// word is one of the charges.
type word struct {
	record     *record
	meter      limit.Word
	head, next uint64 // the state, and that after the charge; equal if the charge is not made
}

// Bounds of what words are for.
const (
	mostWords = 4 // charges
	mostTries = 3 // evaluations of one request; takeAll makes it if heads change more often
)

// find finds the records. It reports false if one does not exist, or its state is more than a word.
func (ws words) find(r *records, charges []limit.Charge) bool {
	for i := range ws {
		w, ch := &ws[i], &charges[i]
		c := ch.Counters.(*counters)
		if c.word == nil {
			return false
		}
		p := r.locate(c.id, r.hash(ch.Key))
		if w.record = p.shard.find(p.meta); w.record == nil {
			return false
		}
		w.meter, ch.Shared = c.word, false
	}
	return true
}

// evaluate sets the outcome of every charge. It reports known as false if a record has moved.
func (ws words) evaluate(now int64, charges []limit.Charge) (allowed, known bool) {
	allowed = true
	for i := range ws {
		head, ok := ws[i].record.read()
		if !ok {
			return false, false
		}
		allowed = ws[i].decide(head, now, &charges[i]) && allowed
	}
	if !allowed { // then an outcome is that before the charge
		for i := range ws {
			if ch := &charges[i]; ch.Outcome.Allowed {
				ch.Outcome = ws[i].meter.Peek(limit.State{Head: ws[i].head}, now, ch.Cost)
			}
		}
	}
	return allowed, true
}

// decide evaluates a charge to a state. It reports whether the charge allows the request.
func (w *word) decide(head uint64, now int64, ch *limit.Charge) bool {
	w.head = head
	w.next, ch.Outcome = w.meter.Decide(head, now, ch.Cost)
	return ch.Outcome.Allowed || ch.Shadow && w.shadow(now, ch)
}

// shadow evaluates a refused shadow, which is charged if it is a debit. It returns true.
func (w *word) shadow(now int64, ch *limit.Charge) bool {
	if ch.Debit {
		w.next, _ = limit.Debit(w.meter, limit.State{Head: w.head}, now, ch.Cost)
	}
	return true
}

// charge makes all charges. It makes none, and reports false, if a head has changed since evaluate and
// the request must be evaluated again.
func (ws words) charge(now int64, charges []limit.Charge) bool {
	for i := len(ws) - 1; i > 0; i-- {
		if !ws[i].record.lockFrom(ws[i].head) {
			ws[i+1:].unlock()
			return false
		}
	}
	for first := &ws[0]; !first.record.head.CompareAndSwap(first.head, first.next&^locked); {
		head := first.record.head.Load()
		if head&locked != 0 || !first.decide(head, now, &charges[0]) {
			ws[1:].unlock()
			return false
		}
	}
	for i := range ws {
		w, ch := &ws[i], &charges[i]
		if i > 0 {
			w.record.unlock(w.next)
		}
		if ch.Outcome.Allowed || ch.Debit {
			ch.At, ch.Ticket = ch.Counters.(*counters).moment(limit.State{Head: w.head}, now), nil
		}
	}
	return true
}

// unlock unlocks records whose charges are not made.
func (ws words) unlock() {
	for i := range ws {
		ws[i].record.unlock(ws[i].head)
	}
}
