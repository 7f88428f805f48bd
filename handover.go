// SPDX-License-Identifier: MIT

package diana

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/diana-limiter/diana/internal/decide"
	"github.com/diana-limiter/diana/internal/takeover"
	"github.com/diana-limiter/diana/limit"
)

// handovers are the connections of a Limiter to the process before it and to the one after it.
type handovers struct {
	decider *decide.Decider
	serving sync.WaitGroup // predecessors

	mu     sync.Mutex         // guards the rest
	before []*takeover.Callee // predecessors
	after  *takeover.Caller   // the successor; nil: there is none
}

// stateVersion is the version of what a Limiter passes to another process. One of another version is not taken over.
const stateVersion = 1

// passedState is the first part of what a Limiter passes. The second part is the document of the local store.
type passedState struct {
	Version  int
	Rules    map[string]string // names of rules by those of their counters
	Redis    bool              // what was charged without Redis follows, in notes
	Gateways int               // that were last seen alive
}

const (
	callTime  = 250 * time.Millisecond // for a successor to answer
	debtsTime = 3 * time.Second        // for the debits of an outage to arrive
)

// HandOver passes all counters to the Limiter of another process, which calls TakeOver at the other end of conn. From
// then on that Limiter decides for this one, so that both keep one limit. While it does not answer for 250 ms, this
// Limiter decides by its own counters, as they were when it passed them. The other Limiter also gets what was charged
// without Redis. Close closes conn. An error means that the other Limiter has no counters, and this one continues.
func (l *Limiter) HandOver(conn net.Conn) error {
	store := l.redis.inUse().store
	state := passedState{Version: stateVersion, Rules: map[string]string{}, Redis: store != nil, Gateways: l.redis.gateways()}
	set := l.decider.Limits().Set
	for _, r := range slices.Concat(set.Rules, set.Variants) {
		state.Rules[r.Counters] = r.Name
	}
	var once sync.Once
	c := takeover.NewCaller(conn, callTime, func(err error) {
		once.Do(func() {
			l.options.Logger.Warn("the process that took over does not answer: this one decides by old counters", "error", err)
		})
	})
	l.handovers.mu.Lock()
	l.handovers.after = c
	l.handovers.mu.Unlock()
	header, err := json.Marshal(state)
	return errors.Join(err, c.Start(func() {
		if err := store.HandOver(c.Note); err != nil {
			l.options.Logger.Warn("the process that took over does not get what was charged without Redis", "error", err)
		}
	}, header, l.local.HandOver(c.Call)))
}

// TakeOver gets the counters of the Limiter of another process, which calls HandOver at the other end of conn. It must be
// called before the first request. From then on this Limiter decides for the other one, until that ends.
// Counters that this configuration does not have are not taken over; a log line names their rules. An
// error means that all counters begin again. Close closes conn.
func (l *Limiter) TakeOver(conn net.Conn) error {
	c, parts, err := takeover.NewCallee(conn)
	if err != nil {
		return err
	}
	if len(parts) != 2 {
		return fmt.Errorf("diana: the other process passes %d parts, expected 2", len(parts))
	}
	var state passedState
	if err := json.Unmarshal(parts[0], &state); err != nil {
		return err
	}
	if state.Version != stateVersion {
		return fmt.Errorf("diana: the other process passes counters of version %d, expected %d", state.Version, stateVersion)
	}
	p, left, err := l.local.TakeOver(parts[1])
	if err != nil {
		return err
	}
	if rules := state.rulesOf(left); len(rules) > 0 {
		l.options.Logger.Warn("counters of the process before this one are not taken over", "rules", rules)
	}
	receive := l.redis.takeOver(&state)
	if receive == nil {
		l.handovers.serve(c, p, nil)
		return nil
	}
	var once sync.Once
	complete := make(chan struct{})
	ended := l.handovers.serve(c, p, func(note []byte) {
		all, err := receive(note)
		if err != nil {
			l.options.Logger.Error("a note of the process before this one cannot be read", "error", err)
		}
		if all {
			once.Do(func() { close(complete) })
		}
	})
	select {
	case <-complete:
		return nil
	case <-ended:
	case <-time.After(debtsTime):
	}
	return errors.New("diana: what the process before this one charged without Redis has not arrived")
}

// rulesOf returns the names of the rules with these counters, or with local ones beside those.
func (s *passedState) rulesOf(counters []string) []string {
	rules := map[string]bool{}
	for _, local := range counters {
		for name, rule := range s.Rules {
			if name == local || strings.HasSuffix(local, " "+name) {
				rules[rule] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(rules))
}

// serve answers the calls of a predecessor. The channel is closed when that has ended.
func (h *handovers) serve(c *takeover.Callee, p takeover.Predecessor, note func([]byte)) <-chan struct{} {
	ended := make(chan struct{})
	h.mu.Lock()
	defer h.mu.Unlock()
	h.before = append(h.before, c)
	h.serving.Go(func() {
		defer close(ended)
		c.Serve(func(ctx context.Context, op takeover.Op, charges []limit.Charge) (bool, error) {
			if op == takeover.Refund {
				defer h.decider.WakeAll() // a request of this process may wait for the slot
			}
			return p.Call(ctx, op, charges)
		}, note)
		p.Close()
		h.decider.WakeAll()
		_ = c.Close()
	})
	return ended
}

// wait waits until all predecessors have ended, or until ctx ends.
func (h *handovers) wait(ctx context.Context) error {
	done := make(chan struct{})
	go func() {
		h.serving.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// close ends all connections.
func (h *handovers) close() {
	h.mu.Lock()
	for _, c := range h.before {
		_ = c.Close()
	}
	h.mu.Unlock()
	h.serving.Wait() // it may make calls to the successor
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.after != nil {
		h.after.Close()
	}
}
