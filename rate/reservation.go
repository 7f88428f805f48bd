// SPDX-License-Identifier: MIT

package rate

import (
	"context"
	"slices"
	"time"

	"github.com/diana-limiter/diana/limit"
)

// Reservation is what Reserve has taken. Its methods are safe for concurrent use.
type Reservation struct {
	limiter   *Limiter
	charge    limit.Charge
	wait      time.Duration // when it was made
	turn      int64         // moment to go on, by the limiter's clock; 0: at once
	cancelled bool          // guarded by limiter.mu
}

// Delay returns how long it is until the caller may go on; 0 if it may.
func (r *Reservation) Delay() time.Duration {
	return time.Duration(max(r.turn-r.limiter.now(), 0)) * time.Microsecond
}

// Cancel tells that the caller does not go on. If its turn has not come, it gives back what
// was reserved: to the last who reserved, and if that one cancels too, to the one before.
// Whoever has reserved behind keeps the turn that it was told, and no two may have one; so a
// turn with another behind it passes unused, unless those behind are cancelled as well. Of a
// rate that is shared, those of other processes count too.
func (r *Reservation) Cancel() {
	l := r.limiter
	l.mu.Lock()
	defer l.mu.Unlock()
	if r.cancelled || r.turn <= l.now() {
		return
	}
	r.cancelled = true
	for last := len(l.ahead) - 1; last >= 0 && l.ahead[last].cancelled; last-- {
		l.store.Refund([]limit.Charge{l.ahead[last].charge})
		l.ahead[last] = nil
		l.ahead = l.ahead[:last]
	}
}

// sleep waits for the turn.
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

// add notes a reservation that has to wait. l.mu is held.
func (l *Limiter) add(r *Reservation) {
	if len(l.ahead) == cap(l.ahead) { // it grows only when as many wait
		now := l.now()
		l.ahead = slices.DeleteFunc(l.ahead, func(o *Reservation) bool { return o.turn <= now })
	}
	i := len(l.ahead) // and behind those who have the same turn
	for i > 0 && l.ahead[i-1].place() > r.place() {
		i--
	}
	l.ahead = slices.Insert(l.ahead, i, r)
}

// place is the turn by the store's clock, as the answers of a store come in any order.
func (r *Reservation) place() int64 { return r.charge.At + r.charge.Outcome.Wait }
