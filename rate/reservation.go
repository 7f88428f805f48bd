// SPDX-License-Identifier: MIT

package rate

import (
	"context"
	"slices"
	"time"

	"github.com/diana-limiter/diana/limit"
)

// A Reservation is what Reserve has consumed. Its methods are safe for concurrent use.
type Reservation struct {
	limiter   *Limiter
	charge    limit.Charge
	wait      time.Duration // as it was when Reserve returned
	at        int64         // scheduled time by the limiter's clock; 0: now
	cancelled bool          // guarded by limiter.mu
}

// Delay returns how long the caller still has to wait before the work may start.
func (r *Reservation) Delay() time.Duration {
	return time.Duration(max(r.at-r.limiter.now(), 0)) * time.Microsecond
}

// Cancel says that the work does not start. If its scheduled time has not come, and nobody has
// reserved behind it, Cancel refunds it. Otherwise the Limiter refunds it when all
// reservations behind it are cancelled as well, because a reservation keeps its scheduled
// time. If one of those stays, the scheduled time passes unused. Reservations of other
// processes with the same Store and Name count too.
func (r *Reservation) Cancel() {
	l := r.limiter
	l.mu.Lock()
	defer l.mu.Unlock()
	if r.cancelled || r.at <= l.now() {
		return
	}
	r.cancelled = true
	for last := len(l.pending) - 1; last >= 0 && l.pending[last].cancelled; last-- {
		l.store.Refund([]limit.Charge{l.pending[last].charge})
		l.pending[last] = nil
		l.pending = l.pending[:last]
	}
}

// sleep waits until the scheduled time.
func (r *Reservation) sleep(ctx context.Context) error {
	timer := time.NewTimer(r.wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		r.Cancel()
		return ctx.Err()
	}
}

// add adds a reservation to the pending ones. l.mu is held.
func (l *Limiter) add(r *Reservation) {
	if len(l.pending) == cap(l.pending) { // the slice grows only if all of it is still pending
		now := l.now()
		l.pending = slices.DeleteFunc(l.pending, func(o *Reservation) bool { return o.at <= now })
	}
	i := len(l.pending) // behind those of the same time
	for i > 0 && l.pending[i-1].order() > r.order() {
		i--
	}
	l.pending = slices.Insert(l.pending, i, r)
}

// order is the scheduled time by the clock of the store. It orders reservations, because the
// answers of a store can overtake one another.
func (r *Reservation) order() int64 { return r.charge.At + r.charge.Outcome.Wait }
