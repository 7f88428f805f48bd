// SPDX-License-Identifier: MIT

package limit

import "time"

// Concurrency allows N requests at the same time. A request takes a slot when it is allowed
// and releases the slot when it ends, however it ends.
//
//	N = 2     A [==========]
//	          B    [=============]
//	          C       x     [======]      refused while A and B hold the slots
//
// State: one word, the number of held slots. Expiry: when no slot is held. Time frees no
// slot, so the Wait of a refusal is a second, because no better value is known.
// Cost: one comparison. Source: nginx limit_conn.
func Concurrency() Algorithm {
	return Algorithm{
		Names: []string{"C", "concurrency"},
		Keys:  []string{"wait"},
		Held:  true,
		New:   newConcurrency,
	}
}

type concurrency struct{ n int64 }

func newConcurrency(l Limit) (Meter, error) {
	l.Unit = time.Second // has no meaning here, and check must accept it
	if err := l.Check(); err != nil {
		return nil, err
	}
	if l.N == 0 {
		return closed(l.Unit.Microseconds()), nil
	}
	return &concurrency{l.N}, nil
}

func (c *concurrency) StateVersion() string   { return "1" }
func (c *concurrency) Cells(State, int64) int { return 0 }

func (c *concurrency) Peek(s State, _, n int64) Outcome {
	held := int64(s.Head)
	out := Outcome{Remaining: max(c.n-held, 0)}
	if held+n > c.n {
		out.Wait = time.Second.Microseconds()
		return out
	}
	out.Allowed = true
	return out
}

func (c *concurrency) Take(s State, _, n int64) uint64 { return s.Head + uint64(n) }

// Decide implements Word.
func (c *concurrency) Decide(head uint64, now, n int64) (uint64, Outcome) {
	return decide(c, head, now, n)
}

// Debit implements Debtor.
func (c *concurrency) Debit(s State, _, n int64) (head uint64, cut int64) {
	head = min(s.Head+uint64(n), 1<<53)
	return head, n - int64(head-s.Head)
}

// Used implements Debtor.
func (c *concurrency) Used(s State, _ int64) int64 { return int64(s.Head) }

func (c *concurrency) Refund(s State, _, n int64) uint64 {
	return uint64(max(int64(s.Head)-n, 0))
}

func (c *concurrency) Expiry(s State) int64 {
	if s.Head == 0 {
		return 0
	}
	return Never
}
