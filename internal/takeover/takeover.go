// SPDX-License-Identifier: MIT

// Package takeover passes the counters of a Limiter to that of another process over one connection: first a
// document, and then calls.
//
//	old process                       new process
//	freezes its counters
//	            ─── document ──────>  takes the counters over
//	            <── ready ──────────
//	            ─── call ──────────>  decides for the old process
//	            <── answer ─────────
//	ends        ─── end of file ───>  frees the slots that the old process still held
//
// The stores write and read the parts of the document that are theirs.
package takeover

import (
	"context"

	"github.com/diana-limiter/diana/limit"
)

// Op is what a call asks a store to do.
type Op int

// The calls have the meaning of the methods of [limit.Store].
const (
	Take Op = iota + 1
	Peek
	Debit
	Refund
	Wait
	Reset
)

// Next makes a call to the process that has taken over. Counters of a charge is the name of the counters, its Key
// the hash of the actor in 8 bytes, and its Ticket nil or a number. The moment is that of the other process. An
// error says that nothing is charged, or will be refunded.
type Next func(ctx context.Context, op Op, charges []limit.Charge) (allowed bool, err error)

// Predecessor is the process whose counters a store has taken over. It is safe for concurrent use.
type Predecessor interface {
	// Call makes a call of the predecessor, as a Next.
	Call(ctx context.Context, op Op, charges []limit.Charge) (allowed bool, err error)

	// Close releases the slots that the requests of the predecessor hold, and refunds its waiting ones. Call
	// it when the predecessor has ended and all calls have returned.
	Close()
}
