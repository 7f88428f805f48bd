// SPDX-License-Identifier: MIT

package dianagrpc

import (
	"context"
	"net/http"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/diana-limiter/diana"
)

// messages is a stream that is charged for each message that it receives.
type messages struct {
	grpc.ServerStream
	options Options
	limits  *diana.Prepared
	method  string
	ctx     context.Context // ends with the first message that is refused, and when the handler returns
	cancel  context.CancelCauseFunc

	mu     sync.Mutex     // RecvMsg can still run when the handler returns
	latest diana.Decision // about the latest message
	fields metadata.MD    // of latest
	err    error          // of the message that has ended the stream
}

// servePerMessage calls the handler with a stream that is charged for each message.
func (o Options) servePerMessage(service any, of grpc.ServerStream, limits *diana.Prepared, method string, handler grpc.StreamHandler) (err error) {
	s := &messages{ServerStream: of, options: o, limits: limits, method: method}
	s.ctx, s.cancel = context.WithCancelCause(of.Context())
	returned := false
	defer func() {
		s.cancel(context.Canceled) // a RecvMsg that waits returns
		s.mu.Lock()
		defer s.mu.Unlock()
		defer s.latest.Done()
		of.SetTrailer(s.fields)
		if s.err != nil {
			err = s.err
		} else if returned {
			settle(of.Context(), &s.latest, err)
		}
	}()
	err = handler(service, s)
	returned = true
	return err
}

// Context returns the context of the stream, which ends when a message is refused.
func (s *messages) Context() context.Context { return s.ctx }

// SendMsg fails after a message was refused.
func (s *messages) SendMsg(m any) error {
	if s.ctx.Err() != nil {
		return context.Cause(s.ctx)
	}
	return s.ServerStream.SendMsg(m)
}

// RecvMsg receives a message and charges it. It waits if the limits say so.
func (s *messages) RecvMsg(m any) error {
	if err := s.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() != nil {
		return context.Cause(s.ctx)
	}
	s.latest.SetStatus(http.StatusOK) // because the stream continues
	s.latest.Done()
	d, err := s.limits.Take(s.ctx, s.options.request(s.ctx, s.method))
	s.latest = d
	fields, err := s.options.answer(s.ctx, &s.latest, err)
	if s.fields == nil {
		_ = s.SetHeader(fields) // fails if the header was sent; the trailer still has the fields
	}
	if fields != nil {
		s.fields = fields
	}
	if err != nil && s.ctx.Err() == nil {
		s.err = err
		s.cancel(err)
	}
	return err
}
