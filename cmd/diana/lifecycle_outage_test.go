// SPDX-License-Identifier: MIT

package main

import (
	"fmt"
	"math"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/diana-limiter/diana/internal/redistest"
	"github.com/diana-limiter/diana/internal/testproc"
)

// room holds requests for /c until the test releases their slots.
type room struct {
	mu      sync.Mutex
	guests  []guest // the oldest first
	entered int     // requests since the start
	most    int     // the most that were inside at once
	limit   int     // if above 0: requests that find so many inside are counted in excess
	excess  int
	closed  bool // requests leave at once
}

// guest is a request in the room.
type guest struct {
	gateway string // of the query
	leave   chan struct{}
}

// hold is the handler of the room.
func (r *room) hold(_ http.ResponseWriter, req *http.Request) {
	if req.URL.Path != "/c" {
		return
	}
	g := guest{req.URL.Query().Get("gateway"), make(chan struct{})}
	r.mu.Lock()
	if r.closed {
		r.mu.Unlock()
		return
	}
	if r.limit > 0 && len(r.guests) >= r.limit {
		r.excess++
	}
	r.guests = append(r.guests, g)
	r.entered++
	r.most = max(r.most, len(r.guests))
	r.mu.Unlock()
	select {
	case <-g.leave:
	case <-req.Context().Done():
	}
}

// inside returns how many requests are in the room.
func (r *room) inside() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.guests)
}

// visits returns how many requests have entered the room.
func (r *room) visits() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.entered
}

// expect sets how many requests may be in the room when one arrives, and resets what seen returns.
func (r *room) expect(limit int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.limit, r.excess, r.most = limit, 0, len(r.guests)
}

// seen returns the most requests in the room at once, and how many arrived above the limit.
func (r *room) seen() (most, excess int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.most, r.excess
}

// close ends all requests, also those that arrive later: a client may still be on its way.
func (r *room) close() {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.release("", math.MaxInt)
}

// release ends up to n requests of a gateway, or of all gateways if it is empty.
func (r *room) release(gateway string, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.guests = slices.DeleteFunc(r.guests, func(g guest) bool {
		if n == 0 || gateway != "" && g.gateway != gateway {
			return false
		}
		close(g.leave)
		n--
		return true
	})
}

// A gateway that has just started admits the whole limit, also if another gateway has no traffic.
func TestFreshGatewayAdmitsAll(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	yaml := fmt.Sprintf(`
redis: {url: %q, %s}
limits:
- {url: /, rules: [{actor: "query:of", algo: W, align: first, unit: 5s, rpu: 10, scope: global}]}
`, redistest.Start(t).URL(), patient)
	for _, of := range []string{"alone", "second"} {
		for {
			g := serve(t, yaml, s.upstream.URL)
			begin := time.Now()
			ok := s.allowed(t, g.url+"/?of="+of, 11)
			if time.Since(begin) > 5*time.Second { // the window may have ended meanwhile
				of += "-again"
				continue
			}
			if ok != 10 {
				t.Errorf("%s: %d of 11 requests admitted, want 10", of, ok)
			}
			break
		}
	}
}

