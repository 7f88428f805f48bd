// SPDX-License-Identifier: MIT

package limit

import "context"

// Counters is a store's handle for the counters of one rule: all actors', one
// for each. It comes from [Store.Counters] and means something to that store only.
type Counters any

// Charge asks a store to count one request for one actor under one rule.
type Charge struct {
	Counters Counters // the rule's
	Key      []byte   // who; read during the call and not kept
	Cost     int64    // 1 or more
	Shadow   bool     // judge and count, but never be the reason for a refusal
	Longest  int64    // most microseconds that its caller would wait for its turn under a Reserver

	// Outcome is the store's answer. After an admission Remaining has been
	// reduced by Cost.
	Outcome Outcome

	// At is when the charge was made, and Ticket what else the store needs to find
	// it again. Both are set by Take, for Refund and Wait.
	At     int64
	Ticket any

	// Shared says that the store could not remember one more actor, and has judged this one by
	// the counter that such actors share, see [Overflow]. It is set by Take and Debit, for Refund
	// too.
	Shared bool
}

// Overflow is the Key of the counter that actors share whom a store that bounds its memory cannot
// remember. No actor may have this key. A charge with it is made to that counter, so that a second
// store can be asked to count those actors together as well.
const Overflow = "\x00overflow"

// Store decides charges. Its methods are safe for concurrent use.
//
// Package storetest has the rules below as tests, for every implementation.
type Store interface {
	// Counters returns the handle of the counters called name, judged by m.
	// Counters that exist under that name keep their states and are judged by m
	// through the new handle; m must have the layout that they were made with.
	// So the caller makes the algorithm, its layout and whatever else gives a
	// state its meaning part of the name.
	Counters(name string, m Meter) (Counters, error)

	// Retire tells that no new charges will come for a handle. Its counters may
	// be forgotten, unless another handle of the same name is in use.
	Retire(c Counters)

	// Take judges all the charges at one moment and reports whether the request
	// may go on. It may if every charge is allowed that is not a shadow. Then
	// every charge that is allowed, shadows included, has been made; otherwise
	// none has. No other call sees a part of the charges. No two of them may be of
	// the same Counters and Key.
	//
	// now is the moment by the caller's clock; a store that has a clock of its
	// own for all callers uses that instead. An error means that the store could
	// not decide, and that nothing was charged.
	Take(ctx context.Context, now int64, charges []Charge) (bool, error)

	// Peek evaluates all the charges at one moment, as Take would, and changes nothing. It
	// sets every Outcome, also when a charge is refused. An Outcome describes the state
	// before the charge, as that of Meter.Peek does. Peek sets Shared as Take would; At and
	// Ticket stay as they are.
	//
	// An error means that the store could not be asked.
	Peek(ctx context.Context, now int64, charges []Charge) error

	// Wait holds the caller until every charge's turn has come that was allowed
	// with a Wait and is not a shadow, in order of admission among the charges of
	// one actor. It must be called after a Take with such a charge, or Refund. If ctx
	// ends first it returns ctx's error; then the charges still stand, as they do
	// after an error of any other kind. For the turns of a Reserver it does not wait.
	Wait(ctx context.Context, charges []Charge) error

	// Debit makes charges without asking, into debt if need be, at the moment now. It is for
	// what a caller has allowed while the store could not be asked, and for costs that are
	// known afterwards. Each charge is made once, as soon as the store can be reached; Debit
	// does not wait for that. It sets what Take sets of an allowed charge, for Refund; what
	// remains is Unknown.
	Debit(now int64, charges []Charge)

	// Refund gives back what Take charged, as far as it still counts: all charges
	// with an Outcome that is allowed. A place in a queue is free again, and
	// whoever stood behind moves up.
	Refund(charges []Charge)

	// Reset forgets the counter of one actor, as if the actor had never used it. What a
	// running request needs stays:
	//
	//   - Concurrency slots that are held stay held until their requests release them.
	//     So a later release frees only its own slot, and the limit holds after Reset.
	//   - Requests that wait keep their scheduled times, and reservations keep theirs. The
	//     store that holds the waiting requests also keeps them apart from later ones.
	//
	// A charge that was made before Reset and is refunded after it counts as a refund of
	// later charges, but never leaves more than the limit. An actor that shares the
	// [Overflow] counter has no counter of its own; Reset with the key Overflow resets the
	// shared one.
	//
	// An error means that the counter may not have been reset. Reset can then be repeated.
	Reset(ctx context.Context, c Counters, key []byte) error
}
