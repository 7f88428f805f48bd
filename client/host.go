// SPDX-License-Identifier: MIT

package client

import (
	"context"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/diana-limiter/diana/internal/fields"
)

// host is what is known of a server, and who waits for it.
//
// How many calls the server would allow now is not known, as answers are late: while one
// was on its way, others have been counted. But some number can be relied on. Take an answer,
// to call i. All that the server can have counted after i are the calls that had not
// been answered when i was sent, and those sent since. Look at the answers among these that
// have come, and at that of i: the server has counted one of their calls last, and after
// that only some of those that have not been answered yet. So there is left, at least,
//
//	the least that any of these answers tells, less the calls that are still under way
//
// With time passing there can only be more. i is the call sent last of those that have been
// answered, so that what is known is as new as can be. Order of arrival has no part in it:
// an answer that was overtaken by others can lower the number, and never raises it.
//
// A call that fails may have been counted, or may be yet. So it counts until i is a call that
// was sent a second later, or two; unless there was no connection to send it by.
type host struct {
	name        string
	used, users uint64 // guarded by Transport.mu

	mu       sync.Mutex         // guards the rest
	events   uint64             // sendings and answers, which are numbered together
	underWay map[*call]struct{} // calls that have not been answered
	asks     set                // what these ask

	// Each policy of the server has a number below mostPolicies: its place here, and its
	// bit in a set.
	policies [mostPolicies]policy
	pending  [mostPolicies]int64 // calls under way that may count under it

	// folders are the policies of the calls to each folder, with its method. Those of
	// another are not known, and can be any. So a limit that is used up holds up no other
	// part of the server that has been called before.
	folders map[string]set

	until    time.Time // moment before which the server wants no call
	refused  uint64    // event of the answer that said so; until a later call is answered, one goes ahead
	sleepers []*sleeper
}

// Bounds of what is remembered of a host.
const (
	mostPolicies = 16
	mostFolders  = 256
)

type set uint32

const (
	anyPolicy set = 1<<mostPolicies - 1
	whole     set = 1 << mostPolicies // the server as such, whatever its policies
)

func (s set) has(i int) bool { return s>>i&1 != 0 }

// policy is a limit of the server.
type policy struct {
	name string // empty: none
	told uint64 // event at which it was told last

	base    uint64   // event at which the call was sent that was sent last, of those answered
	answers []answer // after base, the least first; of those with as much left the later

	lost losses
}

// losses are how many calls have failed that count still.
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

// forget forgets those that are older than a call that has been answered.
func (l *losses) forget(sent time.Time) {
	switch {
	case sent.Sub(l.last) > lossCounts:
		*l = losses{}
	case sent.Sub(l.since) > lossCounts:
		l.earlier, l.recent, l.since = l.recent, 0, sent
	}
}

const lossCounts = time.Second

// answer is what was told of a policy.
type answer struct {
	at       uint64 // event
	left     int64
	resets   time.Time // moment from which there may be more
	timeless bool      // which the server has not told
}

// hear notes an answer to a call.
func (p *policy) hear(c *call, a answer) {
	p.told = a.at
	if c.sent > p.base {
		p.base = c.sent
		p.answers = slices.DeleteFunc(p.answers, func(a answer) bool { return a.at < c.sent })
		p.lost.forget(c.when)
	}
	for n := len(p.answers); n > 0 && p.answers[n-1].left >= a.left; n-- {
		p.answers = p.answers[:n-1]
	}
	p.answers = append(p.answers, a)
}

// call is a call that is under way.
type call struct {
	sent   uint64 // event
	when   time.Time
	folder string
	may    set // be counted under these policies
	asks   set // whether there is more of these: what no other under way may
}

// sleeper is a call that waits until it may be sent.
type sleeper struct {
	folder string
	looks  bool          // it wants to know, and is not sent yet
	call   *call         // nil: it may not
	wake   chan struct{} // gets a value when it is to look anew
}

