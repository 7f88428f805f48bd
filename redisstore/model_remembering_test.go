// SPDX-License-Identifier: MIT

//go:build !race

package redisstore_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// remembering is the model of a window whose gateways put back what Redis has lost, as remember.go says. It has the shares
// that apply until the others are back, see share.go in internal/decide. Only the order of moments counts, so a
// moment is its rank among those that somebody still knows.
type remembering struct {
	n, gateways uint8
	losses      uint8 // how often Redis loses its memory
	fails       bool  // gateways lose Redis, too
	refunds     uint8 // of requests, also settlements
	resets      uint8
	flaw        string
	bound       int
}

// memo is what a gateway remembers, or the base that Redis has.
type modelMemo struct {
	known     bool
	used      uint8
	at        uint8 // the moment
	base      uint8 // the moment of its base
	based     bool  // false: it lacks nothing
	epoch     uint8
	forgotten bool // Redis has lost it
}

type rememberGateway struct {
	link   link
	doubt  bool // the outage is not reported, so the return begins a new share
	behind bool // it does not know of the newest loss
	both   bool // its share applies, too
	anew   bool // it is a new one
	local  uint8
	fresh  uint8 // what the new share has used
	debit  uint8
	own    uint8 // requests that it may refund
	memo   modelMemo
}

type rememberState struct {
	gateways [mostGateways]rememberGateway
	count    uint8
	base     modelMemo // at is its moment, base its rank
	losses   uint8
	restores bool // the time to put back has not ended
	refunds  uint8
	resets   uint8
	total    uint8 // allowed, without what was refunded
	inexact  bool  // a second loss before the first is mended can lose charges of the time between
}

func (s rememberState) String() string {
	var b strings.Builder
	for i, g := range s.gateways {
		if g == (rememberGateway{}) {
			continue
		}
		fmt.Fprintf(&b, "%c %v", 'A'+i, g.link)
		if g.memo.known {
			fmt.Fprintf(&b, " knows %d at %d", g.memo.used, g.memo.at)
		}
		if g.behind {
			b.WriteString(" behind")
		}
		if g.both {
			b.WriteString(" both")
		}
		fmt.Fprintf(&b, " share %d/%d debit %d; ", g.local, g.fresh, g.debit)
	}
	fmt.Fprintf(&b, "Redis %d; allowed %d", s.count, s.total)
	return b.String()
}

func (m remembering) share() uint8 { return max(m.n/m.gateways, 1) }

func (m remembering) initial() (s rememberState) { return s }

// canonical gives moments their ranks, and sorts the gateways.
func (m remembering) canonical(s rememberState) rememberState {
	var all []*uint8
	for i := range s.gateways {
		k := &s.gateways[i].memo
		all = append(all, &k.at, &k.base)
	}
	all = append(all, &s.base.at, &s.base.base)
	var moments []uint8
	for _, p := range all {
		if *p > 0 {
			moments = append(moments, *p)
		}
	}
	slices.Sort(moments)
	moments = slices.Compact(moments)
	for _, p := range all {
		if *p > 0 {
			*p = uint8(slices.Index(moments, *p) + 1)
		}
	}
	slices.SortFunc(s.gateways[:m.gateways], func(a, b rememberGateway) int {
		return strings.Compare(fmt.Sprint(a), fmt.Sprint(b))
	})
	return s
}

// settled reports whether all gateways are back and have debited.
func (m remembering) settled(s *rememberState) bool {
	for _, g := range s.gateways[:m.gateways] {
		if g.link != up || g.behind || g.debit > 0 {
			return false
		}
	}
	return true
}

func (m remembering) check(s rememberState) error {
	switch {
	case int(s.total) > m.bound:
		return fmt.Errorf("%d requests are allowed, the bound is %d", s.total, m.bound)
	case !s.inexact && m.settled(&s) && s.count != s.total:
		return fmt.Errorf("all have returned, Redis counts %d, and %d are allowed", s.count, s.total)
	}
	return nil
}

func (m remembering) now(s *rememberState) uint8 {
	newest := max(s.base.at, s.base.base)
	for _, g := range s.gateways {
		newest = max(newest, g.memo.at, g.memo.base)
	}
	return newest + 1
}

// change records a call that has changed the counter.
func (m remembering) change(s *rememberState, i int) {
	if s.restores && !s.base.known {
		s.base = modelMemo{known: true} // of what the loss has left
	}
	s.gateways[i].memo = modelMemo{known: true, used: s.count, at: m.now(s), base: s.base.base, based: s.restores, epoch: s.losses}
}

// room reports whether the share of a gateway has room, after it was reduced to its part of the rest.
func (m remembering) room(g *rememberGateway, used *uint8) bool {
	if k := g.memo; k.known {
		*used = max(*used, m.share()-min(m.share(), (m.n-min(k.used, m.n))/m.gateways))
	}
	return *used < m.share()
}

func (m remembering) steps(s rememberState, visit func(event, rememberState)) {
	for i := range int(m.gateways) {
		g := &s.gateways[i]
		switch {
		case g.link == up && g.behind:
			t := s
			t.gateways[i].link, t.gateways[i].doubt = down, true
			visit(event{i, "notices the loss"}, t)
		case g.link == up:
			m.up(s, i, visit)
		default:
			m.down(s, i, visit)
		}
	}
	if s.losses < m.losses {
		t := s
		t.count, t.base, t.restores = 0, modelMemo{}, true
		t.losses++
		t.inexact = s.inexact || !m.settled(&s)
		for i := range t.gateways[:m.gateways] {
			t.gateways[i].behind = true
			t.gateways[i].memo.forgotten = true
		}
		visit(event{everyone, "Redis loses its memory"}, t)
	}
	if s.restores && m.settled(&s) {
		t := s
		t.restores, t.base = false, modelMemo{}
		for i := range t.gateways {
			t.gateways[i].memo.base, t.gateways[i].memo.based = 0, false
		}
		visit(event{everyone, "the time to put back ends"}, t)
	}
}

