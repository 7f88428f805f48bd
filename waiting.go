// SPDX-License-Identifier: MIT

package diana

import (
	"sync"

	"github.com/diana-limiter/diana/internal/plan"
	"github.com/diana-limiter/diana/rule"
)

// mostWaiting bounds how many requests wait at a time, under all rules together: for what a
// rule's wait is for, or for the scheduled time of a leaky bucket. Each may hold a goroutine,
// a connection and a body of 64 KiB.
const mostWaiting = 10_000

// waitRoom counts the requests that wait. Each rule that lets requests wait has places of its
// own, which no other rule can take: a quarter of all places is divided among these rules. The
// other places are for any rule:
//
//	| rule a | rule b | rule c |               for any rule                |
//	|<------ a quarter ------->|<------------ three quarters ------------->|
//
// A rule is known by its Counters, so requests that wait while the configuration changes keep
// their places. If their rule is gone, they are in places for any rule.
type waitRoom struct {
	mu      sync.Mutex // guards the rest
	waiting int
	shared  int            // of these, how many are in places for any rule
	by      map[string]int // how many wait, by the Counters of their rule; none is 0
	own     map[string]int // how many places a rule has of its own, by its Counters
}

// divide divides the places anew among the rules with these Counters.
func (w *waitRoom) divide(counters map[string]bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.own = map[string]int{}
	for c := range counters {
		w.own[c] = max(mostWaiting/4/len(counters), 1)
	}
	w.shared = 0
	for c, n := range w.by {
		w.shared += max(n-w.own[c], 0)
	}
}

// enter gives a request under a rule a place. It reports false if there is none.
func (w *waitRoom) enter(counters string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	own := w.by[counters] < w.own[counters]
	if w.waiting >= mostWaiting || !own && w.shared >= mostWaiting*3/4 {
		return false
	}
	if !own {
		w.shared++
	}
	if w.by == nil {
		w.by = map[string]int{}
	}
	w.by[counters]++
	w.waiting++
	return true
}

// leave frees the place of a request.
func (w *waitRoom) leave(counters string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.by[counters] > w.own[counters] {
		w.shared--
	}
	if w.by[counters]--; w.by[counters] == 0 {
		delete(w.by, counters)
	}
	w.waiting--
}

// Waiting returns how many requests wait now, in Take: for a rule with a wait, or for a leaky
// bucket. There are at most 10,000.
func (l *Limiter) Waiting() int {
	l.room.mu.Lock()
	defer l.room.mu.Unlock()
	return l.room.waiting
}

// letsWait reports whether requests can wait under a rule.
func letsWait(r *plan.Rule) bool {
	return waitOf(r) > 0 || queues(r) && r.Mode == rule.Enforce
}
