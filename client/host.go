// SPDX-License-Identifier: MIT

package client

import (
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/diana-limiter/diana/internal/fields"
)

// host is what is known of a server, and the calls that wait for it.
//
// Responses arrive late: the server has counted other calls while a response was on its way. So the
// number of calls that the server would allow now is not known, but a lower bound is. Take the
// response to a call i. After i the server can have counted only two groups of calls: those in
// flight when i was sent, and those sent since. Consider the responses to these calls that have
// arrived, and the response to i. The server has counted one of their calls last, and after that
// only calls that are still in flight. So at least this number of calls is left:
//
//	the least that any of these responses reports, minus the calls that are still in flight
//
// With time more calls can become available, never fewer. i is the latest call sent of those that
// have been answered, because its response is the newest knowledge. The order in which responses
// arrive does not matter: a response that was overtaken by others can lower the number, and never
// raises it.
//
// The server may have counted a call that fails, or may still count it. So such a call counts until
// i is a call that was sent one to two seconds later. A call that found no connection does not
// count.
type host struct {
	name        string
	used, users uint64 // guarded by Transport.mu

	mu       sync.Mutex         // guards the rest
	events   uint64             // numbers calls sent and responses received, in one sequence
	inFlight map[*call]struct{} // calls without a response
	probing  set                // what these calls probe

	// Each policy of the server has a number below maxPolicies: its index here, and its bit in
	// a set.
	policies [maxPolicies]policy
	pending  [maxPolicies]int64 // calls in flight that may count under the policy

	// folders are the policies of the calls to each folder, with its method. The policies of a
	// folder that has not been called are not known, and can be any. So a limit that is used up
	// holds up no other folder that has been called before.
	folders map[string]set

	pausedUntil time.Time // the server wants no call before this time
	refused     uint64    // event of the response that said so; until a later call is answered, one call probes
	waiters     []*waiter // in order of arrival
}

// Bounds of what a host remembers.
const (
	maxPolicies = 16
	maxFolders  = 256
)

type set uint32

const (
	anyPolicy set = 1<<maxPolicies - 1
	whole     set = 1 << maxPolicies // the server itself, whatever its policies are
)

func (s set) has(i int) bool { return s>>i&1 != 0 }

// policy is a limit of the server.
type policy struct {
	name     string // empty: none
	reported uint64 // event of the last response that reported the policy

	base    uint64   // event at which the latest call was sent of those that have been answered
	reports []report // of responses after base, the least first; of equal ones the latest

	lost losses
}

// losses are how many calls have failed and still count.
type losses struct {
	recent, earlier int64
	since           time.Time // of recent
	last            time.Time
}

func (l *losses) add(now time.Time) {
	if l.recent+l.earlier == 0 {
		l.since = now
	}
	l.recent++
	l.last = now
}

// forget forgets the calls that failed well before an answered call was sent.
func (l *losses) forget(sent time.Time) {
	switch {
	case sent.Sub(l.last) > lossTime:
		*l = losses{}
	case sent.Sub(l.since) > lossTime:
		l.earlier, l.recent, l.since = l.recent, 0, sent
	}
}

// lossTime is how long a failed call counts, at least.
const lossTime = time.Second

// report is what one response says of a policy.
type report struct {
	at       uint64 // event
	left     int64
	resets   time.Time // when more calls may become available
	timeless bool      // the server has not said when
}

// observe notes what the response to a call says.
func (p *policy) observe(c *call, r report) {
	p.reported = r.at
	if c.sent > p.base {
		p.base = c.sent
		p.reports = slices.DeleteFunc(p.reports, func(old report) bool { return old.at < c.sent })
		p.lost.forget(c.when)
	}
	for n := len(p.reports); n > 0 && p.reports[n-1].left >= r.left; n-- {
		p.reports = p.reports[:n-1]
	}
	p.reports = append(p.reports, r)
}

// call is a call that has been sent.
type call struct {
	sent   uint64 // event
	when   time.Time
	folder string
	under  set // policies that it may count under
	probes set // policies of which it finds out how much is left, while no other call may
}

// policiesOf returns the policies that a call to a folder may count under.
func (h *host) policiesOf(folder string) set {
	if s, ok := h.folders[folder]; ok {
		return s
	}
	return anyPolicy
}

