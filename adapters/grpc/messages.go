// SPDX-License-Identifier: MIT

package dianagrpc

import (
	"context"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/internal/calls"
)

// messages is a stream that is charged for each message that it receives.
type messages struct {
	grpc.ServerStream
	charges calls.Messages
	fields  metadata.MD                     // of the latest message
	proved  atomic.Pointer[context.Context] // nil until a message had a valid credential
}

// servePerMessage calls the handler with a stream that is charged for each message.
func (o Options) servePerMessage(service any, of grpc.ServerStream, limits *diana.Prepared, method string, handler grpc.StreamHandler) error {
	s := &messages{ServerStream: of}
	s.charges = calls.Messages{
		Take: func(ctx context.Context) (diana.Decision, error) { return limits.Take(ctx, o.request(ctx, method)) },
		Answer: func(ctx context.Context, d *diana.Decision, err error) error {
			fields, err := o.answer(ctx, d, err)
			if s.fields == nil {
				_ = s.SetHeader(fields) // fails if the header was sent; the trailer still has the fields
			}
			if fields != nil {
				s.fields = fields
			}
			if err == nil {
				if proved := upstream(ctx, d); proved != nil {
					s.proved.Store(&proved)
				}
			}
			return err
		},
		Finish: func() { of.SetTrailer(s.fields) },
		Settle: func(d *diana.Decision, err error) { settle(of.Context(), d, err) },
	}
	s.charges.Begin(of.Context())
	return s.charges.Serve(func() error { return handler(service, s) })
}

// Context returns the context of the stream, which ends when a message is refused.
func (s *messages) Context() context.Context {
	if proved := s.proved.Load(); proved != nil {
		return *proved
	}
	return s.charges.Context
}

// SendMsg fails after a message was refused.
func (s *messages) SendMsg(m any) error {
	if err := s.charges.Err(); err != nil {
		return err
	}
	return s.ServerStream.SendMsg(m)
}

// RecvMsg receives a message and charges it.
func (s *messages) RecvMsg(m any) error {
	if err := s.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	return s.charges.Charge()
}
