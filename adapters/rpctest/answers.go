// SPDX-License-Identifier: MIT

package rpctest

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func testAllowed(t *testing.T, f Framework) {
	s := start(t, f, "url: /"+ServiceName+"\nrules: [{name: few, rpu: 100, unit: day, algo: W, align: first}]", Options{})
	for i, kind := range kinds {
		r := s.call(OK, kind, "hello")
		if want := [...]string{"hello", "hello hello hello", "hello", "hello"}[kind]; strings.Join(r.Messages, " ") != want {
			t.Errorf("%v: the replies are %q, expected %q", kind, r.Messages, want)
		}
		for where, field := range map[string]string{"header": r.Header.Get("RateLimit"), "trailer": r.Trailer.Get("RateLimit")} {
			if want := fmt.Sprintf(`"few";r=%d;`, 99-i); !strings.HasPrefix(field, want) {
				t.Errorf("%v: RateLimit of the %s is %q, expected %s", kind, where, field, want)
			}
		}
		if policy := r.field("RateLimit-Policy"); policy != `"few";q=100;w=86400` {
			t.Errorf("%v: RateLimit-Policy is %q", kind, policy)
		}
	}
}

// The rules of a method are those of its path, in any letter case of the method POST.
const perMethod = `
- url: POST /rpctest.Service/Unary
  rules: [{name: of Unary, rpu: 1, unit: day}]
- url: /rpctest.Service/ServerStream
  rules: [{name: of ServerStream, rpu: 1, unit: day}]
- url: /rpctest.Service/ClientStream
  rules: [{name: of ClientStream, rpu: 1, unit: day}]
- url: /rpctest.Service/Bidi
  rules: [{name: of Bidi, rpu: 1, unit: day}, {name: wide, rpu: 9, unit: day}]
- url: GET /
  rules: [{name: never, rpu: 0}]
`

func testRefused(t *testing.T, f Framework) {
	s := start(t, f, perMethod, Options{})
	for _, kind := range kinds {
		s.call(OK, kind, "hello")
		r := s.call(ResourceExhausted, kind, "hello")
		if want := []string{"of " + kind.String()}; !slices.Equal(r.Violations, want) {
			t.Errorf("%v: violations %q, expected %q", kind, r.Violations, want)
		}
		if r.Retry <= 0 || r.Retry > 24*time.Hour {
			t.Errorf("%v: the delay of RetryInfo is %v", kind, r.Retry)
		}
		if !strings.HasPrefix(r.field("RateLimit"), `"of `+kind.String()+`";r=0;`) || r.field("Retry-After") == "" {
			t.Errorf("%v: header %v, trailer %v", kind, r.Header, r.Trailer)
		}
		if len(r.Messages) > 0 || r.Text == "" {
			t.Errorf("%v: replies %q, text %q", kind, r.Messages, r.Text)
		}
	}
	if n := s.service.Calls.Load(); n != 4 {
		t.Errorf("%d calls have reached the service, expected 4", n)
	}
}

func testRefusedForever(t *testing.T, f Framework) {
	s := start(t, f, "url: /\nrules: [{rpu: 0}]", Options{})
	for _, kind := range kinds {
		if r := s.call(ResourceExhausted, kind, "hello"); r.Retry != 0 || r.field("Retry-After") != "" || len(r.Violations) != 1 {
			t.Errorf("%v: %+v", kind, r)
		}
	}
}

func testRefusedByProgram(t *testing.T, f Framework) {
	s := start(t, f, "url: /\nrules: [{name: none, rpu: 0}]", Options{Refuse: true})
	for _, kind := range kinds {
		if r := s.call(Aborted, kind, "hello"); r.Text != Refused || !strings.HasPrefix(r.field("RateLimit"), `"none";r=0`) {
			t.Errorf("%v: %+v", kind, r)
		}
	}
}

func testHeaderSent(t *testing.T, f Framework) {
	if !f.HeadersSent {
		t.Skip("the framework sends no header before the adapter")
	}
	s := start(t, f, perMethod, Options{SendHeader: true})
	for _, kind := range kinds {
		for _, want := range []Code{OK, ResourceExhausted} {
			if r := s.call(want, kind, "hello"); r.Header.Get("RateLimit") != "" || !strings.HasPrefix(r.Trailer.Get("RateLimit"), `"of `) {
				t.Errorf("%v: header %v, trailer %v", kind, r.Header, r.Trailer)
			}
		}
	}
}

// A handler that returns neither a reply nor an error releases its slot, whatever the framework makes of it.
func testNothing(t *testing.T, f Framework) {
	s := start(t, f, oneSlot, Options{})
	r := s.client(t.Context(), Call{Kind: Unary, Messages: []string{"nothing"}})
	if r.Code == ResourceExhausted {
		t.Error(r.Text)
	}
	s.call(OK, Unary, "ok")
}

func testManyClients(t *testing.T, f Framework) {
	const limit, clients, each = 100, 64, 4
	s := start(t, f, fmt.Sprintf("url: /\nrules: [{rpu: %d, unit: day, algo: W, align: first}]", limit), Options{})
	var allowed, refused atomic.Int64
	var all sync.WaitGroup
	for i := range clients {
		all.Go(func() {
			for range each {
				switch r := s.client(t.Context(), Call{Kind: kinds[i%len(kinds)], Messages: []string{"ok"}}); r.Code {
				case OK:
					allowed.Add(1)
				case ResourceExhausted:
					refused.Add(1)
				default:
					t.Errorf("code %d: %s", r.Code, r.Text)
				}
			}
		})
	}
	all.Wait()
	if a, r, n := allowed.Load(), refused.Load(), s.service.Calls.Load(); a != limit || r != clients*each-limit || n != limit {
		t.Errorf("%d allowed, %d refused, %d calls have reached the service, expected %d allowed", a, r, n, limit)
	}
}

func testLarge(t *testing.T, f Framework) {
	const size = 1 << 20
	for _, o := range []Options{{}, {PerMessage: true}} {
		s := start(t, f, "url: /\nrules: [{rpu: 100}]", o)
		for _, kind := range []Kind{Unary, Bidi} {
			if r := s.call(OK, kind, strings.Repeat("y", size)); len(r.Messages) != 1 || len(r.Messages[0]) != size {
				t.Errorf("%v: %d messages", kind, len(r.Messages))
			}
		}
	}
}
