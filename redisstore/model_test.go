// SPDX-License-Identifier: MIT

//go:build !race

// These tests explore models of what gateways and Redis do when gateways lose Redis and
// when they return: every order of events, breadth-first, until no new state is found.
// The models do not call the code. They show the bounds that DESIGN.md states, and that
// every part of the protocol is needed: without that part, a test finds a counterexample.
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
//
// The bounds, with s for the share. "Down" means that any gateway loses Redis and returns at
// any time and any number of times; a cut-off gateway and Redis itself out of reach are
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
// The models leave out: gateways that disagree on how many they are, clocks that differ,
// requests of several rules or a cost above one, and a debit that arrives late, which Redis
// refuses as it refuses late calls.
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
	allAtOnce // Redis itself is out of reach
	anyLink
)

const mostGateways = 3

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
			}{{"both", g.both}, {"debit", g.debit}, {"carried", g.carried}, {"missing", g.missing}} {
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
	alike := s.gateways[:m.gateways]
	if m.fails == oneLink {
		alike = alike[1:]
	}
	sorted(alike, func(g countGateway) uint64 {
		return digits(uint8(g.link), g.both, digit(g.remembered)<<1|digit(g.wrote), g.local, g.debit, g.carried, g.missing, g.flight<<4|g.pending)
	})
	return s
}

// allUp reports whether all gateways are up, and Redis remembers them.
func (m counting) allUp(s *countState) bool {
	for _, g := range s.gateways[:m.gateways] {
		if g.link != up || !g.remembered {
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
		if g.pending > 0 && !s.away && s.count < m.n {
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

func (m counting) hasRoom(g *countGateway) bool {
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
	if !s.away && room && s.count < m.n && (g.remembered || m.flaws.silentLoss) {
		t := s
		t.twice = !s.inexact && m.time != dripping && m.allUp(&s) && s.ideal >= m.n
		t.count++
		t.gateways[i].wrote = m.flaws.oldReplica
		m.allow(&t, i)
		visit(event{i, "has a request allowed by Redis"}, t)
	}
	switch {
	case !g.remembered: // the connection was lost with the memory
	case m.fails == noLink, m.fails == oneLink && i > 0, m.fails == allAtOnce && !s.away:
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
	case s.count >= m.n && room && m.flaws.silentReceipts:
		t.gateways[i].carried++
		m.allow(&t, i)
		visit(event{i, "has a call refused, loses the answer, and allows the request"}, t)
	case s.count >= m.n: // as if the call had not been carried out
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
	if g.missing > 0 && s.count < m.n {
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

// lacks returns how many tokens the bucket of the share lacks, rounded up.
func (m counting) lacks(g *countGateway) uint8 {
	request, _ := m.costs()
	return (g.local + request - 1) / request
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
	if m.time == dripping { // tokens that have dripped into the share are not debited
		debit = min(debit, m.lacks(g))
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
		visit(event{everyone, map[bool]string{true: "Redis is out of reach", false: "Redis is within reach"}[t.away]}, t)
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
				flight: g.flight, pending: g.pending + g.missing,
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
		lacks := m.lacks(g)
		g.missing, g.carried = min(g.missing, lacks), min(g.carried, lacks)
		g.debit = min(g.debit, lacks-g.missing)
	}
}

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
	alike := s.gateways[:m.gateways]
	if m.fails == oneLink {
		alike = alike[1:]
	}
	sorted(alike, func(g slotGateway) uint64 {
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
	switch {
	case !g.remembered: // the connection was lost with the memory
	case m.fails == noLink, m.fails == oneLink && i > 0, m.fails == allAtOnce && !s.away:
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
	m.judge(t, i, visit, "has a call not carried out")
	if s.leased() < m.n && g.remembered {
		t = s
		t.gateways[i].lease++
		m.judge(t, i, visit, "has a call carried out, loses the answer")
	}
}

// judge decides a request whose call timed out, by the share.
func (m holding) judge(s slotState, i int, visit func(event, slotState), what string) {
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
		visit(event{everyone, map[bool]string{true: "Redis is out of reach", false: "Redis is within reach"}[t.away]}, t)
	}
	if m.loses {
		for i := range s.gateways[:m.gateways] {
			s.gateways[i].lease, s.gateways[i].remembered = 0, false
		}
		visit(event{everyone, "Redis loses its memory"}, s)
	}
}

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
		most := 0
		states, found := explore(row.m, func(s countState) { most = max(most, int(s.total)) })
		t.Logf("%-36s n=%d g=%d: %7d states, at most %d allowed", row.name, row.m.n, row.m.gateways, states, most)
		if found != nil {
			t.Errorf("%s: %v%s", row.name, found.err, found.trace)
		} else if most != row.most {
			t.Errorf("%s: at most %d are allowed, the stated bound is %d", row.name, most, row.most)
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
		{"full outage", counting{n: 2, gateways: 2, time: dripping, fails: allAtOnce}, []int{3, 4, 6, 7, 9, 10, 12}},
		{"down", counting{n: 2, gateways: 2, time: dripping, fails: anyLink}, []int{3, 4, 6, 7, 9, 10, 12, 13, 15}},
		{"down, four", counting{n: 4, gateways: 2, time: dripping, fails: anyLink}, []int{6, 7, 9, 10, 12, 13}},
		{"down, uneven", counting{n: 5, gateways: 2, time: dripping, fails: anyLink}, []int{7, 8, 9, 11}},
		{"down, three", counting{n: 3, gateways: 3, time: dripping, fails: anyLink}, []int{5, 6, 7, 10, 11}},
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
			if bound := n + d + (g-1)*(s+d*s/n); !row.m.loses && most > bound || most > bound+s*(d/n) {
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
	} {
		row.m.bound = func(uint8) int { return row.bound }
		flawed := row.m
		flawed.flaws = row.flaws
		counterexample(t, row.name, model[countState](flawed), model[countState](row.m))
	}
	bucket := counting{n: 2, gateways: 2, fails: anyLink, time: dripping, drips: 3}
	bucket.bound = func(drips uint8) int { return []int{3, 4, 6, 7}[drips] }
	flawed := bucket
	flawed.flaws.wholeTokens = true
	counterexample(t, "parts of a token are not charged", model[countState](flawed), model[countState](bucket))

	slots := holding{n: 4, gateways: 2, fails: anyLink, bound: 6}
	apart, late := slots, slots
	apart.apart, late.lateCalls = true, true
	counterexample(t, "slots of the share are not reported", model[slotState](apart), model[slotState](slots))
	counterexample(t, "late calls take and release slots", model[slotState](late), model[slotState](slots))
}

// Before the fixes, twice the limit was allowed: where 15 of 10 is the bound, 20 requests
// in a window, and where 6 of 4 is the bound, 8 requests inside.
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

// What exceeds the bounds of an outage, as the table at the head of this file says.
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
