// SPDX-License-Identifier: MIT

package rpctest

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/config"
)

// Run runs the table of cases.
func (f Framework) Run(t *testing.T) {
	for _, c := range []struct {
		name string
		run  func(t *testing.T, f Framework)
	}{
		{"allowed", testAllowed},
		{"refused", testRefused},
		{"refused forever", testRefusedForever},
		{"refused by the program", testRefusedByProgram},
		{"header already sent", testHeaderSent},
		{"charge by code", testChargeByCode},
		{"charge of a call that was cancelled", testChargeCancelled},
		{"slots at the end", testSlotsAtEnd},
		{"slots after a panic", testSlotsAfterPanic},
		{"slots after a disconnect", testSlotsAfterDisconnect},
		{"nothing is returned", testNothing},
		{"wait", testWait},
		{"wait until the deadline", testWaitDeadline},
		{"one charge a stream", testPerStream},
		{"one charge a message", testPerMessage},
		{"a deaf handler", testDeaf},
		{"a handler that leaves", testLeft},
		{"charge by code, per message", testChargePerMessage},
		{"slots per message", testSlotsPerMessage},
		{"identity from metadata", testMetadata},
		{"identity from the context", testContext},
		{"identity from the peer", testPeer},
		{"64 clients", testManyClients},
		{"1 MB both ways", testLarge},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.run(t, f)
		})
	}
}

var kinds = []Kind{Unary, ServerStream, ClientStream, Bidi}

// server is a server under test.
type server struct {
	*testing.T
	limiter *diana.Limiter
	service *Service
	client  Client
}

// Limiter returns a limiter with a configuration, until the test ends.
func Limiter(t *testing.T, text string) *diana.Limiter {
	t.Helper()
	c, err := config.Parse("test.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	l, err := diana.Options{Logger: slog.New(slog.DiscardHandler)}.New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// start starts a server with a configuration, which may begin with settings.
func start(t *testing.T, f Framework, text string, o Options) *server {
	t.Helper()
	l, s := Limiter(t, text), NewService()
	return &server{t, l, s, f.Start(t, l, s, o)}
}

// call makes a call, and checks its code.
func (s *server) call(want Code, kind Kind, messages ...string) Reply {
	s.Helper()
	return s.callWith(want, Call{Kind: kind, Messages: messages})
}

func (s *server) callWith(want Code, c Call) Reply {
	s.Helper()
	r := s.client(s.Context(), c)
	if r.Code != want {
		s.Errorf("%v %.80q: code %d (%s), expected %d", c.Kind, c.Messages, r.Code, r.Text, want)
	}
	return r
}

// hold starts a call that the service holds, and returns a function that awaits its reply.
func (s *server) hold(ctx context.Context, kind Kind) (await func() Reply) {
	replies := make(chan Reply, 1)
	go func() { replies <- s.client(ctx, Call{Kind: kind, Messages: []string{"hold"}}) }()
	<-s.service.Held
	return func() Reply { return <-replies }
}

// eventually waits until a condition holds, for at most a minute.
func (s *server) eventually(what string, holds func() bool) {
	s.Helper()
	for end := time.Now().Add(time.Minute); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			s.Fatal(what)
		}
	}
}