// A Redis that becomes reachable again still has its counts, and the gateways debit what they
// admitted meanwhile. After Redis has lost its memory, the gateways admit no more than the bound of
// an outage.
func TestReturnRemembers(t *testing.T) {
	t.Parallel()
	const n, share = 10, 5
	for _, row := range []struct {
		name       string
		unit       string
		before     int // requests through gateway 0 before the outage
		harm, heal func(*redistest.Server)
		most       int // bound
		least      int
		moment     bool // so short that no gateway reports it
	}{
		{"nothing before", "744h", 0, (*redistest.Server).Freeze, (*redistest.Server).Thaw, n, n, false},
		{"some before", "744h", 3, (*redistest.Server).Freeze, (*redistest.Server).Thaw, n, n, false},
		{"all before", "744h", n, (*redistest.Server).Freeze, (*redistest.Server).Thaw, 2*n - share, 2*n - share, false},
		{"all before, then empty", "10s", n, (*redistest.Server).Kill, (*redistest.Server).Restart, 2*n - share, 2*n - share, false},
		{"a moment", "744h", 0, (*redistest.Server).Freeze, (*redistest.Server).Thaw, 2*n - share, n, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			r := redistest.Start(t)
			way := fmt.Sprintf("url: %q, timeout: 400ms", r.URL())
			f := startFleet(t, []string{way, way}, 4, fmt.Sprintf(`
- {url: /w, rules: [{actor: "query:of", algo: W, unit: %s, rpu: %d, scope: global}]}
`, row.unit, n))
			if row.unit == "10s" { // all within one window
				if into := time.Since(time.Now().Truncate(10 * time.Second)); into > 4*time.Second {
					time.Sleep(10*time.Second - into)
				}
			}
			window := time.Now().Truncate(10 * time.Second)
			path := "/w?of=0"
			ask := func(gateway, requests int) (ok int) {
				for range requests {
					if f.ask(t, gateway, path).status == http.StatusOK {
						ok++
					}
				}
				return ok
			}
			late := f.gateways[0].metric(t, "diana_fallback_total")
			before := ask(0, row.before)
			for of := 1; f.gateways[0].metric(t, "diana_fallback_total") > late; of++ { // Redis was late, so the share decided
				path = fmt.Sprint("/w?of=", of)
				late = f.gateways[0].metric(t, "diana_fallback_total")
				before = ask(0, row.before)
			}
			if before != row.before {
				t.Errorf("%d of %d admitted before the outage", before, row.before)
			}
			row.harm(r)
			requests := n
			if row.moment {
				requests = 3 // more would have each gateway use its share up
			} else {
				for g := range 2 {
					f.awaitDegraded(t, g, true)
				}
			}
			during := ask(0, requests) + ask(1, requests)
			row.heal(r)
			for g := range 2 {
				f.awaitDegraded(t, g, false)
			}
			after := 0
			for range n {
				after += ask(0, 1) + ask(1, 1)
			}
			if row.unit == "10s" && !time.Now().Truncate(10*time.Second).Equal(window) {
				t.Skip("the machine is so slow that the window has ended")
			}
			if sum := before + during + after; sum > row.most || sum < row.least {
				t.Errorf("%d admitted before the outage, %d during it, %d after it: %d, want %d to %d", before, during, after, sum, row.least, row.most)
			}
			if before+during >= n && after > 0 {
				t.Errorf("%d admitted after the return, where %d had used up the limit of %d", after, before+during, n)
			}
			t.Logf("%d admitted before the outage, %d during it, %d after it", before, during, after)
		})
	}
}

// Concurrency slots stay counted during an outage and after it: at most n + (g-1) shares are held
// meanwhile, and then no request enters until fewer than n are held.
func TestSlotsAcrossOutage(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes ten seconds")
	}
	for _, row := range []struct {
		name       string
		harm, heal func(*redistest.Server)
	}{
		{"frozen", (*redistest.Server).Freeze, (*redistest.Server).Thaw},
		{"killed", (*redistest.Server).Kill, (*redistest.Server).Restart},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			r := redistest.Start(t)
			s := newSlots(t, r)
			s.fill(0)
			row.harm(r)
			for g := range s.gateways {
				s.awaitDegraded(t, g, true)
			}
			s.room.expect(0)
			trying := s.try(0, 1, 2)
			most := slotsLimit + 2*(slotsLimit/3)
			if !testproc.Becomes(func() bool { return s.room.inside() == most }) {
				t.Errorf("%d are inside without Redis, want %d", s.room.inside(), most)
			}
			s.room.expect(most)
			row.heal(r)
			for g := range s.gateways {
				s.awaitDegraded(t, g, false)
			}
			back := s.room.inside()
			time.Sleep(4 * time.Second) // attempts, also when the shares no longer hold
			if inside, _ := s.room.seen(); inside > most || s.room.inside() != back {
				t.Errorf("%d are inside, and were %d when Redis came back, want %d at most", inside, back, most)
			}
			s.expectFull()
			s.room.release("0", 5)  // 15 stay
			time.Sleep(time.Second) // attempts
			s.room.release("", 5)   // 10 stay
			s.awaitFull(t, "after the return")
			trying.stop()

			// A slot that is released during an outage is free after it.
			s.room.release("", 2*slotsLimit)
			s.fill(1)
			row.harm(r)
			for g := range s.gateways {
				s.awaitDegraded(t, g, true)
			}
			s.room.release("1", 7)
			row.heal(r)
			for g := range s.gateways {
				s.awaitDegraded(t, g, false)
			}
			s.expectFull()
			trying = s.try(2)
			s.awaitFull(t, "after slots were released without Redis")
			trying.stop()
		})
	}
}

