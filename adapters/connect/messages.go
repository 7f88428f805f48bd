// SPDX-License-Identifier: MIT

package dianaconnect

import (
	"context"
	"maps"
	"net/http"
	"sync"
	"sync/atomic"

	"connectrpc.com/connect"

	"github.com/diana-limiter/diana"
)

// messages is a stream that is charged for each message that it receives.
type messages struct {
	connect.StreamingHandlerConn
	i      *interceptor
	limits *diana.Prepared
	ctx    context.Context // ends with the first message that is refused, and when the handler returns
	cancel context.CancelCauseFunc

	mu     sync.Mutex     // Receive can still run when the handler returns
	latest diana.Decision // about the latest message
	err    error          // of the message that has ended the stream

	fields atomic.Pointer[http.Header] // of latest
}

// servePerMessage calls the handler with a stream that is charged for each message.
func (i *interceptor) servePerMessage(ctx context.Context, conn connect.StreamingHandlerConn, limits *diana.Prepared, next connect.StreamingHandlerFunc) (err error) {
	s := &messages{StreamingHandlerConn: conn, i: i, limits: limits}
	s.ctx, s.cancel = context.WithCancelCause(ctx)
	returned := false
	defer func() {
		s.cancel(context.Canceled) // a Receive that waits returns
		s.mu.Lock()
		defer s.mu.Unlock()
		defer s.latest.Done()
		s.copyFields(conn.ResponseHeader()) // without effect if the header was sent
		s.copyFields(conn.ResponseTrailer())
		if s.err != nil {
			err = s.err
		} else if returned {
			settle(ctx, &s.latest, http.MethodPost, err)
		}
	}()
	err = next(s.ctx, s)
	returned = true
	return err
}

// Send fails after a message was refused. It sets the fields of the header, because Receive can run at the
// same time, when nothing but Send may change them.
func (s *messages) Send(m any) error {
	if s.ctx.Err() != nil {
		return context.Cause(s.ctx)
	}
	s.copyFields(s.ResponseHeader()) // without effect if the header was sent
	return s.StreamingHandlerConn.Send(m)
}

// Receive receives a message and charges it. It waits if the limits say so.
func (s *messages) Receive(m any) error {
	if err := s.StreamingHandlerConn.Receive(m); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() != nil {
		return context.Cause(s.ctx)
	}
	s.latest.SetStatus(http.StatusOK) // because the stream continues
	s.latest.Done()
	d, err := s.limits.Take(s.ctx, s.i.request(s.ctx, http.MethodPost, s.Spec(), s.Peer(), s.RequestHeader()))
	s.latest = d
	fields, err := s.i.answer(s.ctx, &s.latest, err)
	if fields != nil {
		s.fields.Store(&fields)
	}
	if err != nil && s.ctx.Err() == nil {
		s.err = err
		s.cancel(err)
	}
	return err
}

// copyFields copies the fields of the latest message.
func (s *messages) copyFields(to http.Header) {
	if fields := s.fields.Load(); fields != nil {
		maps.Copy(to, *fields)
	}
}
