// SPDX-License-Identifier: MIT

//go:build !race

package redisstore_test

import (
	"fmt"
	"strings"
)

// counting is the model of a fixed window and of a token bucket.
type counting struct {
	n, gateways uint8
	fails       failing
	time        passing
	drips       uint8 // how many drip in one interval, at most
	calls       uint8 // how many more are in flight when a gateway loses Redis
	loses       bool  // Redis can lose its memory
	start       bool  // the gateways start, each at its own time
	restarts    uint8 // how many gateways crash and start again
	debits      uint8 // requests consume even if refused, so many in a window at most; 0: they do not
	flaws       flaws
	bound       func(drips uint8) int // nil: nothing is checked
}

// passing is how time passes.
type passing uint8

const (
	noTime  passing = iota // neither a window ends nor a token drips
	windows                // a fixed window
	dripping
)

// flaws are what the protocol did before the fixes, and what it must not do.
type flaws struct {
	noDebit        bool // a gateway that returns debits nothing
	repeatDebit    bool // it debits again if the answer to its debit was lost
	noReceipts     bool // it takes every call that timed out for one that was not carried out
	trust          bool // it takes every call that timed out for one that was carried out
	silentReceipts bool // a receipt does not say whether Redis allowed the request
	wholeTokens    bool // what Redis allows is not charged to a share that lacks part of a token
	lateCalls      bool // Redis carries out calls from before the gateway's return
	wholeLimit     bool // a gateway that starts serves at once, and its share is the limit
	endBoth        bool // a second return ends the unit in which both decide
	silentLoss     bool // the client reconnects to a Redis without memory, and nobody notices
	oldReplica     bool // Redis keeps the receipts of gateways that have written nothing lately
	lateDebit      bool // a refused request that consumes is debited in a second call
}

type countGateway struct {
	link       link
	both       uint8 // for how long its share and Redis decide: windows or drips
	remembered bool  // Redis has the receipt of its last acknowledged write
	wrote      bool  // it has written in this window, see flaws.oldReplica
	local      uint8 // what the counter of its share has, in units of counting.costs

	// What it allowed by its share since it was last up:
	debit   uint8 // requests that it never asked Redis for, or that Redis has lost
	carried uint8 // requests whose call timed out and was carried out, or whose debit was
	missing uint8 // requests whose call timed out and was not carried out

	flight  uint8 // other calls that are in flight while it is down already
	pending uint8 // calls that are not carried out yet, of requests that the share refused
	late    uint8 // second calls that are not sent yet, see flaws.lateDebit
}

type countState struct {
	gateways [mostGateways]countGateway
	count    uint8 // Redis' count; more than n is debt
	away     bool  // nobody reaches Redis
	restarts uint8

	// Known to the checks alone:
	drips   uint8 // in this interval
	total   uint8 // requests allowed in this window or interval
	ideal   uint8 // what Redis would count if it counted every allowed request
	kept    uint8 // requests that the share refused after Redis had allowed them
	inexact bool  // Redis has lost its memory, or a gateway has crashed with a debit
	twice   bool  // Redis has allowed a request though the limit was used up
}

func (s countState) String() string {
	var b strings.Builder
	for i, g := range s.gateways {
		if g != (countGateway{}) {
			fmt.Fprintf(&b, "%c %v local %d", 'A'+i, g.link, g.local)
			for _, f := range []struct {
				name string
				n    uint8
			}{{"both", g.both}, {"debit", g.debit}, {"carried", g.carried}, {"missing", g.missing}, {"late", g.late}} {
				if f.n > 0 {
					fmt.Fprintf(&b, " %s %d", f.name, f.n)
				}
			}
			b.WriteString("; ")
		}
	}
	fmt.Fprintf(&b, "Redis %d; allowed %d", s.count, s.total)
	return b.String()
}

// share returns what one gateway may use of the limit.
func (m counting) share() uint8 { return max(m.n/m.gateways, 1) }

// costs returns in whole numbers what a request adds to the counter of a share, and what
// it loses while one token drips in Redis.
func (m counting) costs() (request, drip uint8) {
	switch {
	case m.time != dripping:
		return 1, 0
	case m.n%m.share() == 0:
		return m.n / m.share(), 1
	}
	return m.n, m.share()
}

func (m counting) initial() (s countState) {
	for i := range s.gateways[:m.gateways] {
		s.gateways[i].remembered = true
		if m.start {
			s.gateways[i] = countGateway{link: starting}
		}
	}
	return s
}

func (m counting) canonical(s countState) countState {
	s.count = min(s.count, 5*m.n) // where n < g the debt of a bucket has no bound
	if m.time == dripping {       // the checks that need these hold only without drips
		s.kept, s.ideal = 0, 0
		for i := range s.gateways {
			s.gateways[i].pending = 0
		}
	}
	sorted(s.gateways[m.fails.named():m.gateways], func(g countGateway) uint64 {
		return digits(uint8(g.link), g.both, digit(g.remembered)<<1|digit(g.wrote), g.local, g.debit, g.carried, g.missing, g.flight<<4|g.pending, g.late)
	})
	return s
}

