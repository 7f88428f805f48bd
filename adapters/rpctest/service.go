// SPDX-License-Identifier: MIT

package rpctest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync/atomic"
)

// Service is what a server serves. The text of a message says what the Service does:
//
//	code:N     it returns an error with that code
//	panic      it panics
//	hold       it sends to Held, and replies after a receive from Release, or when the context ends
//	nothing    the handler returns neither a reply nor an error
//	leave      it receives in another goroutine, and returns after a receive from Release
//	deaf       it does not regard errors of receiving, until the context ends
//
// It replies to other messages with their text.
type Service struct {
	Held    chan struct{}
	Release chan struct{}
	Calls   atomic.Int64 // calls that have reached the Service
	Served  atomic.Int64 // messages that have
}

// NewService returns a Service.
func NewService() *Service {
	return &Service{Held: make(chan struct{}, 100), Release: make(chan struct{}, 100)}
}

// Stream is the server's side of a call.
type Stream struct {
	Receive func() (string, error) // io.EOF after the last message
	Send    func(string) error
}

// ErrNothing says that the handler of a unary call has to return neither a reply nor an error.
var ErrNothing = errors.New("nothing")

// Serve serves a call. Its error is nil, a Code, ErrNothing, or one of ctx or the Stream.
func (s *Service) Serve(ctx context.Context, kind Kind, stream Stream) error {
	s.Calls.Add(1)
	last := ""
	for {
		m, err := stream.Receive()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			if last == "deaf" && ctx.Err() == nil {
				<-ctx.Done()
			}
			if last == "deaf" {
				return nil
			}
			return err
		}
		s.Served.Add(1)
		if last, err = s.reply(ctx, m); err != nil {
			return err
		}
		if last == "leave" {
			go func() { _, _ = stream.Receive() }()
			<-s.Release
			return stream.Send(last)
		}
		switch kind {
		case Unary, ServerStream:
			for range 1 + 2*int(kind) { // 3 replies of a server stream
				if err := stream.Send(last); err != nil {
					return err
				}
			}
			return nil
		case Bidi:
			if err := stream.Send(last); err != nil {
				return err
			}
		case ClientStream:
		}
	}
	if kind == ClientStream {
		return stream.Send(last)
	}
	return nil
}

// reply returns the reply to a message.
func (s *Service) reply(ctx context.Context, m string) (string, error) {
	word, number, _ := strings.Cut(m, ":")
	n, _ := strconv.Atoi(number)
	switch word {
	case "code":
		return "", Code(n)
	case "panic":
		panic("of the test")
	case "hold":
		s.Held <- struct{}{}
		select {
		case <-s.Release:
		case <-ctx.Done():
			return "", fmt.Errorf("the service has held the call until %w", ctx.Err())
		}
	case "nothing":
		return "", ErrNothing
	}
	return m, nil
}
