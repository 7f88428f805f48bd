// SPDX-License-Identifier: MIT

package rpctest

import (
	"context"
	"slices"
	"testing"
	"time"
)

const oneSlot = "url: /\nrules: [{name: slots, rpu: 1, algo: C}]"

func testSlotsAtEnd(t *testing.T, f Framework) {
	s := start(t, f, oneSlot, Options{})
	for _, kind := range kinds {
		await := s.hold(t.Context(), kind)
		s.call(ResourceExhausted, kind, "ok")
		s.service.Release <- struct{}{}
		if r := await(); r.Code != OK {
			t.Errorf("%v: code %d", kind, r.Code)
		}
		s.call(OK, kind, "ok")
		s.call(InvalidArgument, kind, "code:3")
		s.call(OK, kind, "ok")
	}
}

func testSlotsAfterPanic(t *testing.T, f Framework) {
	for _, o := range []Options{{}, {PerMessage: true}} {
		s := start(t, f, "url: /\nrules: [{name: slots, rpu: 1, algo: C}, {name: served, rpu: 5, unit: day, charge: [200]}]", o)
		for _, kind := range kinds {
			s.call(Internal, kind, "panic") // stays charged
		}
		s.call(OK, Unary, "ok")
		if r := s.call(ResourceExhausted, Unary, "ok"); !slices.Equal(r.Violations, []string{"served"}) {
			t.Errorf("%+v: violations %q", o, r.Violations)
		}
	}
}

func testSlotsAfterDisconnect(t *testing.T, f Framework) {
	for _, o := range []Options{{}, {PerMessage: true}} {
		s := start(t, f, oneSlot, o)
		for _, kind := range kinds {
			ctx, cancel := context.WithCancel(t.Context())
			await := s.hold(ctx, kind)
			s.call(ResourceExhausted, kind, "ok")
			cancel()
			await()
			s.eventually("the slot is not released", func() bool {
				return s.client(t.Context(), Call{Kind: kind, Messages: []string{"ok"}}).Code == OK
			})
		}
	}
}

func testWait(t *testing.T, f Framework) {
	for _, o := range []Options{{}, {PerMessage: true}} {
		s := start(t, f, "url: /\nrules: [{rpu: 1, unit: 20ms, algo: LB}]", o)
		s.call(OK, Bidi, "a", "b", "c")
		for _, kind := range kinds {
			s.call(OK, kind, "ok")
		}
		if rules := s.limiter.Status().Rules; rules[0].Refused != 0 || rules[0].Allowed+rules[0].Delayed < 5 {
			t.Errorf("%+v: %+v", o, rules)
		}
	}
}

// A call that waits leaves the queue when its deadline ends or its client disconnects.
func testWaitDeadline(t *testing.T, f Framework) {
	for _, o := range []Options{{}, {PerMessage: true}} {
		s := start(t, f, "url: /\nrules: [{name: slots, rpu: 1, algo: C, wait: 10m}]", o)
		for _, kind := range kinds {
			await := s.hold(t.Context(), kind)
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			if r := s.client(ctx, Call{Kind: kind, Messages: []string{"ok"}}); r.Code != DeadlineExceeded {
				t.Errorf("%v: code %d (%s), expected that of the deadline", kind, r.Code, r.Text)
			}
			cancel()
			ctx, cancel = context.WithCancel(t.Context())
			left := make(chan Reply, 1)
			go func() { left <- s.client(ctx, Call{Kind: kind, Messages: []string{"ok"}}) }()
			s.eventually("no call waits", func() bool { return s.limiter.Waiting() == 1 })
			cancel()
			if r := <-left; r.Code != Canceled {
				t.Errorf("%v: code %d (%s), expected that of a cancelled call", kind, r.Code, r.Text)
			}
			s.eventually("the call still waits", func() bool { return s.limiter.Waiting() == 0 })
			s.service.Release <- struct{}{}
			if r := await(); r.Code != OK {
				t.Errorf("%v: code %d", kind, r.Code)
			}
			s.call(OK, kind, "ok")
		}
		if n, want := s.service.Calls.Load(), int64(2*len(kinds)); !o.PerMessage && n != want {
			t.Errorf("%d calls have reached the service, expected %d", n, want)
		}
	}
}
