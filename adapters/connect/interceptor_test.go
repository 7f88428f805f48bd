// SPDX-License-Identifier: MIT

package dianaconnect_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/diana-limiter/diana"
	dianaconnect "github.com/diana-limiter/diana/adapters/connect"
	"github.com/diana-limiter/diana/adapters/rpctest"
)

// Text is a message of rpctest.Service.
type Text = wrapperspb.StringValue

func TestCases(t *testing.T) {
	t.Parallel()
	for protocol, options := range map[string][]connect.ClientOption{
		"Connect": nil, "gRPC": {connect.WithGRPC()}, "gRPC-Web": {connect.WithGRPCWeb()},
	} {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel()
			rpctest.Framework{Start: starter(options...)}.Run(t)
		})
	}
}

// starter returns a function that serves a service with net/http on a port of its own, over HTTP/2 without
// TLS. Its client speaks the protocol of the options.
func starter(options ...connect.ClientOption) func(*testing.T, *diana.Limiter, *rpctest.Service, rpctest.Options) rpctest.Client {
	return func(t *testing.T, l *diana.Limiter, s *rpctest.Service, o rpctest.Options) rpctest.Client {
		t.Helper()
		adapter := dianaconnect.Options{Actor: o.Actor, PerMessage: o.PerMessage}
		if o.Refuse {
			adapter.Refuse = func(context.Context, *diana.Decision) error {
				return connect.NewError(connect.CodeAborted, errors.New(rpctest.Refused))
			}
		}
		address := serve(t, newMux(s, connect.WithHandlerOptions(
			connect.WithRecover(func(context.Context, connect.Spec, http.Header, any) error {
				return connect.NewError(connect.CodeInternal, errors.New("recovered"))
			}),
			connect.WithInterceptors(account(o.Account), adapter.Interceptor(l)),
		)))
		return newClient(t, address, options...).call
	}
}

// serve serves HTTP/1 and HTTP/2 without TLS.
func serve(t *testing.T, h http.Handler) (address string) {
	t.Helper()
	server := httptest.NewUnstartedServer(h)
	server.Config.Protocols = &http.Protocols{}
	server.Config.Protocols.SetHTTP1(true)
	server.Config.Protocols.SetUnencryptedHTTP2(true)
	server.Start()
	t.Cleanup(server.Close)
	return server.URL
}

// account is an interceptor that puts an account into the context, unless it is empty.
type account string

func (a account) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		return next(rpctest.WithAccount(ctx, string(a)), req)
	}
}

func (a account) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, conn connect.StreamingHandlerConn) error {
		return next(rpctest.WithAccount(ctx, string(a)), conn)
	}
}

func (a account) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

// newMux returns the handlers of a service.
func newMux(s *rpctest.Service, o ...connect.HandlerOption) *http.ServeMux {
	mux := http.NewServeMux()
	mux.Handle(rpctest.Unary.Method(), connect.NewUnaryHandler(rpctest.Unary.Method(),
		func(ctx context.Context, req *connect.Request[Text]) (reply *connect.Response[Text], err error) {
			err = s.Serve(ctx, rpctest.Unary, rpctest.Stream{
				Receive: func() (string, error) { return req.Msg.Value, nil },
				Send: func(text string) error {
					reply = connect.NewResponse(&Text{Value: text})
					return nil
				},
			})
			if errors.Is(err, rpctest.ErrNothing) {
				return nil, nil
			}
			return reply, coded(err)
		}, o...))
	mux.Handle(rpctest.ServerStream.Method(), connect.NewServerStreamHandler(rpctest.ServerStream.Method(),
		func(ctx context.Context, req *connect.Request[Text], stream *connect.ServerStream[Text]) error {
			return coded(s.Serve(ctx, rpctest.ServerStream, rpctest.Stream{
				Receive: func() (string, error) { return req.Msg.Value, nil },
				Send:    func(text string) error { return stream.Send(&Text{Value: text}) },
			}))
		}, o...))
	mux.Handle(rpctest.ClientStream.Method(), connect.NewClientStreamHandler(rpctest.ClientStream.Method(),
		func(ctx context.Context, stream *connect.ClientStream[Text]) (reply *connect.Response[Text], err error) {
			err = s.Serve(ctx, rpctest.ClientStream, rpctest.Stream{
				Receive: func() (string, error) {
					if stream.Receive() {
						return stream.Msg().Value, nil
					}
					if stream.Err() != nil {
						return "", stream.Err()
					}
					return "", io.EOF
				},
				Send: func(text string) error {
					reply = connect.NewResponse(&Text{Value: text})
					return nil
				},
			})
			if err == nil && reply == nil { // of a service that does not regard errors
				reply = connect.NewResponse(&Text{})
			}
			return reply, coded(err)
		}, o...))
	mux.Handle(rpctest.Bidi.Method(), connect.NewBidiStreamHandler(rpctest.Bidi.Method(),
		func(ctx context.Context, stream *connect.BidiStream[Text, Text]) error {
			return coded(s.Serve(ctx, rpctest.Bidi, rpctest.Stream{
				Receive: func() (string, error) {
					in, err := stream.Receive()
					if err != nil {
						return "", err
					}
					return in.Value, nil
				},
				Send: func(text string) error { return stream.Send(&Text{Value: text}) },
			}))
		}, o...))
	return mux
}