// allows reports whether a call that may count under these policies may be sent. Otherwise until is
// when it may be sent, or zero if that depends on a response. If more calls have become
// available but nobody knows how many, one call probes, and the others wait for its response. They
// do not wait for calls sent before it, which can take long, because the server had room for those.
func (h *host) allows(under set, now time.Time) (probes set, ok bool, until time.Time) {
	if now.Before(h.pausedUntil) {
		return 0, false, h.pausedUntil
	}
	ok = true
	if h.refused > 0 {
		probes = whole
	}
	for i := range h.policies {
		p := &h.policies[i]
		if p.name == "" || !under.has(i) {
			continue
		}
		least := p.reports[0]
		switch {
		case least.left-p.lost.recent-p.lost.earlier > h.pending[i]:
		case now.Before(least.resets):
			if least.resets.After(until) {
				until = least.resets
			}
		case least.timeless && h.pending[i] > 0: // until these calls end there may be no more
			ok = false
		default:
			probes |= 1 << i
		}
	}
	return probes, ok && until.IsZero() && probes&h.probing == 0, until
}

// count adds n to the calls in flight that may count under these policies.
func (h *host) count(under set, n int64) {
	for i := range h.pending {
		if under.has(i) {
			h.pending[i] += n
		}
	}
}

// finish removes a call from those in flight.
func (h *host) finish(c *call) {
	delete(h.inFlight, c)
	h.probing &^= c.probes
	h.count(c.under, -1)
}

// drop notes that a call did not reach the server.
func (h *host) drop(c *call) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.finish(c)
	h.admit(time.Now())
	h.wakeFirst()
}

// answered notes the response to a call. It is nil if the call has failed.
func (h *host) answered(c *call, r *http.Response) {
	now := time.Now()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.events++
	h.finish(c)
	if r == nil {
		for i := range h.policies {
			if c.under.has(i) {
				h.policies[i].lost.add(now)
			}
		}
	} else {
		h.learn(c, r, now)
	}
	h.admit(now)
	h.wakeFirst()
}

// learn notes what a response says of limits.
func (h *host) learn(c *call, r *http.Response, now time.Time) {
	pause, refusal := fields.ReadRetryAfter(r, now)
	var reported set
	usedUp := false // whether a policy says why the server refused the call, so that it refuses only calls under that policy
	for _, f := range fields.Read(r.Header, now) {
		if refusal && f.Remaining <= 0 {
			f.Reset = max(f.Reset, pause)
			usedUp = true
		}
		i := h.policy(f.Name)
		h.policies[i].observe(c, report{h.events, f.Remaining, now.Add(f.Reset), f.NoReset})
		reported |= 1 << i
	}
	h.place(c.folder, reported, now)
	switch {
	case refusal && !usedUp:
		if until := now.Add(pause); until.After(h.pausedUntil) {
			h.pausedUntil = until
		}
		h.refused = h.events
	case !refusal && c.sent > h.refused:
		h.refused = 0
	}
}

// policy returns the number of a policy. If there are too many, the policy replaces the one that no
// response has reported for longest.
func (h *host) policy(name string) int {
	oldest := 0
	for i := range h.policies {
		if h.policies[i].name == name {
			return i
		}
		if h.policies[i].reported < h.policies[oldest].reported {
			oldest = i
		}
	}
	h.policies[oldest] = policy{name: name, lost: h.policies[oldest].lost}
	for folder, s := range h.folders {
		h.folders[folder] = s &^ (1 << oldest)
	}
	return oldest
}

// place notes which policies the response to a call to a folder reported. Calls to one folder can
// count under different policies, so the folder keeps those that it had until they
// reset. Calls to the folder that are in flight may count under a new policy too.
func (h *host) place(folder string, reported set, now time.Time) {
	was, ok := h.folders[folder]
	for i := range h.policies {
		if p := &h.policies[i]; ok && was.has(i) && p.name != "" && now.Before(p.reports[0].resets) {
			reported |= 1 << i
		}
	}
	if h.folders == nil || !ok && len(h.folders) >= maxFolders {
		h.folders = map[string]set{}
	}
	h.folders[folder] = reported
	if ok && reported&^was == 0 {
		return
	}
	for c := range h.inFlight {
		if c.folder == folder {
			h.count(reported&^c.under, 1)
			c.under |= reported
		}
	}
}