func (m remembering) up(s rememberState, i int, visit func(event, rememberState)) {
	t := s
	g := &t.gateways[i]
	used := &g.local
	if g.anew {
		used = &g.fresh
	}
	if room := !g.both || m.room(g, used); room && t.count < m.n {
		t.count++
		t.total++
		g.own++
		g.local = min(g.local+1, m.share())
		if g.both && g.anew {
			g.fresh++
		}
		m.change(&t, i)
		visit(event{i, "has a request allowed by Redis"}, t)
	}
	if s.gateways[i].own > 0 && s.refunds < m.refunds && s.count > 0 {
		t := s
		t.count--
		t.total--
		t.refunds++
		t.gateways[i].own--
		m.change(&t, i)
		visit(event{i, "has a request refunded"}, t)
	}
	if s.resets < m.resets {
		t := s
		t.count, t.total, t.base = 0, 0, modelMemo{}
		if t.restores {
			t.base = modelMemo{known: true, at: m.now(&s), base: m.now(&s)}
		}
		t.resets++
		for i := range t.gateways {
			g := &t.gateways[i]
			g.memo, g.debit, g.local, g.fresh, g.own = modelMemo{}, 0, 0, 0, 0
		}
		visit(event{i, "resets the counter"}, t)
	}
	if s.gateways[i].both && (m.settled(&s) || m.flaw == "no shares after the return") {
		t := s
		t.gateways[i].both = false
		visit(event{i, "uses Redis alone"}, t)
	}
	if m.fails {
		t := s
		t.gateways[i].link, t.gateways[i].doubt = down, false
		visit(event{i, "loses Redis"}, t)
	}
}

func (m remembering) down(s rememberState, i int, visit func(event, rememberState)) {
	t := s
	g := &t.gateways[i]
	if m.room(g, &g.local) {
		g.local++
		g.debit++
		t.total++
		visit(event{i, "allows a request by its share"}, t)
	}
	t = s
	g = &t.gateways[i]
	if g.behind {
		m.restore(&t, i)
		g.behind = false
		visit(event{i, "puts back what it remembers"}, t)
		return
	}
	if t.count += g.debit; g.debit > 0 {
		m.change(&t, i)
	}
	g.own += g.debit
	g.fresh = g.debit
	if m.flaw == "a new share forgets what was allowed in doubt" {
		g.fresh = 0
	}
	g.debit, g.link = 0, up
	g.both, g.anew = true, g.doubt
	visit(event{i, "returns and debits"}, t)
}

func (m remembering) restore(s *rememberState, i int) {
	k := &s.gateways[i].memo
	if !k.known || !k.forgotten || !s.restores || m.flaw == "nothing is put back" {
		return
	}
	rank, since := k.at, uint8(0)
	if k.based && m.flaw != "a second loss forgets the first" {
		rank = k.base
	}
	if s.base.known {
		newer := rank > s.base.base || rank == s.base.base && k.at > s.base.at
		if m.flaw == "the largest state wins" {
			newer = k.used > s.base.used
		}
		if !newer {
			m.change(s, i)
			return
		}
		since = s.count - s.base.used
		if m.flaw == "charges since the base are lost" {
			since = 0
		}
	}
	s.base = modelMemo{known: true, used: k.used, at: k.at, base: rank}
	s.count = k.used + since
	m.change(s, i)
}

func TestModelOfRemembering(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name string
		m    remembering
		most int
	}{
		{"outages", remembering{n: 4, gateways: 2, fails: true}, 6},
		{"a loss", remembering{n: 4, gateways: 2, losses: 1}, 6},
		{"a loss, uneven", remembering{n: 5, gateways: 2, losses: 1}, 7},
		{"a loss, three", remembering{n: 3, gateways: 3, losses: 1}, 5},
		{"a loss, three with larger shares", remembering{n: 6, gateways: 3, losses: 1}, 10},
		{"a loss, refund", remembering{n: 4, gateways: 2, losses: 1, refunds: 1}, 6},
		{"a loss, refund, three", remembering{n: 3, gateways: 3, losses: 1, refunds: 1}, 5},
		{"a loss, reset", remembering{n: 4, gateways: 2, losses: 1, resets: 1}, 6},
		{"outages and a loss", remembering{n: 4, gateways: 2, losses: 1, fails: true}, 6},
		{"two losses", remembering{n: 4, gateways: 2, losses: 2}, 7},
	} {
		row.m.bound = row.most
		wantMost(t, row.name, row.m.n, row.m.gateways, row.m, row.most, func(s rememberState) int { return int(s.total) })
	}
	for _, row := range []struct {
		flaw string
		m    remembering
	}{
		{"nothing is put back", remembering{n: 4, gateways: 2, losses: 1, bound: 6}},
		{"the largest state wins", remembering{n: 4, gateways: 2, losses: 1, refunds: 1, bound: 6}},
		{"charges since the base are lost", remembering{n: 4, gateways: 2, losses: 1, bound: 6}},
		{"no shares after the return", remembering{n: 4, gateways: 2, losses: 1, bound: 6}},
		{"a new share forgets what was allowed in doubt", remembering{n: 4, gateways: 2, losses: 1, bound: 6}},
		{"a second loss forgets the first", remembering{n: 4, gateways: 2, losses: 2, bound: 7}},
	} {
		flawed := row.m
		flawed.flaw = row.flaw
		counterexample(t, row.flaw, model[rememberState](flawed), model[rememberState](row.m))
	}
}