// slotsLimit is the concurrency limit of a slotsFleet.
const slotsLimit = 12

// slotsFleet is three gateways with a concurrency limit, and clients that hold their slots.
type slotsFleet struct {
	*fleet
	t    *testing.T
	room *room
	late float64        // requests that were evaluated without Redis before expectFull
	done sync.WaitGroup // clients
}

func newSlots(t *testing.T, r *redistest.Server) *slotsFleet {
	t.Helper()
	way := fmt.Sprintf("url: %q, timeout: 400ms", r.URL())
	s := &slotsFleet{t: t, room: &room{}}
	s.fleet = startFleetFor(t, s.room.hold, []string{way, way, way}, 64,
		fmt.Sprintf("- {url: /c, rules: [{algo: C, rpu: %d, scope: global}]}", slotsLimit))
	t.Cleanup(s.leave)
	return s
}

// leave ends all requests and waits for their answers.
func (s *slotsFleet) leave() {
	s.room.close()
	s.done.Wait()
}

// enter sends a request in the background, and returns when it is in the room or refused.
func (s *slotsFleet) enter(gateway int) {
	answered := make(chan struct{})
	before := s.room.visits()
	s.done.Go(func() {
		defer close(answered)
		s.ask(s.t, gateway, fmt.Sprintf("/c?gateway=%d", gateway))
	})
	for s.room.visits() == before {
		select {
		case <-answered:
			return
		case <-time.After(time.Millisecond):
		}
	}
}

// fill sends requests through one gateway until all slots are taken.
func (s *slotsFleet) fill(gateway int) {
	s.t.Helper()
	if !testproc.Becomes(func() bool {
		s.enter(gateway)
		return s.room.inside() == slotsLimit
	}) {
		s.t.Fatalf("%d are inside, want %d", s.room.inside(), slotsLimit)
	}
}

// fallbacks returns how many requests the gateways have evaluated without Redis.
func (s *slotsFleet) fallbacks() (n float64) {
	for _, g := range s.gateways {
		n += g.metric(s.t, "diana_fallback_total")
	}
	return n
}

// expectFull has the room count requests that arrive when all slots are taken.
func (s *slotsFleet) expectFull() {
	s.late = s.fallbacks()
	s.room.expect(slotsLimit)
}

// awaitFull waits until all slots are taken, and checks that no request arrived beyond that since expectFull. While
// Redis is late, a gateway admits its share. So after that it frees some slots and checks again.
func (s *slotsFleet) awaitFull(t *testing.T, when string) {
	t.Helper()
	full := func() bool {
		if !testproc.Becomes(func() bool { return s.room.inside() >= slotsLimit }) {
			t.Fatalf("%s: %d are inside, want %d", when, s.room.inside(), slotsLimit)
		}
		return s.fallbacks() == s.late
	}
	for !full() {
		s.expectFull()
		s.room.release("", slotsLimit/2)
	}
	if most, excess := s.room.seen(); excess > 0 {
		t.Errorf("%s: %d requests arrived where %d were inside, %d at most", when, excess, slotsLimit, most)
	}
}

// attempts are clients that try to enter, one after another.
type attempts struct {
	ending chan struct{}
	ended  sync.WaitGroup
}

