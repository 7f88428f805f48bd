// SPDX-License-Identifier: MIT

package replay

import (
	"context"
	"fmt"
	"sync"

	"github.com/diana-limiter/diana/limit"
)

// Meters is a limit.Store that is too simple to be wrong, for comparison with others. It keeps all
// states in a map forever and serves one caller at a time. No request waits: Wait returns at once.
// The zero value is ready to use.
type Meters struct {
	mu       sync.Mutex // guards families and their contents
	families map[string]*family
}

// family is what the counters of one name have in common.
type family struct {
	version string
	states  map[string]limit.State
}

type counters struct {
	*family
	meter limit.Meter
}

// Counters implements [limit.Store].
func (m *Meters) Counters(name string, meter limit.Meter) (any, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f := m.families[name]
	if f == nil {
		f = &family{meter.StateVersion(), map[string]limit.State{}}
		if m.families == nil {
			m.families = map[string]*family{}
		}
		m.families[name] = f
	}
	if f.version != meter.StateVersion() {
		return nil, fmt.Errorf("replay: counters %q have state version %q, not %q", name, f.version, meter.StateVersion())
	}
	return counters{f, meter}, nil
}

// Retire implements [limit.Store]. It does nothing.
func (m *Meters) Retire(any) {}

// Take implements [limit.Store].
func (m *Meters) Take(_ context.Context, now int64, charges []limit.Charge) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	allowed := true
	for i := range charges {
		ch := &charges[i]
		peek(now, ch)
		allowed = allowed && (ch.Outcome.Allowed || ch.Shadow)
	}
	for i := range charges {
		ch := &charges[i]
		c := ch.Counters.(counters)
		a, adaptive := c.meter.(limit.Adaptive)
		switch {
		case adaptive && !ch.Outcome.Allowed:
			a.Refuse(c.states[string(ch.Key)], now, ch.Flight)
		case !allowed:
		case ch.Outcome.Allowed && adaptive:
			ch.Outcome.Remaining = max(ch.Outcome.Remaining-ch.Cost, 0)
			c.charge(ch, now, func(s limit.State, now, n int64) uint64 { return a.Enter(s, now, n, ch.Flight) })
		case ch.Outcome.Allowed:
			ch.Outcome.Remaining = max(ch.Outcome.Remaining-ch.Cost, 0)
			c.charge(ch, now, c.meter.Take)
		case ch.Debit:
			c.charge(ch, now, c.debit(ch))
		}
	}
	return allowed, nil
}

// Peek implements [limit.Store].
func (m *Meters) Peek(_ context.Context, now int64, charges []limit.Charge) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range charges {
		peek(now, &charges[i])
	}
	return nil
}

// peek sets the outcome of a charge.
func peek(now int64, ch *limit.Charge) {
	c := ch.Counters.(counters)
	s := c.states[string(ch.Key)]
	switch m := c.meter.(type) {
	case limit.Reserver:
		ch.Outcome = m.PeekWithin(s, now, ch.Cost, ch.Longest)
	case limit.Adaptive:
		ch.Outcome = m.Admit(s, now, ch.Cost, ch.Flight)
	default:
		ch.Outcome = c.meter.Peek(s, now, ch.Cost)
	}
}

// Debit implements [limit.Store].
func (m *Meters) Debit(now int64, charges []limit.Charge) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range charges {
		ch := &charges[i]
		c := ch.Counters.(counters)
		ch.Outcome = limit.Outcome{Allowed: true, Remaining: limit.Unknown}
		c.charge(ch, now, c.debit(ch))
	}
}

// debit returns the change that a debit makes to a state.
func (c counters) debit(ch *limit.Charge) func(s limit.State, now, n int64) uint64 {
	return func(s limit.State, now, n int64) (head uint64) {
		head, ch.Cut = limit.Debit(c.meter, s, now, n)
		return head
	}
}

// charge changes the state of a charge by the method change of its meter.
func (c counters) charge(ch *limit.Charge, now int64, change func(s limit.State, now, n int64) uint64) {
	ch.At = now
	s := c.states[string(ch.Key)]
	if more := c.meter.Cells(s, ch.Cost) - len(s.Cells); more > 0 {
		s.Cells = append(s.Cells, make([]uint64, more)...)
	}
	s.Head = change(s, now, ch.Cost)
	c.states[string(ch.Key)] = s
}

// Wait implements [limit.Store]. It does not wait.
func (m *Meters) Wait(context.Context, []limit.Charge) error { return nil }

// Refund implements [limit.Store].
func (m *Meters) Refund(charges []limit.Charge) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range charges {
		ch := &charges[i]
		if !ch.Outcome.Allowed && !ch.Debit {
			continue
		}
		c := ch.Counters.(counters)
		s := c.states[string(ch.Key)]
		at := ch.At
		if _, ok := c.meter.(limit.Reserver); ok && ch.Outcome.Allowed {
			at += ch.Outcome.Wait
		}
		if a, ok := c.meter.(limit.Adaptive); ok && ch.Flight != nil {
			s.Head = a.Leave(s, ch.Flight.Ended, ch.Cost, ch.Flight)
		} else {
			s.Head = c.meter.Refund(s, at, ch.Cost)
		}
		c.states[string(ch.Key)] = s
	}
}

// Reset implements [limit.Store].
func (m *Meters) Reset(_ context.Context, h any, key []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := h.(counters)
	s := c.states[string(key)]
	if c.meter.Expiry(s) == limit.Never {
		return nil // slots that are held
	}
	clear(s.Cells) // a later refund needs them
	s.Head = 0
	c.states[string(key)] = s
	return nil
}