// enter waits until a call to a folder may be sent, and counts it as sent.
func (h *host) enter(ctx context.Context, folder string, patience time.Duration) (*call, error) {
	return h.sleep(ctx, &sleeper{folder: folder, wake: make(chan struct{}, 1)}, patience)
}

// ready waits until such a call could be sent.
func (h *host) ready(ctx context.Context, folder string, patience time.Duration) error {
	_, err := h.sleep(ctx, &sleeper{folder: folder, looks: true, wake: make(chan struct{}, 1)}, patience)
	return err
}

func (h *host) sleep(ctx context.Context, s *sleeper, patience time.Duration) (*call, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	now := time.Now()
	end := now.Add(patience)
	if deadline, ok := ctx.Deadline(); ok && deadline.Before(end) {
		end = deadline
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.sleepers = append(h.sleepers, s)
	h.admit(now)
	if s.call != nil {
		return s.call, nil
	}
	defer func() {
		if i := slices.Index(h.sleepers, s); i >= 0 {
			h.sleepers = slices.Delete(h.sleepers, i, i+1)
			h.rouse() // it may have been the one that looks at the clock
		}
	}()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		_, _, until := h.allows(h.may(s.folder), now)
		if until.After(end) || !now.Before(end) {
			return nil, &RefusedError{Host: h.name, RetryAfter: max(until.Sub(now), 0)}
		}
		if until.IsZero() { // an answer will tell
			until = end
		}
		timer.Reset(until.Sub(now))
		h.mu.Unlock()
		var err error
		select {
		case <-timer.C:
		case <-s.wake:
		case <-ctx.Done():
			err = ctx.Err()
		}
		h.mu.Lock()
		now = time.Now()
		if s.call == nil && err == nil {
			h.admit(now)
		}
		switch {
		case err != nil && s.call != nil && !s.looks: // it is not sent after all
			h.finish(s.call)
			h.admit(now)
			h.rouse()
			return nil, err
		case err != nil:
			return nil, err
		case s.call != nil:
			return s.call, nil
		}
	}
}

// admit lets go on who may, in order of arrival. h.mu is held.
func (h *host) admit(now time.Time) {
	var not []set // those that are not allowed just now
	h.sleepers = slices.DeleteFunc(h.sleepers, func(s *sleeper) bool {
		may := h.may(s.folder)
		if slices.Contains(not, may) {
			return false
		}
		asks, ok, _ := h.allows(may, now)
		if !ok {
			not = append(not, may)
			return false
		}
		s.call = &call{folder: s.folder, may: may, asks: asks}
		if !s.looks {
			h.events++
			s.call.sent, s.call.when = h.events, now
			if h.underWay == nil {
				h.underWay = map[*call]struct{}{}
			}
			h.underWay[s.call] = struct{}{}
			h.asks |= asks
			h.count(may, 1)
		}
		s.look()
		return true
	})
}

// rouse wakes the first of those who wait for the same policies, so that it sets its clock
// anew. When that tells the time it looks for all of them. h.mu is held.
func (h *host) rouse() {
	var roused []set
	for _, s := range h.sleepers {
		if may := h.may(s.folder); !slices.Contains(roused, may) {
			roused = append(roused, may)
			s.look()
		}
	}
}

// look wakes a sleeper, which finds out why.
func (s *sleeper) look() {
	select {
	case s.wake <- struct{}{}:
	default: // it has been woken already
	}
}

// may returns the policies that a call to a folder can be counted under.
func (h *host) may(folder string) set {
	if s, ok := h.folders[folder]; ok {
		return s
	}
	return anyPolicy
}

