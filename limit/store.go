// SPDX-License-Identifier: MIT

package limit

import "context"

// Charge asks a store to count one request for one actor under one rule.
type Charge struct {
	Counters any    // of the rule; a handle from Store.Counters of the same store
	Key      []byte // the actor; the store reads it during the call and does not keep it
	Cost     int64  // 0 or more; 0 only evaluates
	Shadow   bool   // evaluate and count, but never refuse the request
	Debit    bool   // of a Shadow: consume even if refused, into debt if necessary
	Longest  int64  // under a Reserver: the longest wait that the caller accepts, in microseconds

	// Flight is what an Adaptive learns from, and is nil under another Meter. Refund reads how the request ended.
	Flight *Flight

	// Outcome is the result, which the store sets. After an allowed Take, Remaining is less
	// by Cost. A refused charge with Debit keeps the outcome of the refusal.
	Outcome Outcome

	// At is the moment of the charge, and Ticket is what else the store needs to find the
	// charge again. Take and Debit set both, for Refund and Wait.
	At     int64
	Ticket any

	// Cut is how much of a debit the state could not hold. Store.Debit sets it. It is 0 if the
	// store does not learn of it.
	Cut int64

	// Shared reports whether the store could not remember one more actor, and therefore used
	// the counter that such actors share; see [Overflow]. Peek, Take and Debit set it, and
	// Refund reads it.
	Shared bool
}

// Overflow is the Key of the counter that actors share when a store with bounded memory
// cannot remember them. No actor may have this key. A charge with this key uses that
// counter, so that a second store can count those actors together as well.
const Overflow = "\x00overflow"

// Store keeps counters and decides charges. Its methods are safe for concurrent use.
//
// Package storetest tests these rules for every implementation.
type Store interface {
	// Counters returns a handle for the counters called name, which m evaluates. Only this store
	// can use the handle. Existing
	// counters of that name keep their states, so m must have the StateVersion that they were
	// made with. The caller therefore makes the algorithm, its StateVersion and all else that
	// gives a state its meaning part of the name.
	Counters(name string, m Meter) (any, error)

	// Retire declares that no new charges will use a handle. The store may forget the
	// counters unless another handle of the same name is in use.
	Retire(c any)

	// Take evaluates all charges at one moment and reports whether the request is allowed.
	// It is allowed if every charge is allowed that is not a shadow. Then Take makes every
	// allowed charge, including shadows, and debits every refused charge with Debit. Otherwise
	// it makes none. No other call sees only some of the charges. No two charges may have the
	// same Counters and Key.
	//
	// now is the moment by the caller's clock. A store with a clock of its own uses that
	// instead, so that all callers have one clock. An error means that the store could not
	// decide, and that nothing was charged.
	Take(ctx context.Context, now int64, charges []Charge) (bool, error)

	// Peek evaluates all charges at one moment, as Take would, and changes nothing. It sets
	// every Outcome, even if a charge is refused. An Outcome describes the state before the
	// charge. Peek also sets Shared as Take would; At and Ticket do not change.
	//
	// An error means that the store could not evaluate the charges.
	Peek(ctx context.Context, now int64, charges []Charge) error

	// Wait blocks until the scheduled time of every charge that was allowed with a Wait and
	// is not a shadow. Requests of one actor proceed in the order in which they were allowed.
	// After a Take with such a charge the caller must call Wait or Refund. If ctx ends first,
	// Wait returns ctx's error. After any error the charges still count. Wait does not wait
	// for scheduled times of a Reserver.
	Wait(ctx context.Context, charges []Charge) error

	// Debit makes charges at the moment now without evaluating them, into debt if necessary.
	// A caller uses it for requests that it allowed while the store could not be asked, and
	// for costs that become known later. The store makes each charge once, as soon as it can;
	// Debit does not wait for that. It sets what Take sets of an allowed charge, for Refund.
	// Remaining is Unknown.
	Debit(now int64, charges []Charge)

	// Refund undoes what an allowed Take or Debit charged, if it still counts: all charges whose
	// Outcome is allowed, and those with Debit. The scheduled time of a waiting request becomes
	// free. A store in one process then moves the requests behind it up.
	Refund(charges []Charge)

	// Reset forgets the counter of one actor, as if the actor had never used it. It keeps what
	// running requests need:
	//
	//   - Held concurrency slots stay held until their requests release them. So a release
	//     after Reset frees only its own slot, and the limit still holds.
	//   - Waiting requests keep their scheduled times, and reservations keep theirs. A store
	//     in one process also keeps later requests behind the waiting ones. A store for
	//     several processes may schedule them between the waiting ones.
	//
	// If a charge was made before Reset and is refunded afterwards, the refund reduces what
	// the actor used after Reset, but never below nothing. An actor that shares the
	// [Overflow] counter has no counter of its own; Reset with the key Overflow resets the
	// shared one.
	//
	// An error means that the store may not have reset the counter; call Reset again.
	Reset(ctx context.Context, c any, key []byte) error
}
