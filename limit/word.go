// SPDX-License-Identifier: MIT

package limit

// Word is a Meter that evaluates and charges a state of one word in one step. It saves time, and
// changes no result: a store calls Peek and Take of any other Meter.
type Word interface {
	Meter

	// Decide evaluates a request as Peek, for a state without cells whose Head is head. If the request is
	// allowed, Decide returns the Head that Take returns, and the Remaining after the charge: less by
	// n, at least 0. Otherwise it returns head. A store calls Decide only if Cells returns 0.
	Decide(head uint64, now, n int64) (next uint64, out Outcome)
}

// decide is Decide by Peek and Take.
func decide(m Meter, head uint64, now, n int64) (uint64, Outcome) {
	s := State{Head: head}
	out := m.Peek(s, now, n)
	if !out.Allowed {
		return head, out
	}
	out.Remaining = max(out.Remaining-n, 0)
	return m.Take(s, now, n), out
}
