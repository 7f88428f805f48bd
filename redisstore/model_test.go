// SPDX-License-Identifier: MIT

//go:build !race

package redisstore_test

import (
	"fmt"
	"slices"
	"testing"
)

func anything[S any](S) {}

func TestModelOfWindows(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name string
		m    counting
		most int
	}{
		{"no outage", counting{n: 4, gateways: 2}, 4},
		{"start", counting{n: 3, gateways: 3, start: true}, 3},
		{"one cut off", counting{n: 4, gateways: 2, fails: oneLink}, 6},
		{"one cut off of three", counting{n: 3, gateways: 3, fails: oneLink}, 4},
		{"one cut off, n < g", counting{n: 2, gateways: 3, fails: oneLink}, 3},
		{"full outage", counting{n: 4, gateways: 2, fails: allAtOnce}, 6},
		{"full outage of three", counting{n: 3, gateways: 3, fails: allAtOnce}, 5},
		{"down", counting{n: 4, gateways: 2, fails: anyLink}, 6},
		{"down, two calls in flight", counting{n: 4, gateways: 2, fails: anyLink, calls: 1}, 6},
		{"down, two calls in flight, three", counting{n: 3, gateways: 3, fails: anyLink, calls: 1}, 5},
		{"down, ten", counting{n: 10, gateways: 2, fails: anyLink}, 15},
		{"down, uneven", counting{n: 5, gateways: 2, fails: anyLink}, 7},
		{"down, three", counting{n: 3, gateways: 3, fails: anyLink}, 5},
		{"down, n < g", counting{n: 2, gateways: 3, fails: anyLink}, 4},
		{"down, n = 1", counting{n: 1, gateways: 3, fails: anyLink}, 3},
		{"down, restart", counting{n: 4, gateways: 2, fails: anyLink, restarts: 1}, 8},
		{"down, restart of three", counting{n: 3, gateways: 3, fails: anyLink, restarts: 1}, 6},
		{"loss of memory", counting{n: 4, gateways: 2, fails: anyLink, loses: true}, 6},
		{"loss of memory, two calls in flight", counting{n: 4, gateways: 2, fails: anyLink, loses: true, calls: 1}, 6},
		{"loss of memory, three", counting{n: 3, gateways: 3, fails: anyLink, loses: true}, 5},
		{"loss of memory, n < g", counting{n: 2, gateways: 3, fails: anyLink, loses: true}, 4},
		{"loss of memory, restart", counting{n: 2, gateways: 2, fails: anyLink, loses: true, restarts: 1}, 5},
		{"loss of memory, restart, four", counting{n: 4, gateways: 2, fails: anyLink, loses: true, restarts: 1}, 10},
		{"loss of memory, restart, three", counting{n: 3, gateways: 3, fails: anyLink, loses: true, restarts: 1}, 8},
		{"loss of memory, restart, n < g", counting{n: 1, gateways: 3, fails: anyLink, loses: true, restarts: 1}, 4},
	} {
		row.m.time = windows
		row.m.bound = func(uint8) int { return row.most }
		wantMost(t, row.name, row.m.n, row.m.gateways, row.m, row.most, func(s countState) int { return int(s.total) })
	}
}

// Requests that consume even if they are refused are all counted in their window, and once. Only a late call
// of the window before can add to them.
func TestModelOfDebits(t *testing.T) {
	t.Parallel()
	for name, m := range map[string]counting{
		"no outage":                 {n: 2, gateways: 3},
		"full outage":               {n: 2, gateways: 2, fails: allAtOnce},
		"down":                      {n: 2, gateways: 2, fails: anyLink},
		"down, two calls in flight": {n: 2, gateways: 2, fails: anyLink, calls: 1},
	} {
		m.time, m.debits = windows, 5
		m.bound = func(uint8) int { return int(m.debits) }
		most := uint8(0)
		states, found := explore(m, func(s countState) { most = max(most, s.count) })
		t.Logf("%-36s n=%d g=%d: %7d states, Redis counts at most %d", name, m.n, m.gateways, states, most)
		if found != nil {
			t.Errorf("%s: %v%s", name, found.err, found.trace)
		} else if most < m.debits {
			t.Errorf("%s: Redis counts at most %d, want %d", name, most, m.debits)
		}
	}
}

