// SPDX-License-Identifier: MIT

package decide

import "sync"

// MaxWaiting bounds how many requests wait at a time, under all rules together: in wait queues, or
// for the scheduled time of a leaky bucket. Each may hold a goroutine, a connection and a body of
// 64 KiB.
const MaxWaiting = 10_000

// waitRoom counts the requests that wait. Each rule that lets requests wait has a reserve that no
// other rule can use: a quarter of the room is divided among these rules. The rest is for any rule:
//
//	| rule a | rule b | rule c |               for any rule                |
//	|<------ a quarter ------->|<------------ three quarters ------------->|
//
// A rule is known by its Counters, so requests that wait while the configuration changes keep
// their positions. If their rule is gone, they count for the common part.
type waitRoom struct {
	mu      sync.Mutex // guards the rest
	waiting int
	shared  int            // of these, how many are in the common part
	by      map[string]int // how many wait, by the Counters of their rule; none is 0
	own     map[string]int // the reserve of each rule, by its Counters
}

// divide divides the room again, among the rules with these Counters.
func (w *waitRoom) divide(counters map[string]bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.own = map[string]int{}
	for c := range counters {
		w.own[c] = max(MaxWaiting/4/len(counters), 1)
	}
	w.shared = 0
	for c, n := range w.by {
		w.shared += max(n-w.own[c], 0)
	}
}

// enter admits a request under a rule. It reports false if there is no room.
func (w *waitRoom) enter(counters string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	own := w.by[counters] < w.own[counters]
	if w.waiting >= MaxWaiting || !own && w.shared >= MaxWaiting*3/4 {
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

// leave makes room again.
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

// occupied returns how many requests wait.
func (w *waitRoom) occupied() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.waiting
}