// allUp reports whether all gateways are up, and Redis remembers them.
func (m counting) allUp(s *countState) bool {
	for _, g := range s.gateways[:m.gateways] {
		if g.link != up || !g.remembered || g.late > 0 {
			return false
		}
	}
	return true
}

func (m counting) check(s countState) error {
	settled := m.allUp(&s) && !s.inexact && m.time != dripping
	switch {
	case m.bound == nil:
		return nil
	case int(s.total) > m.bound(s.drips):
		return fmt.Errorf("%d requests were allowed, the bound is %d", s.total, m.bound(s.drips))
	case s.twice:
		return fmt.Errorf("all have returned and the limit is used up, and Redis allows a request")
	case settled && s.count < s.ideal:
		return fmt.Errorf("all have returned, Redis counts %d, and %d were allowed", s.count, s.ideal)
	case settled && s.count > s.ideal+s.kept:
		return fmt.Errorf("all have returned, Redis counts %d, and %d were allowed", s.count, s.ideal)
	}
	return nil
}

func (m counting) steps(s countState, visit func(event, countState)) {
	if m.debits > 0 { // then no request is refused, so the number of requests has a bound
		all := visit
		visit = func(e event, t countState) {
			if t.total <= m.debits {
				all(e, t)
			}
		}
	}
	for i := range int(m.gateways) {
		g := &s.gateways[i]
		switch g.link {
		case starting:
			m.starting(s, i, visit)
		case up:
			m.up(s, i, visit)
		case down:
			m.down(s, i, visit)
		}
		if g.link != starting && s.restarts < m.restarts {
			t := s
			t.inexact = t.inexact || g.debit+g.missing > 0
			t.gateways[i] = countGateway{link: starting}
			t.restarts++
			visit(event{i, "crashes and starts again"}, t)
		}
		if g.pending > 0 && !s.away && m.takes(&s) {
			t := s
			t.count++
			t.gateways[i].pending--
			if g.link == down {
				t.kept++
			}
			visit(event{i, "has a late call carried out in vain"}, t)
		}
	}
	m.redis(s, visit)
	m.pass(s, visit)
}

// allow counts an allowed request. The counter of the share is charged as far as it has room.
func (m counting) allow(s *countState, i int) {
	request, _ := m.costs()
	g := &s.gateways[i]
	if m.hasRoom(g) {
		g.local += request
	} else if !m.flaws.wholeTokens {
		g.local = max(g.local, m.share()*request)
	}
	s.total++
	s.ideal++
}

// takes reports whether Redis charges the next request.
func (m counting) takes(s *countState) bool {
	return s.count < m.n || m.debits > 0 && !m.flaws.lateDebit
}

func (m counting) hasRoom(g *countGateway) bool {
	if m.debits > 0 {
		return true
	}
	request, _ := m.costs()
	share := m.share()
	if m.flaws.wholeLimit && g.link == starting {
		share = m.n
	}
	return g.local+request <= share*request
}

func (m counting) starting(s countState, i int, visit func(event, countState)) {
	if m.flaws.wholeLimit && m.hasRoom(&s.gateways[i]) {
		t := s
		t.gateways[i].debit++
		m.allow(&t, i)
		visit(event{i, "allows a request before it has reached Redis"}, t)
	}
	if !s.away {
		t := s
		t.gateways[i].remembered = true // it knew nothing that Redis could have lost
		m.rejoin(&t, i)
		visit(event{i, "has started"}, t)
	}
}

func (m counting) up(s countState, i int, visit func(event, countState)) {
	g := &s.gateways[i]
	room := g.both == 0 || m.hasRoom(g)
	if !s.away && room && (m.takes(&s) || m.debits > 0) && (g.remembered || m.flaws.silentLoss) {
		t := s
		t.twice = m.debits == 0 && !s.inexact && m.time != dripping && m.allUp(&s) && s.ideal >= m.n
		if m.takes(&s) {
			t.count++
		} else {
			t.gateways[i].late++
		}
		t.gateways[i].wrote = m.flaws.oldReplica
		m.allow(&t, i)
		visit(event{i, "has a request allowed by Redis"}, t)
	}
	if !s.away && g.late > 0 {
		t := s
		t.count += g.late
		t.gateways[i].late = 0
		visit(event{i, "debits refused requests"}, t)
	}
	if g.remembered && !m.fails.possible(i, s.away) { // without memory the connection is lost too
		return
	}
	t := s
	t.gateways[i].link, t.gateways[i].flight = down, m.calls
	visit(event{i, "loses Redis"}, t)
	if room {
		m.timeOut(t, i, visit)
	}
}

