// SPDX-License-Identifier: MIT

//go:build !race

package redisstore_test

import (
	"fmt"
	"strings"
)

// holding is the model of a concurrency limit.
type holding struct {
	n, gateways uint8
	fails       failing
	loses       bool // Redis can lose its memory
	start       bool // the gateways start, each at its own time
	restarts    uint8
	expiry      bool // the lease of a gateway that is down can expire
	both        bool // after a loss of memory both decide until all have returned
	apart       bool // flaw: the share counts only what it allowed, and a return reports only what Redis allowed
	lateCalls   bool // flaw: Redis carries out calls from before the gateway's return
	bound       int
}

type slotGateway struct {
	link       link
	remembered bool
	both       bool
	held       uint8 // requests inside
	own        uint8 // of these, what the share allowed, see holding.apart
	lease      uint8 // slots that Redis counts for this gateway
	takes      uint8 // calls not carried out yet that take a slot
	releases   uint8 // calls not carried out yet that release one
}

type slotState struct {
	gateways [mostGateways]slotGateway
	away     bool
	restarts uint8
	twice    bool // Redis has allowed a request though all have returned and n are inside
}

func (s slotState) String() string {
	var b strings.Builder
	for i, g := range s.gateways {
		if g != (slotGateway{}) {
			fmt.Fprintf(&b, "%c %v holds %d, lease %d; ", 'A'+i, g.link, g.held, g.lease)
		}
	}
	fmt.Fprintf(&b, "inside %d", s.inside())
	return b.String()
}

func (s *slotState) inside() (n int) {
	for i := range s.gateways {
		n += int(s.gateways[i].held)
	}
	return n
}

func (s *slotState) leased() (n uint8) {
	for i := range s.gateways {
		n += s.gateways[i].lease
	}
	return n
}

func (m holding) initial() (s slotState) {
	for i := range s.gateways[:m.gateways] {
		s.gateways[i].remembered = true
		if m.start {
			s.gateways[i] = slotGateway{link: starting}
		}
	}
	return s
}

func (m holding) canonical(s slotState) slotState {
	sorted(s.gateways[m.fails.named():m.gateways], func(g slotGateway) uint64 {
		return digits(uint8(g.link), digit(g.remembered)<<1|digit(g.both), g.held, g.own, g.lease, g.takes, g.releases)
	})
	return s
}

func (m holding) allUp(s *slotState) bool {
	for _, g := range s.gateways[:m.gateways] {
		if g.link != up || !g.remembered {
			return false
		}
	}
	return true
}

func (m holding) check(s slotState) error {
	switch {
	case s.inside() > m.bound:
		return fmt.Errorf("%d requests are inside, the bound is %d", s.inside(), m.bound)
	case s.twice:
		return fmt.Errorf("all have returned and no slot is free, and Redis allows a request")
	case m.allUp(&s) && int(s.leased()) != s.inside():
		return fmt.Errorf("all have returned, Redis counts %d, and %d are inside", s.leased(), s.inside())
	}
	return nil
}

func (m holding) steps(s slotState, visit func(event, slotState)) {
	for i := range int(m.gateways) {
		g := &s.gateways[i]
		switch g.link {
		case starting:
			if !s.away {
				t := s
				t.gateways[i] = slotGateway{remembered: true}
				visit(event{i, "has started"}, t)
			}
		case up:
			m.up(s, i, visit)
		case down:
			m.down(s, i, visit)
		}
		if g.link != starting && s.restarts < m.restarts {
			t := s
			t.gateways[i] = slotGateway{link: starting, lease: g.lease}
			t.restarts++
			visit(event{i, "crashes and starts again"}, t)
		}
		if s.away {
			continue
		}
		if g.takes > 0 && s.leased() < m.n {
			t := s
			t.gateways[i].takes--
			t.gateways[i].lease++
			visit(event{i, "has a late call carried out, which takes a slot"}, t)
		}
		if g.releases > 0 && g.lease > 0 {
			t := s
			t.gateways[i].releases--
			t.gateways[i].lease--
			visit(event{i, "has a late call carried out, which releases a slot"}, t)
		}
	}
	m.redis(s, visit)
}