func TestModelOfBuckets(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name string
		m    counting
		most []int // with 0, 1, 2... drips in the interval
	}{
		{"burst alone", counting{n: 4, gateways: 2, time: noTime, fails: anyLink}, []int{6}},
		{"burst alone, loss of memory", counting{n: 4, gateways: 2, time: noTime, fails: anyLink, loses: true}, []int{6}},
		{"no outage", counting{n: 4, gateways: 2, time: dripping}, []int{4, 5, 6, 7, 8}},
		{"one cut off", counting{n: 4, gateways: 2, time: dripping, fails: oneLink}, []int{6, 7, 9, 10, 12, 13, 15}},
		{"one cut off of three", counting{n: 3, gateways: 3, time: dripping, fails: oneLink}, []int{4, 5, 6, 8, 9, 10, 12}},
		{"full outage", counting{n: 2, gateways: 2, time: dripping, fails: allAtOnce}, []int{3, 4, 6, 8, 9, 11, 13}},
		{"down", counting{n: 2, gateways: 2, time: dripping, fails: anyLink}, []int{3, 4, 6, 8, 9, 11, 13, 14, 16}},
		{"down, four", counting{n: 4, gateways: 2, time: dripping, fails: anyLink}, []int{6, 8, 10, 12, 14, 16}},
		{"down, uneven", counting{n: 5, gateways: 2, time: dripping, fails: anyLink}, []int{7, 9, 10, 12}},
		{"down, three", counting{n: 3, gateways: 3, time: dripping, fails: anyLink}, []int{5, 6, 7, 10, 12}},
		{"down, n < g", counting{n: 2, gateways: 3, time: dripping, fails: anyLink}, []int{4, 5, 8}},
		{"loss of memory", counting{n: 2, gateways: 2, time: dripping, loses: true}, []int{3, 4, 6, 8, 9, 11, 13}},
		{"loss of memory, any", counting{n: 2, gateways: 2, time: dripping, fails: anyLink, loses: true}, []int{3, 4, 6, 8, 9, 11, 13}},
	} {
		row.m.drips = uint8(len(row.most) - 1)
		row.m.bound = func(drips uint8) int { return row.most[drips] }
		most := make([]int, len(row.most))
		states, found := explore(row.m, func(s countState) { most[s.drips] = max(most[s.drips], int(s.total)) })
		t.Logf("%-36s n=%d g=%d: %7d states, at most %d allowed", row.name, row.m.n, row.m.gateways, states, most)
		if found != nil {
			t.Errorf("%s: %v%s", row.name, found.err, found.trace)
		} else if !slices.Equal(most, row.most) {
			t.Errorf("%s: at most %d are allowed, the stated bounds are %d", row.name, most, row.most)
		}
		n, g, s := int(row.m.n), int(row.m.gateways), int(row.m.share())
		for d, most := range row.most {
			if bound := n + d + (g-1)*s + (g*d*s+n-1)/n; !row.m.loses && most > bound || most > bound+s*(d/n) {
				t.Errorf("%s: with %d drips %d are allowed, the formula says %d", row.name, d, most, bound)
			}
		}
	}
}

