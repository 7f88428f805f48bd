// SPDX-License-Identifier: MIT

package dianaconnect

import (
	"context"
	"maps"
	"net/http"
	"sync/atomic"

	"connectrpc.com/connect"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/internal/calls"
	"github.com/diana-limiter/diana/internal/native"
)

// messages is a stream that is charged for each message that it receives.
type messages struct {
	connect.StreamingHandlerConn
	charges calls.Messages
	fields  atomic.Pointer[http.Header] // of the latest message
	proved  atomic.Pointer[http.Header] // of the request without its credentials; nil until a message had valid ones
}

// servePerMessage calls the handler with a stream that is charged for each message.
func (i *interceptor) servePerMessage(ctx context.Context, conn connect.StreamingHandlerConn, limits *diana.Prepared, next connect.StreamingHandlerFunc) error {
	s := &messages{StreamingHandlerConn: conn}
	s.charges = calls.Messages{
		Take: func(ctx context.Context) (diana.Decision, error) {
			return limits.Take(ctx, i.request(ctx, http.MethodPost, conn.Spec(), conn.Peer(), conn.RequestHeader()))
		},
		Answer: func(ctx context.Context, d *diana.Decision, err error) error {
			fields, decided := http.Header{}, err == nil
			err = i.answer(ctx, d, err, fields)
			if decided {
				s.fields.Store(&fields)
			}
			if err == nil {
				if _, changed := native.Upstream(ctx, d); len(changed) > 0 {
					proved := conn.RequestHeader().Clone() // because the next message needs the credentials
					replace(proved, changed)
					s.proved.Store(&proved)
				}
			}
			return err
		},
		Finish: func() {
			s.copyFields(conn.ResponseHeader()) // without effect if the header was sent
			s.copyFields(conn.ResponseTrailer())
		},
		Settle: func(d *diana.Decision, err error) { settle(ctx, d, http.MethodPost, err) },
	}
	s.charges.Begin(ctx)
	return s.charges.Serve(func() error { return next(s.charges.Context, s) })
}

// RequestHeader returns the header that the handler may see.
func (s *messages) RequestHeader() http.Header {
	if proved := s.proved.Load(); proved != nil {
		return *proved
	}
	return s.StreamingHandlerConn.RequestHeader()
}

// Send fails after a message was refused. It sets the fields of the header, because Receive can run at the
// same time, when nothing but Send may change them.
func (s *messages) Send(m any) error {
	if err := s.charges.Err(); err != nil {
		return err
	}
	s.copyFields(s.ResponseHeader()) // without effect if the header was sent
	return s.StreamingHandlerConn.Send(m)
}

// Receive receives a message and charges it.
func (s *messages) Receive(m any) error {
	if err := s.StreamingHandlerConn.Receive(m); err != nil {
		return err
	}
	return s.charges.Charge()
}

// copyFields copies the fields of the latest message.
func (s *messages) copyFields(to http.Header) {
	if fields := s.fields.Load(); fields != nil {
		maps.Copy(to, *fields)
	}
}
