// SPDX-License-Identifier: MIT

package limit

// closed is the Meter of every algorithm whose N is 0. It refuses every request, and
// spares the other Meters a division by zero. Its value is the unit, which is also the Wait
// of a refusal: no time is known after which a request would be allowed.
type closed int64

func (c closed) StateVersion() string              { return "closed" }
func (c closed) Cells(State, int64) int            { return 0 }
func (c closed) Take(State, int64, int64) uint64   { return 0 }
func (c closed) Refund(State, int64, int64) uint64 { return 0 }
func (c closed) Expiry(State) int64                { return 0 }

func (c closed) Peek(State, int64, int64) Outcome {
	return Outcome{Wait: int64(c), Reset: int64(c)}
}

// Decide implements Word.
func (c closed) Decide(head uint64, now, n int64) (uint64, Outcome) {
	return head, c.Peek(State{}, now, n)
}