func TestModelOfConcurrency(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name string
		m    holding
		most int
	}{
		{"no outage", holding{n: 4, gateways: 2}, 4},
		{"start", holding{n: 3, gateways: 3, start: true}, 3},
		{"one cut off", holding{n: 4, gateways: 2, fails: oneLink}, 6},
		{"one cut off of three", holding{n: 3, gateways: 3, fails: oneLink}, 4},
		{"one cut off, lease expires", holding{n: 4, gateways: 2, fails: oneLink, expiry: true}, 8},
		{"one cut off of three, lease expires", holding{n: 3, gateways: 3, fails: oneLink, expiry: true}, 6},
		{"full outage", holding{n: 4, gateways: 2, fails: allAtOnce}, 6},
		{"down", holding{n: 6, gateways: 2, fails: anyLink}, 9},
		{"down, uneven", holding{n: 5, gateways: 2, fails: anyLink}, 7},
		{"down, three", holding{n: 6, gateways: 3, fails: anyLink}, 10},
		{"down, n < g", holding{n: 2, gateways: 3, fails: anyLink}, 4},
		{"down, leases expire", holding{n: 3, gateways: 3, fails: anyLink, expiry: true}, 9},
		{"down, restart", holding{n: 3, gateways: 3, fails: anyLink, restarts: 1}, 5},
		{"loss of memory", holding{n: 4, gateways: 2, fails: anyLink, loses: true}, 8},
		{"loss of memory, three", holding{n: 3, gateways: 3, fails: anyLink, loses: true}, 9},
		{"loss of memory, both decide", holding{n: 4, gateways: 2, fails: anyLink, loses: true, both: true}, 6},
		{"loss of memory, both decide, three", holding{n: 3, gateways: 3, fails: anyLink, loses: true, both: true}, 5},
	} {
		row.m.bound = row.most
		most := 0
		states, found := explore(row.m, func(s slotState) { most = max(most, s.inside()) })
		t.Logf("%-36s n=%d g=%d: %7d states, at most %d inside", row.name, row.m.n, row.m.gateways, states, most)
		if found != nil {
			t.Errorf("%s: %v%s", row.name, found.err, found.trace)
		} else if most != row.most {
			t.Errorf("%s: at most %d are inside, the stated bound is %d", row.name, most, row.most)
		}
	}
}

// counterexample asserts that one model violates an invariant and another one, which
// differs by one property, does not. It logs the shortest trace.
func counterexample[S comparable](t *testing.T, name string, without, with model[S]) {
	t.Helper()
	states, found := explore(without, anything)
	if found == nil {
		t.Errorf("%s: no violation in %d states", name, states)
	} else {
		t.Logf("%s: after %d states, %v%s", name, states, found.err, found.trace)
	}
	if _, found := explore(with, anything); found != nil {
		t.Errorf("%s: violated without it too: %v%s", name, found.err, found.trace)
	}
}

func TestModelFindsFlaws(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name  string
		m     counting
		flaws flaws
		bound int
	}{
		{"nothing is debited", counting{n: 4, gateways: 2, fails: allAtOnce, time: windows}, flaws{noDebit: true}, 6},
		{"nothing is debited, token bucket", counting{n: 4, gateways: 2, fails: allAtOnce}, flaws{noDebit: true}, 6},
		{"a debit is repeated", counting{n: 4, gateways: 2, fails: anyLink, time: windows}, flaws{repeatDebit: true}, 6},
		{"calls count as not carried out", counting{n: 4, gateways: 2, fails: anyLink, time: windows}, flaws{noReceipts: true}, 6},
		{"calls count as carried out", counting{n: 4, gateways: 2, fails: anyLink, time: windows}, flaws{trust: true}, 6},
		{"receipts do not say what Redis decided", counting{n: 4, gateways: 2, fails: anyLink, time: windows}, flaws{silentReceipts: true}, 6},
		{"late calls are carried out", counting{n: 4, gateways: 2, fails: anyLink, time: windows}, flaws{lateCalls: true}, 6},
		{"the whole limit before Redis is reached", counting{n: 4, gateways: 2, start: true, time: windows}, flaws{wholeLimit: true}, 4},
		{"a second return ends the unit of both", counting{n: 4, gateways: 2, fails: anyLink, loses: true, time: windows}, flaws{endBoth: true}, 6},
		{"nobody notices the loss of memory", counting{n: 4, gateways: 2, loses: true, time: windows}, flaws{silentLoss: true}, 6},
		{"a replica takes over with old receipts", counting{n: 4, gateways: 2, loses: true, time: windows}, flaws{oldReplica: true}, 6},
		{"a refused request is debited in a second call", counting{n: 2, gateways: 2, time: windows, debits: 5}, flaws{lateDebit: true}, 5},
	} {
		row.m.bound = func(uint8) int { return row.bound }
		flawed := row.m
		flawed.flaws = row.flaws
		counterexample(t, row.name, model[countState](flawed), model[countState](row.m))
	}
	bucket := counting{n: 2, gateways: 2, fails: anyLink, time: dripping, drips: 3}
	bucket.bound = func(drips uint8) int { return []int{3, 4, 6, 8}[drips] }
	flawed := bucket
	flawed.flaws.wholeTokens = true
	counterexample(t, "parts of a token are not charged", model[countState](flawed), model[countState](bucket))

	slots := holding{n: 4, gateways: 2, fails: anyLink, bound: 6}
	apart, late := slots, slots
	apart.apart, late.lateCalls = true, true
	counterexample(t, "slots of the share are not reported", model[slotState](apart), model[slotState](slots))
	counterexample(t, "late calls take and release slots", model[slotState](late), model[slotState](slots))
}