// try starts a client for each of the gateways that tries to enter until stop.
func (s *slotsFleet) try(gateways ...int) *attempts {
	a := &attempts{ending: make(chan struct{})}
	for _, g := range gateways {
		a.ended.Go(func() {
			for {
				select {
				case <-a.ending:
					return
				case <-time.After(10 * time.Millisecond):
					s.enter(g)
				}
			}
		})
	}
	s.t.Cleanup(a.stop)
	return a
}

// stop ends the attempts.
func (a *attempts) stop() {
	select {
	case <-a.ending:
	default:
		close(a.ending)
	}
	a.ended.Wait()
}

// At SIGTERM while Redis is away, what was charged without it reaches Redis if that returns before the end of the drain.
// Otherwise, as after a second signal, the log says what is lost, by rule. The last line is that of the drain.
func TestDrainWhileRedisIsAway(t *testing.T) {
	t.Parallel()
	for _, then := range []string{"Redis returns", "the time ends", "a second signal", "a second signal cuts a request off"} {
		t.Run(then, func(t *testing.T) {
			t.Parallel()
			returns, cut := then == "Redis returns", then == "a second signal cuts a request off"
			slots := &room{}
			defer slots.close()
			s := newSite(t, slots.hold)
			r := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
			yaml := fmt.Sprintf(`
redis: {url: %q, %s}
limits:
- {url: /, rules: [{name: day, algo: W, unit: 24h, rpu: 1000, scope: global}, {name: own, actor: "header:X-A", algo: TB, unit: 24h, rpu: 5000, scope: global}]}
`, r.URL(), patient)
			drain := "1m" // so that a busy machine has Redis back, or sends the signal, before
			if then == "the time ends" {
				drain = "4s"
			}
			g := serve(t, yaml, s.upstream.URL, "--drain-timeout", drain)
			testproc.Eventually(t, func() bool { return !g.status(t).Degraded })
			r.Kill()
			testproc.Eventually(t, func() bool { return g.status(t).Degraded })
			charged := 30
			if cut {
				var held sync.WaitGroup
				defer held.Wait()
				held.Go(func() { _, _ = s.ask(g.url + "/c") })
				testproc.Eventually(t, func() bool { return slots.inside() == 1 })
				charged++
			}
			if ok := s.allowed(t, g.url, 30); ok != 30 {
				t.Fatalf("%d of 30 allowed", ok)
			}
			if err := g.cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			testproc.Eventually(t, func() bool { return strings.Contains(g.log.String(), "msg=draining") })
			last := []string{"msg=drained"}
			switch {
			case returns:
				r.Restart()
			case then != "the time ends":
				if cutOff := `msg="requests in flight are cut off" reason=terminated`; cut {
					last = []string{cutOff}
				} else {
					last = append(last, cutOff) // a connection that has just begun can be in flight
				}
				testproc.Eventually(t, func() bool {
					conn, err := net.Dial("tcp", strings.TrimPrefix(g.url, "http://"))
					if err == nil {
						conn.Close()
					}
					return err != nil
				})
				if err := g.cmd.Process.Signal(syscall.SIGTERM); err != nil {
					t.Fatal(err)
				}
			}
			if err := g.cmd.Wait(); err != nil {
				t.Error(err)
			}
			log := strings.TrimSpace(g.log.String())
			if line := log[strings.LastIndexByte(log, '\n')+1:]; !slices.ContainsFunc(last, func(want string) bool { return strings.Contains(line, want) }) {
				t.Errorf("the last line is %s, want %q", line, last)
			}
			lost := strings.Contains(log, fmt.Sprint(`msg="Redis has not received what was charged without it" rule=day actors=1 sum=`, charged))
			if lost == returns {
				t.Errorf("a loss is logged: %v\n%s", lost, log)
			}
			if !returns {
				return
			}
			next := serve(t, yaml, s.upstream.URL)
			testproc.Eventually(t, func() bool { return !next.status(t).Degraded })
			if ok := s.allowed(t, next.url, 1000); ok != 970 {
				t.Errorf("%d of 1000 allowed after 30, want 970", ok)
			}
		})
	}
}