// allows reports whether a call that can be counted under these policies may be sent, and
// otherwise the moment from which it may; zero if that depends on an answer to come. Where
// there is more but nobody knows how much, one call asks, and the others wait for its answer.
// They do not wait for those sent before, which can take long: there was room for these.
func (h *host) allows(may set, now time.Time) (asks set, ok bool, until time.Time) {
	if now.Before(h.until) {
		return 0, false, h.until
	}
	ok = true
	if h.refused > 0 {
		asks = whole
	}
	for i := range h.policies {
		p := &h.policies[i]
		if p.name == "" || !may.has(i) {
			continue
		}
		least := p.answers[0]
		switch {
		case least.left-p.lost.recent-p.lost.earlier > h.pending[i]:
		case now.Before(least.resets):
			if least.resets.After(until) {
				until = least.resets
			}
		case least.timeless && h.pending[i] > 0: // until these end there may be no more
			ok = false
		default:
			asks |= 1 << i
		}
	}
	return asks, ok && until.IsZero() && asks&h.asks == 0, until
}

// count adds to the calls under way that may count under these policies.
func (h *host) count(may set, n int64) {
	for i := range h.pending {
		if may.has(i) {
			h.pending[i] += n
		}
	}
}

// finish tells that a call is no longer under way, and was not counted by the server.
func (h *host) finish(c *call) {
	delete(h.underWay, c)
	h.asks &^= c.asks
	h.count(c.may, -1)
}

// drop tells that a call has not got to the server.
func (h *host) drop(c *call) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.finish(c)
	h.admit(time.Now())
	h.rouse()
}

// answered notes what a server has answered to a call; nil: nothing.
func (h *host) answered(c *call, r *http.Response) {
	now := time.Now()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.events++
	h.finish(c)
	if r == nil {
		for i := range h.policies {
			if c.may.has(i) {
				h.policies[i].lost.add(now)
			}
		}
	} else {
		h.learn(c, r, now)
	}
	h.admit(now)
	h.rouse()
}

// learn notes what an answer tells.
func (h *host) learn(c *call, r *http.Response, now time.Time) {
	pause, refusal := fields.ReadRetryAfter(r, now)
	var told set
	usedUp := false // a policy says why the call was refused, and so which others are not
	for _, f := range fields.Read(r.Header, now) {
		if refusal && f.Remaining <= 0 {
			f.Reset = max(f.Reset, pause)
			usedUp = true
		}
		i := h.policy(f.Name)
		h.policies[i].hear(c, answer{h.events, f.Remaining, now.Add(f.Reset), f.NoReset})
		told |= 1 << i
	}
	h.place(c.folder, told, now)
	switch {
	case refusal && !usedUp:
		if until := now.Add(pause); until.After(h.until) {
			h.until = until
		}
		h.refused = h.events
	case !refusal && c.sent > h.refused:
		h.refused = 0
	}
}

// policy returns the number of a policy. One too many takes the place of the one that has
// not been told of for longest.
func (h *host) policy(name string) int {
	oldest := 0
	for i := range h.policies {
		if h.policies[i].name == name {
			return i
		}
		if h.policies[i].told < h.policies[oldest].told {
			oldest = i
		}
	}
	h.policies[oldest] = policy{name: name, lost: h.policies[oldest].lost}
	for folder, s := range h.folders {
		h.folders[folder] = s &^ (1 << oldest)
	}
	return oldest
}

// place notes which policies were told of a call to a folder. Not all calls there may
// count under the same; so others stay, unless there is reason to think that they are gone.
// Calls there that are under way may count under what is new as well.
func (h *host) place(folder string, told set, now time.Time) {
	was, ok := h.folders[folder]
	for i := range h.policies {
		if p := &h.policies[i]; ok && was.has(i) && p.name != "" && now.Before(p.answers[0].resets) {
			told |= 1 << i
		}
	}
	if h.folders == nil || !ok && len(h.folders) >= mostFolders {
		h.folders = map[string]set{}
	}
	h.folders[folder] = told
	if ok && told&^was == 0 {
		return
	}
	for c := range h.underWay {
		if c.folder == folder {
			h.count(told&^c.may, 1)
			c.may |= told
		}
	}
}