// coded returns the error of a service as one of Connect.
func coded(err error) error {
	if code := rpctest.Code(0); errors.As(err, &code) {
		return connect.NewError(connect.Code(code), err)
	}
	return err
}

// client makes calls to a rpctest.Service.
type client map[rpctest.Kind]*connect.Client[Text, Text]

func newClient(t *testing.T, address string, o ...connect.ClientOption) client {
	t.Helper()
	transport := &http.Transport{Protocols: &http.Protocols{}}
	transport.Protocols.SetUnencryptedHTTP2(true)
	t.Cleanup(transport.CloseIdleConnections)
	o = append(o, connect.WithAcceptCompression("gzip", nil, nil)) // which is slow under the race detector
	c := client{}
	for _, kind := range []rpctest.Kind{rpctest.Unary, rpctest.ServerStream, rpctest.ClientStream, rpctest.Bidi} {
		c[kind] = connect.NewClient[Text, Text](&http.Client{Transport: transport}, address+kind.Method(), o...)
	}
	return c
}

func (c client) call(ctx context.Context, call rpctest.Call) rpctest.Reply {
	var r rpctest.Reply
	var err error
	switch call.Kind {
	case rpctest.Unary:
		r, err = c.unary(ctx, call)
	case rpctest.ServerStream:
		r, err = c.serverStream(ctx, call)
	case rpctest.ClientStream:
		r, err = c.clientStream(ctx, call)
	case rpctest.Bidi:
		r, err = c.bidi(ctx, call)
	}
	if coded := (*connect.Error)(nil); errors.As(err, &coded) {
		r.Code, r.Text, r.Header, r.Trailer = rpctest.Code(coded.Code()), coded.Message(), coded.Meta(), coded.Meta()
		addDetails(&r, coded)
	} else if err != nil {
		r.Code, r.Text = -1, err.Error()
	}
	return r
}

func addDetails(r *rpctest.Reply, err *connect.Error) {
	for _, detail := range err.Details() {
		switch detail, _ := detail.Value(); detail := detail.(type) {
		case *errdetails.RetryInfo:
			r.Retry = detail.RetryDelay.AsDuration()
		case *errdetails.QuotaFailure:
			for _, v := range detail.Violations {
				r.Violations = append(r.Violations, v.Subject)
			}
		}
	}
}

func setFields(h http.Header, call rpctest.Call) {
	for name, value := range call.Fields {
		h.Set(name, value)
	}
}

func (c client) unary(ctx context.Context, call rpctest.Call) (r rpctest.Reply, err error) {
	req := connect.NewRequest(&Text{Value: call.Messages[0]})
	setFields(req.Header(), call)
	reply, err := c[call.Kind].CallUnary(ctx, req)
	if err == nil {
		r = rpctest.Reply{Messages: []string{reply.Msg.Value}, Header: reply.Header(), Trailer: reply.Trailer()}
	}
	return r, err
}

func (c client) serverStream(ctx context.Context, call rpctest.Call) (r rpctest.Reply, err error) {
	req := connect.NewRequest(&Text{Value: call.Messages[0]})
	setFields(req.Header(), call)
	stream, err := c[call.Kind].CallServerStream(ctx, req)
	if err != nil {
		return r, err
	}
	defer stream.Close()
	for stream.Receive() {
		r.Messages = append(r.Messages, stream.Msg().Value)
	}
	r.Header, r.Trailer = stream.ResponseHeader(), stream.ResponseTrailer()
	return r, stream.Err()
}

func (c client) clientStream(ctx context.Context, call rpctest.Call) (r rpctest.Reply, err error) {
	stream := c[call.Kind].CallClientStream(ctx)
	setFields(stream.RequestHeader(), call)
	for _, m := range call.Messages {
		if stream.Send(&Text{Value: m}) != nil {
			break // the stream has ended: CloseAndReceive says why
		}
	}
	reply, err := stream.CloseAndReceive()
	if err == nil {
		r = rpctest.Reply{Messages: []string{reply.Msg.Value}, Header: reply.Header(), Trailer: reply.Trailer()}
	}
	return r, err
}

func (c client) bidi(ctx context.Context, call rpctest.Call) (r rpctest.Reply, err error) {
	stream := c[call.Kind].CallBidiStream(ctx)
	setFields(stream.RequestHeader(), call)
	receive := func() bool {
		var reply *Text
		if reply, err = stream.Receive(); err == nil {
			r.Messages = append(r.Messages, reply.Value)
		}
		return err == nil
	}
	for _, m := range call.Messages {
		if stream.Send(&Text{Value: m}) != nil || !receive() {
			break // the stream has ended: Receive says why
		}
	}
	_ = stream.CloseRequest()
	for err == nil && receive() {
	}
	r.Header, r.Trailer = stream.ResponseHeader(), stream.ResponseTrailer()
	_ = stream.CloseResponse()
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return r, err
}
