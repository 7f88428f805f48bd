// SPDX-License-Identifier: MIT

//go:build !race

// These tests explore models of what gateways and Redis do when gateways lose Redis and
// when they return: every order of events, breadth-first, until no new state is found.
// The models do not call the code. There are two, because a gateway that returns debits what it
// has allowed of a window or a bucket, but reports the exact number of its concurrency slots.
// The models show the bounds that DESIGN.md states. They also show that every part of the
// protocol is needed: without that part, a test finds a counterexample.
//
// The protocol. The share of a gateway is the limit n divided by the number g of gateways,
// rounded down and at least 1.
//
//   - A gateway that is up asks Redis. It also charges what Redis allows to the counter of
//     its share. A share without room for the whole charge is charged what fits.
//   - A gateway that is down decides by its share.
//   - A call that is in flight when the gateway loses Redis is carried out, or it is not, or
//     it arrives late. The gateway decides its request by the share.
//   - A gateway that returns asks for the receipts of these calls. From then on Redis refuses
//     calls from before. The gateway debits what it allowed and Redis has not charged: of the
//     current window, or at most what the bucket of its share lacks. A debit whose answer is
//     lost has a receipt too, and is not applied again.
//   - If Redis has lost the receipt of the gateway's last acknowledged write, the gateway debits
//     as well, and for one unit its share and Redis both decide.
//   - A gateway that returns reports the exact number of its concurrency slots instead.
//   - A gateway that starts waits for Redis, and believes it.
//   - A request can consume even if it is refused. Redis then refuses and debits it in one step,
//     so it counts in its own window, and its receipt covers both.
//
// The bounds, with s for the share. "Down" means that any gateway loses Redis and returns at
// any time and any number of times; a cut-off gateway and an unreachable Redis are
// special cases of it. Every bound in the table is reached.
//
//	                             window and burst       concurrency
//	no outage                    n                      n
//	one gateway cut off          n + s                  n + s
//	  and its lease expires                             2n
//	down, Redis remembers        n + (g-1)s             n + (g-1)s
//	  and leases expire                                 gn
//	  and one gateway restarts   n + gs                 n + (g-1)s
//	Redis loses its memory       n + (g-1)s             gn
//	  and both decide until all have returned           n + (g-1)s
//	  and one gateway restarts   2n + (g-1)s
//
// For a token bucket n is the burst and what drips in one unit. In any interval with d drips in
// Redis at most n + d are allowed. If one gateway is cut off, its share allows s + ds/n more;
// if any are down, g-1 shares do. A loss of memory allows at most s more in each unit: there the
// tests list what is reached. Where n < g the shares together drip faster than Redis, so the
// debt in Redis can grow without bound while gateways lose Redis again and again.
//
// The models leave out:
//
//   - gateways that disagree on their number, and clocks that differ;
//   - requests of several rules, or of a cost above one;
//   - a debit that arrives late: Redis refuses it as it refuses late calls.
//
// The race detector has nothing to find here and makes the tests ten times slower, so they
// are not built with it.
package redisstore_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// An event is one step of a model.
type event struct {
	gateway int // its index, or everyone
	what    string
}

const everyone = -1

func (e event) String() string {
	if e.gateway == everyone {
		return e.what
	}
	return string(rune('A'+e.gateway)) + " " + e.what
}

// A model is a state machine with finitely many states.
type model[S comparable] interface {
	initial() S

	// steps calls visit with every event that can happen in s, and the state after it.
	steps(s S, visit func(event, S))

	// canonical returns one state for all states that differ only in the names of gateways.
	canonical(s S) S

	// check returns an error if s violates an invariant.
	check(s S) error
}

// A violation is a state that must not be reached, and the shortest trace to it.
type violation struct {
	err   error
	trace string
}

// explore visits all states of m breadth-first, until one of them violates an invariant.
// It returns how many states it has found, and calls each with every one it visits.
func explore[S comparable](m model[S], each func(S)) (states int, found *violation) {
	all := []S{m.canonical(m.initial())}
	parents := []int32{0}
	seen := map[S]struct{}{all[0]: {}}
	for i := 0; i < len(all); i++ {
		each(all[i])
		if err := m.check(all[i]); err != nil {
			return len(all), &violation{err, trace(m, all, parents, i)}
		}
		m.steps(all[i], func(_ event, s S) {
			s = m.canonical(s)
			if _, ok := seen[s]; !ok {
				seen[s] = struct{}{}
				all, parents = append(all, s), append(parents, int32(i))
			}
		})
	}
	return len(all), nil
}

// trace returns the events that lead to a state. It starts from the initial state again,
// because a canonical state has lost the names of the gateways.
func trace[S comparable](m model[S], all []S, parents []int32, last int) string {
	var path []S
	for i := last; i > 0; i = int(parents[i]) {
		path = append(path, all[i])
	}
	slices.Reverse(path)
	var lines strings.Builder
	s := m.initial()
	for i, want := range path {
		var by event
		var to S
		m.steps(s, func(e event, next S) {
			if by.what == "" && m.canonical(next) == want {
				by, to = e, next
			}
		})
		fmt.Fprintf(&lines, "\n%4d. %-66v | %v", i+1, by, to)
		s = to
	}
	return lines.String()
}

// sorted sorts gateways by a number that differs if they do.
func sorted[G any](gateways []G, number func(G) uint64) {
	for i := 1; i < len(gateways); i++ {
		for j := i; j > 0 && number(gateways[j-1]) > number(gateways[j]); j-- {
			gateways[j-1], gateways[j] = gateways[j], gateways[j-1]
		}
	}
}

// digits puts small numbers into one.
func digits(small ...uint8) (n uint64) {
	for _, s := range small {
		n = n<<6 | uint64(s)
	}
	return n
}

func digit(b bool) uint8 {
	if b {
		return 1
	}
	return 0
}

// A link is what a gateway believes of its way to Redis.
type link uint8

const (
	up link = iota
	down
	starting // the gateway has not reached Redis since its start
)

func (l link) String() string { return [...]string{"up", "down", "starting"}[l] }

// failing is which links can fail.
type failing uint8

const (
	noLink failing = iota
	oneLink
	allAtOnce // Redis itself is unreachable
	anyLink
)

// possible reports whether the link of a gateway can fail now. away says that Redis itself cannot
// be reached.
func (f failing) possible(gateway int, away bool) bool {
	return f == anyLink || f == oneLink && gateway == 0 || f == allAtOnce && away
}

// named returns how many gateways differ from the others by name: the one whose link fails.
func (f failing) named() int {
	if f == oneLink {
		return 1
	}
	return 0
}

// reachable is the event that Redis itself becomes reachable, or unreachable.
func reachable(now bool) event {
	if now {
		return event{everyone, "Redis becomes reachable"}
	}
	return event{everyone, "Redis becomes unreachable"}
}

const mostGateways = 3

// wantMost explores a model of a limit of n and so many gateways: it allows at most as many requests as the stated bound,
// and reaches that.
func wantMost[S comparable](t *testing.T, name string, n, gateways uint8, m model[S], bound int, allowed func(S) int) {
	t.Helper()
	most := 0
	states, found := explore(m, func(s S) { most = max(most, allowed(s)) })
	t.Logf("%-36s n=%d g=%d: %7d states, at most %d allowed", name, n, gateways, states, most)
	if found != nil {
		t.Errorf("%s: %v%s", name, found.err, found.trace)
	} else if most != bound {
		t.Errorf("%s: at most %d are allowed, the stated bound is %d", name, most, bound)
	}
}