// Before the fixes, twice the limit was allowed. With a limit of 10 in a window the bound is 15,
// and 20 requests were allowed. With 4 slots the bound is 6, and 8 requests were inside.
func TestModelBeforeFixes(t *testing.T) {
	t.Parallel()
	window := counting{n: 10, gateways: 2, fails: allAtOnce, flaws: flaws{noDebit: true}}
	slots := holding{n: 4, gateways: 2, fails: anyLink, apart: true}
	for _, limit := range []int{19, 20} {
		_, found := explore(totals{window, limit}, anything)
		report(t, "no debit", found, limit < 20)
	}
	for _, limit := range []int{7, 8} {
		slots.bound = limit
		_, found := explore(insides{slots}, anything)
		report(t, "slots counted apart", found, limit < 8)
	}
}

func report(t *testing.T, name string, found *violation, want bool) {
	t.Helper()
	switch {
	case found != nil != want:
		t.Errorf("%s: found is %v, want %v", name, found, want)
	case found != nil:
		t.Logf("%s: %v%s", name, found.err, found.trace)
	}
}

// totals is a counting model that checks only how many are allowed.
type totals struct {
	counting
	limit int
}

func (m totals) check(s countState) error {
	if int(s.total) > m.limit {
		return fmt.Errorf("%d requests are allowed", s.total)
	}
	return nil
}

// insides is a holding model that checks only how many are inside.
type insides struct{ holding }

func (m insides) check(s slotState) error {
	if s.inside() > m.bound {
		return fmt.Errorf("%d requests are inside", s.inside())
	}
	return nil
}

// Some events exceed the bounds of an outage, as the table in model_explore_test.go shows.
func TestModelWhereBoundsEnd(t *testing.T) {
	t.Parallel()
	window := counting{n: 4, gateways: 2, fails: anyLink, time: windows, bound: func(uint8) int { return 6 }}
	restarts := window
	restarts.restarts = 1
	counterexample(t, "a gateway restarts and forgets its share", model[countState](restarts), model[countState](window))
	restarts.bound = func(uint8) int { return 8 }
	empty := restarts
	empty.loses = true
	counterexample(t, "a gateway restarts and believes an empty Redis", model[countState](empty), model[countState](restarts))
	slots := holding{n: 4, gateways: 2, fails: anyLink, loses: true, both: true, bound: 6}
	alone := slots
	alone.both = false
	counterexample(t, "Redis alone decides on slots after a loss of memory", model[slotState](alone), model[slotState](slots))
	slots.loses = false
	expiry := slots
	expiry.expiry = true
	counterexample(t, "the lease of a gateway that lives expires", model[slotState](expiry), model[slotState](slots))
}