func (m holding) hasRoom(g *slotGateway) bool {
	counted := g.held
	if m.apart {
		counted = g.own
	}
	return counted < max(m.n/m.gateways, 1)
}

func (m holding) up(s slotState, i int, visit func(event, slotState)) {
	g := &s.gateways[i]
	room := !g.both || m.hasRoom(g)
	if !s.away && g.remembered {
		if room && s.leased() < m.n {
			t := s
			t.twice = m.allUp(&s) && s.inside() >= int(m.n)
			t.gateways[i].held++
			t.gateways[i].lease++
			visit(event{i, "has a request allowed by Redis"}, t)
		}
		if g.held > g.own {
			t := s
			t.gateways[i].held--
			t.gateways[i].lease -= min(g.lease, 1)
			visit(event{i, "has a request end"}, t)
		}
	}
	if g.own > 0 {
		m.end(s, i, visit)
	}
	if g.remembered && !m.fails.possible(i, s.away) { // without memory the connection is lost too
		return
	}
	s.gateways[i].link = down
	visit(event{i, "loses Redis"}, s)
	if g.held > g.own {
		t := s
		t.gateways[i].held--
		t.gateways[i].releases++
		visit(event{i, "has a request end, and its release is not carried out"}, t)
		if g.lease > 0 {
			t.gateways[i].releases--
			t.gateways[i].lease--
			visit(event{i, "has a request end, and loses the answer to its release"}, t)
		}
	}
	if !room {
		return
	}
	t := s
	t.gateways[i].takes++
	m.decide(t, i, visit, "has a call not carried out")
	if s.leased() < m.n && g.remembered {
		t = s
		t.gateways[i].lease++
		m.decide(t, i, visit, "has a call carried out, loses the answer")
	}
}

// decide decides a request whose call timed out, by the share.
func (m holding) decide(s slotState, i int, visit func(event, slotState), what string) {
	if !m.hasRoom(&s.gateways[i]) {
		visit(event{i, what + ", and refuses the request"}, s)
		return
	}
	m.allow(&s, i)
	visit(event{i, what + ", and allows the request"}, s)
}

func (m holding) allow(s *slotState, i int) {
	s.gateways[i].held++
	if m.apart {
		s.gateways[i].own++
	}
}

// end ends a request without a call to Redis.
func (m holding) end(s slotState, i int, visit func(event, slotState)) {
	s.gateways[i].held--
	s.gateways[i].own = max(s.gateways[i].own, 1) - 1
	visit(event{i, "has a request end, unknown to Redis"}, s)
}

func (m holding) down(s slotState, i int, visit func(event, slotState)) {
	g := &s.gateways[i]
	if m.hasRoom(g) {
		t := s
		m.allow(&t, i)
		visit(event{i, "allows a request by its share"}, t)
	}
	if g.held > 0 {
		m.end(s, i, visit)
	}
	if m.expiry && g.lease > 0 {
		t := s
		t.gateways[i].lease = 0
		visit(event{i, "has its lease expire"}, t)
	}
	if s.away {
		return
	}
	g.lease = g.held - g.own
	if !m.lateCalls {
		g.takes, g.releases = 0, 0
	}
	visit(event{i, "reports its slots, and the answer is lost"}, s)
	g.link, g.both, g.remembered = up, g.both || m.both && !g.remembered, true
	if m.allUp(&s) {
		for i := range s.gateways {
			s.gateways[i].both = false
		}
	}
	visit(event{i, "returns and reports its slots"}, s)
}

func (m holding) redis(s slotState, visit func(event, slotState)) {
	if m.fails == allAtOnce {
		t := s
		t.away = !s.away
		visit(reachable(!t.away), t)
	}
	if m.loses {
		for i := range s.gateways[:m.gateways] {
			s.gateways[i].lease, s.gateways[i].remembered = 0, false
		}
		visit(event{everyone, "Redis loses its memory"}, s)
	}
}
