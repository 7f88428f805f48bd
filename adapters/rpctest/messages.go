// SPDX-License-Identifier: MIT

package rpctest

import (
	"slices"
	"strings"
	"testing"
)

func testPerStream(t *testing.T, f Framework) {
	s := start(t, f, "url: /\nrules: [{rpu: 2, unit: day, algo: W, align: first}]", Options{})
	s.call(OK, ClientStream, "a", "b", "c", "d")
	s.call(OK, Bidi, "a", "b", "c", "d")
	s.call(ResourceExhausted, Bidi, "a")
}

func testPerMessage(t *testing.T, f Framework) {
	s := start(t, f, "url: /\nrules: [{name: few, rpu: 7, unit: day, algo: W, align: first}]", Options{PerMessage: true})
	r := s.call(OK, Bidi, "a", "b", "c")
	if header, trailer := r.Header.Get("RateLimit"), r.Trailer.Values("RateLimit"); !strings.HasPrefix(header, `"few";r=6;`) ||
		len(trailer) != 1 || !strings.HasPrefix(trailer[0], `"few";r=4;`) {
		t.Errorf("RateLimit of the header is %q, of the trailer %q", header, trailer)
	}
	s.call(OK, Unary, "d")
	s.call(OK, ServerStream, "e")
	r = s.call(ResourceExhausted, Bidi, "f", "g", "h", "i")
	if strings.Join(r.Messages, " ") != "f g" || !slices.Equal(r.Violations, []string{"few"}) || r.Retry <= 0 || r.field("Retry-After") == "" {
		t.Errorf("%+v", r)
	}
	s.call(ResourceExhausted, ClientStream, "j")
	s.call(ResourceExhausted, ServerStream, "j")
	s.call(ResourceExhausted, Unary, "j")
	if n := s.service.Served.Load(); n != 7 {
		t.Errorf("the service has got %d messages, expected 7", n)
	}
}

// A handler that continues after a refused message does not keep the stream alive, and cannot change its code.
func testDeaf(t *testing.T, f Framework) {
	s := start(t, f, "url: /\nrules: [{rpu: 1, unit: day}, {name: slots, rpu: 1, algo: C}]", Options{PerMessage: true})
	for _, kind := range []Kind{Bidi, ClientStream} {
		if err := s.limiter.Reset(t.Context(), s.limiter.Status().Rules[0].Name, "all"); err != nil {
			t.Fatal(err)
		}
		if r := s.call(ResourceExhausted, kind, "deaf", "more"); r.Retry <= 0 {
			t.Errorf("%v: %+v", kind, r)
		}
	}
}

// A handler that returns while another goroutine of it receives ends a message that waits.
func testLeft(t *testing.T, f Framework) {
	s := start(t, f, "url: /\nrules: [{rpu: 1, unit: 9m, wait: 10m, algo: W, align: first}]", Options{PerMessage: true})
	replies := make(chan Reply, 1)
	go func() { replies <- s.client(t.Context(), Call{Kind: ClientStream, Messages: []string{"leave", "a"}}) }()
	s.eventually("no message waits", func() bool { return s.limiter.Waiting() == 1 })
	s.service.Release <- struct{}{}
	if r := <-replies; r.Code != OK || s.limiter.Waiting() != 0 {
		t.Errorf("%d messages wait, %+v", s.limiter.Waiting(), r)
	}
}

// A message counts as OK if the stream continues after it. The latest message has the code of the stream.
func testChargePerMessage(t *testing.T, f Framework) {
	for _, kind := range []Kind{Bidi, ClientStream} {
		s := start(t, f, "url: /\nrules: [{name: ok, rpu: 2, unit: day, charge: [200]}, {name: bad, rpu: 2, unit: day, charge: [400]}]", Options{PerMessage: true})
		s.call(InvalidArgument, kind, "a", "code:3") // 1 and 1
		s.call(OK, kind, "b")                        // 2 and 1
		if r := s.call(ResourceExhausted, kind, "c"); !slices.Equal(r.Violations, []string{"ok"}) {
			t.Errorf("%v: violations %q", kind, r.Violations)
		}
		if err := s.limiter.Reset(t.Context(), "ok", "all"); err != nil {
			t.Fatal(err)
		}
		s.call(InvalidArgument, kind, "code:3") // 0 and 2
		if r := s.call(ResourceExhausted, kind, "d"); !slices.Equal(r.Violations, []string{"bad"}) {
			t.Errorf("%v: violations %q", kind, r.Violations)
		}
	}
}

func testSlotsPerMessage(t *testing.T, f Framework) {
	s := start(t, f, oneSlot, Options{PerMessage: true})
	for _, kind := range kinds {
		await := s.hold(t.Context(), kind)
		s.call(ResourceExhausted, kind, "ok")
		s.service.Release <- struct{}{}
		if r := await(); r.Code != OK {
			t.Errorf("%v: code %d", kind, r.Code)
		}
	}
	s.call(OK, Bidi, "a", "b", "c")
	s.call(OK, ClientStream, "a", "b", "c")
}
