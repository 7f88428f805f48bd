// SPDX-License-Identifier: MIT

package client

import (
	"context"
	"slices"
	"time"

	"github.com/diana-limiter/diana/internal/waitqueue"
)

// waiter is a call that waits until it may be sent.
//
// The waiters of a host are in order of arrival, but not in a waitqueue.Queue, because such a
// queue has one head. Calls to several folders can count under different policies. So any waiter
// can be the first that may be sent, and several leave at once.
type waiter struct {
	waitqueue.Signal
	folder string
	peeks  bool  // whether the call is not to be sent yet
	call   *call // nil until the call may be sent
}

// enter waits until a call to a folder may be sent, and counts it as sent.
func (h *host) enter(ctx context.Context, folder string, maxWait time.Duration) (*call, error) {
	return h.wait(ctx, &waiter{Signal: waitqueue.NewSignal(), folder: folder}, maxWait)
}

// ready waits until a call to a folder could be sent.
func (h *host) ready(ctx context.Context, folder string, maxWait time.Duration) error {
	_, err := h.wait(ctx, &waiter{Signal: waitqueue.NewSignal(), folder: folder, peeks: true}, maxWait)
	return err
}

func (h *host) wait(ctx context.Context, w *waiter, maxWait time.Duration) (*call, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	now := time.Now()
	end := now.Add(maxWait)
	if deadline, ok := ctx.Deadline(); ok && deadline.Before(end) {
		end = deadline
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.waiters = append(h.waiters, w)
	h.admit(now)
	if w.call != nil {
		return w.call, nil
	}
	defer h.leave(w)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		_, _, until := h.allows(h.policiesOf(w.folder), now)
		if until.After(end) || !now.Before(end) {
			return nil, &RefusedError{Host: h.name, RetryAfter: max(until.Sub(now), 0)}
		}
		if until.IsZero() { // a response will say
			until = end
		}
		timer.Reset(until.Sub(now))
		h.mu.Unlock()
		err := w.Sleep(ctx, timer.C)
		h.mu.Lock()
		now = time.Now()
		if w.call == nil && err == nil {
			h.admit(now)
		}
		switch {
		case err != nil && w.call != nil && !w.peeks: // the call is not sent after all
			h.finish(w.call)
			h.admit(now)
			h.wakeFirst()
			return nil, err
		case err != nil:
			return nil, err
		case w.call != nil:
			return w.call, nil
		}
	}
}

// leave removes a waiter that has not been admitted. It may have been the one whose timer runs for
// others. h.mu is held.
func (h *host) leave(w *waiter) {
	if i := slices.Index(h.waiters, w); i >= 0 {
		h.waiters = slices.Delete(h.waiters, i, i+1)
		h.wakeFirst()
	}
}

// admit lets the waiters proceed whose calls may be sent, in order of arrival. h.mu is held.
func (h *host) admit(now time.Time) {
	var refused []set // the policies of waiters that may not proceed now
	h.waiters = slices.DeleteFunc(h.waiters, func(w *waiter) bool {
		under := h.policiesOf(w.folder)
		if slices.Contains(refused, under) {
			return false
		}
		probes, ok, _ := h.allows(under, now)
		if !ok {
			refused = append(refused, under)
			return false
		}
		w.call = &call{folder: w.folder, under: under, probes: probes}
		if !w.peeks {
			h.send(w.call, now)
		}
		w.Wake()
		return true
	})
}

// send counts a call as sent. h.mu is held.
func (h *host) send(c *call, now time.Time) {
	h.events++
	c.sent, c.when = h.events, now
	if h.inFlight == nil {
		h.inFlight = map[*call]struct{}{}
	}
	h.inFlight[c] = struct{}{}
	h.probing |= c.probes
	h.count(c.under, 1)
}

// wakeFirst wakes the first waiter of each set of policies, so that it sets its timer again. When
// the timer ends, that waiter admits all others. h.mu is held.
func (h *host) wakeFirst() {
	var woken []set
	for _, w := range h.waiters {
		if under := h.policiesOf(w.folder); !slices.Contains(woken, under) {
			woken = append(woken, under)
			w.Wake()
		}
	}
}