// timeOut visits how a call can end that was in flight when the gateway lost Redis.
func (m counting) timeOut(s countState, i int, visit func(event, countState)) {
	g := &s.gateways[i]
	room := m.hasRoom(g)
	t := s
	if room {
		t.gateways[i].missing++
		m.allow(&t, i)
		visit(event{i, "has a call not carried out, and allows the request"}, t)
	} else {
		t.gateways[i].pending++
		visit(event{i, "has a call not carried out, and refuses the request"}, t)
	}
	t = s
	switch {
	case !g.remembered: // what was carried out is lost
	case !m.takes(&s) && room && m.flaws.silentReceipts:
		t.gateways[i].carried++
		m.allow(&t, i)
		visit(event{i, "has a call refused, loses the answer, and allows the request"}, t)
	case !m.takes(&s): // as if the call had not been carried out
	case room:
		t.count++
		t.gateways[i].carried++
		m.allow(&t, i)
		visit(event{i, "has a call carried out, loses the answer, and allows the request"}, t)
	default:
		t.count++
		t.kept++
		visit(event{i, "has a call carried out, loses the answer, and refuses the request"}, t)
	}
}

func (m counting) down(s countState, i int, visit func(event, countState)) {
	g := &s.gateways[i]
	if m.hasRoom(g) {
		t := s
		t.gateways[i].debit++
		m.allow(&t, i)
		visit(event{i, "allows a request by its share"}, t)
	}
	if g.flight > 0 {
		t := s
		t.gateways[i].flight--
		m.timeOut(t, i, visit)
	}
	if s.away {
		return
	}
	if g.missing > 0 && m.takes(&s) {
		t := s
		t.count++
		t.gateways[i].missing--
		t.gateways[i].carried++
		visit(event{i, "has a late call carried out that it will not debit"}, t)
	}
	t := s
	debit := m.rejoin(&t, i)
	visit(event{i, "returns and debits"}, t)
	if debit > 0 {
		t = s
		t.count += debit
		if g := &t.gateways[i]; !m.flaws.repeatDebit {
			g.carried += g.debit + g.missing
			g.debit, g.missing = 0, 0
		}
		visit(event{i, "debits, and the answer is lost"}, t)
	}
}

// rejoin debits what the gateway has allowed by its share, and takes its link up.
func (m counting) rejoin(s *countState, i int) (debit uint8) {
	g := &s.gateways[i]
	debit = g.debit + g.missing
	switch {
	case m.flaws.noDebit:
		debit = 0
	case m.flaws.noReceipts:
		debit += g.carried
	case m.flaws.trust:
		debit = g.debit
	}
	s.count += debit
	g.link, g.flight = up, 0
	if m.flaws.lateCalls {
		g.pending += g.missing
	} else {
		g.pending = 0
	}
	g.debit, g.carried, g.missing = 0, 0, 0
	switch {
	case !g.remembered && m.time == dripping:
		g.both = m.n
	case !g.remembered:
		g.both = 2
	case m.flaws.endBoth:
		g.both = 0
	}
	g.remembered = true
	g.wrote = m.flaws.oldReplica && (g.wrote || debit > 0)
	return debit
}

// redis visits what happens to Redis itself.
func (m counting) redis(s countState, visit func(event, countState)) {
	if m.fails == allAtOnce {
		t := s
		t.away = !s.away
		visit(reachable(!t.away), t)
	}
	if !m.loses {
		return
	}
	s.count, s.kept, s.inexact, s.twice = 0, 0, true, false
	for i := range s.gateways[:m.gateways] {
		g := &s.gateways[i]
		if g.link == starting {
			continue
		}
		g.remembered = m.flaws.oldReplica && !g.wrote && g.remembered
		if g.remembered {
			g.link = down
		}
		g.debit += g.carried // their receipts are lost too
		g.carried = 0
	}
	visit(event{everyone, "Redis loses its memory"}, s)
}

// pass visits what time does.
func (m counting) pass(s countState, visit func(event, countState)) {
	switch m.time {
	case windows:
		next := countState{away: s.away, restarts: s.restarts}
		for i, g := range s.gateways[:m.gateways] {
			if g.both == 1 {
				t := s
				t.gateways[i].both = 0
				visit(event{i, "has decided with Redis for one unit"}, t)
			}
			next.gateways[i] = countGateway{
				link: g.link, both: max(g.both, 1) - 1, remembered: g.remembered,
				flight: g.flight, pending: g.pending + g.missing, late: g.late,
			}
		}
		visit(event{everyone, "the next window begins"}, next)
	case dripping:
		t := s
		t.drips, t.total = 0, 0
		visit(event{everyone, "an interval begins"}, t)
		if s.drips < m.drips {
			m.drip(&s)
			visit(event{everyone, "a token drips"}, s)
		}
	}
}

func (m counting) drip(s *countState) {
	_, drip := m.costs()
	s.drips++
	s.count, s.ideal = max(s.count, 1)-1, max(s.ideal, 1)-1
	for i := range s.gateways[:m.gateways] {
		g := &s.gateways[i]
		g.both = max(g.both, 1) - 1
		g.local = max(g.local, drip) - drip
		switch { // a bucket that only the debits have used, see account
		case g.debit > 0:
			g.debit--
		case g.missing > 0:
			g.missing--
		}
		g.carried = max(g.carried, 1) - 1
	}
}
