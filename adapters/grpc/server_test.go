// SPDX-License-Identifier: MIT

package dianagrpc_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/diana-limiter/diana"
	dianagrpc "github.com/diana-limiter/diana/adapters/grpc"
	"github.com/diana-limiter/diana/adapters/rpctest"
)

func TestCases(t *testing.T) {
	t.Parallel()
	rpctest.Framework{Start: start, HeadersSent: true}.Run(t)
}

// start serves a service with grpc.Server on a port of its own.
func start(t *testing.T, l *diana.Limiter, s *rpctest.Service, o rpctest.Options) rpctest.Client {
	t.Helper()
	adapter := dianagrpc.Options{Actor: o.Actor, PerMessage: o.PerMessage}
	if o.Refuse {
		adapter.Refuse = func(context.Context, *diana.Decision) error { return status.Error(codes.Aborted, rpctest.Refused) }
	}
	server := grpc.NewServer(
		grpc.ChainUnaryInterceptor(around(o).unary, adapter.UnaryServerInterceptor(l)),
		grpc.ChainStreamInterceptor(around(o).stream, adapter.StreamServerInterceptor(l)),
	)
	server.RegisterService(&description, s)
	return dial(t, listen(t, server)).call
}

func dial(t *testing.T, address string, o ...grpc.DialOption) client {
	t.Helper()
	conn, err := grpc.NewClient(address, append(o, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return client{conn}
}

// around are the interceptors around the adapter.
type around rpctest.Options

func (o around) unary(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (reply any, err error) {
	defer recovered(&err)
	if o.SendHeader {
		_ = grpc.SendHeader(ctx, metadata.Pairs("early", "yes"))
	}
	if o.Account != "" {
		ctx = rpctest.WithAccount(ctx, o.Account)
	}
	return next(ctx, req)
}

func (o around) stream(service any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) (err error) {
	defer recovered(&err)
	if o.SendHeader {
		_ = stream.SendHeader(metadata.Pairs("early", "yes"))
	}
	if o.Account != "" {
		stream = withContext{stream, rpctest.WithAccount(stream.Context(), o.Account)}
	}
	return next(service, stream)
}

type withContext struct {
	grpc.ServerStream
	ctx context.Context
}

func (s withContext) Context() context.Context { return s.ctx }

// recovered turns a panic into an error.
func recovered(err *error) {
	if recover() != nil {
		*err = status.Error(codes.Internal, "recovered")
	}
}

// description is that of rpctest.Service.
var description = grpc.ServiceDesc{
	ServiceName: rpctest.ServiceName,
	HandlerType: (*any)(nil),
	Methods:     []grpc.MethodDesc{{MethodName: "Unary", Handler: serveUnary}},
	Streams: []grpc.StreamDesc{
		{StreamName: "ServerStream", Handler: serveStream(rpctest.ServerStream), ServerStreams: true},
		{StreamName: "ClientStream", Handler: serveStream(rpctest.ClientStream), ClientStreams: true},
		{StreamName: "Bidi", Handler: serveStream(rpctest.Bidi), ServerStreams: true, ClientStreams: true},
	},
}

//nolint:revive // grpc.MethodHandler has this order of arguments.
func serveUnary(service any, ctx context.Context, decode func(any) error, interceptor grpc.UnaryServerInterceptor) (any, error) {
	in := &wrapperspb.StringValue{}
	if err := decode(in); err != nil {
		return nil, err
	}
	handler := func(ctx context.Context, req any) (any, error) {
		var reply *wrapperspb.StringValue
		err := service.(*rpctest.Service).Serve(ctx, rpctest.Unary, rpctest.Stream{
			Receive: func() (string, error) { return req.(*wrapperspb.StringValue).Value, nil },
			Send: func(text string) error {
				reply = wrapperspb.String(text)
				return nil
			},
		})
		if errors.Is(err, rpctest.ErrNothing) {
			return nil, nil
		}
		return reply, coded(err)
	}
	return interceptor(ctx, in, &grpc.UnaryServerInfo{Server: service, FullMethod: rpctest.Unary.Method()}, handler)
}

func serveStream(kind rpctest.Kind) grpc.StreamHandler {
	return func(service any, stream grpc.ServerStream) error {
		return coded(service.(*rpctest.Service).Serve(stream.Context(), kind, rpctest.Stream{
			Receive: func() (string, error) {
				in := &wrapperspb.StringValue{}
				err := stream.RecvMsg(in)
				return in.Value, err
			},
			Send: func(text string) error { return stream.SendMsg(wrapperspb.String(text)) },
		}))
	}
}

// coded returns the error of a service as one of gRPC.
func coded(err error) error {
	if code := rpctest.Code(0); errors.As(err, &code) {
		return status.Error(codes.Code(code), err.Error())
	}
	return err
}

// client makes calls to a rpctest.Service.
type client struct{ conn *grpc.ClientConn }

func (c client) call(ctx context.Context, call rpctest.Call) (r rpctest.Reply) {
	for name, value := range call.Fields {
		ctx = metadata.AppendToOutgoingContext(ctx, name, value)
	}
	var header, trailer metadata.MD
	var err error
	if call.Kind == rpctest.Unary {
		reply := &wrapperspb.StringValue{}
		err = c.conn.Invoke(ctx, call.Kind.Method(), wrapperspb.String(call.Messages[0]), reply, grpc.Header(&header), grpc.Trailer(&trailer))
		if err == nil {
			r.Messages = []string{reply.Value}
		}
	} else {
		header, trailer, r.Messages, err = c.stream(ctx, call)
	}
	s := status.Convert(err)
	r.Code, r.Text, r.Header, r.Trailer = rpctest.Code(s.Code()), s.Message(), canonical(header), canonical(trailer)
	for _, detail := range s.Details() {
		switch detail := detail.(type) {
		case *errdetails.RetryInfo:
			r.Retry = detail.RetryDelay.AsDuration()
		case *errdetails.QuotaFailure:
			for _, v := range detail.Violations {
				r.Violations = append(r.Violations, v.Subject)
			}
		}
	}
	return r
}

// stream makes a call that is not unary. It ends its context, because gRPC expects that of a client that
// does not read until the end.
func (c client) stream(ctx context.Context, call rpctest.Call) (header, trailer metadata.MD, replies []string, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	desc := description.Streams[call.Kind-1]
	stream, err := c.conn.NewStream(ctx, &desc, call.Kind.Method())
	if err != nil {
		return nil, nil, nil, err
	}
	receive := func() bool {
		reply := &wrapperspb.StringValue{}
		if err = stream.RecvMsg(reply); err == nil {
			replies = append(replies, reply.Value)
		}
		return err == nil
	}
	for _, m := range call.Messages {
		if err := stream.SendMsg(wrapperspb.String(m)); err != nil {
			break // the stream has ended: RecvMsg says why
		}
		if call.Kind == rpctest.Bidi && !receive() {
			break
		}
	}
	_ = stream.CloseSend()
	for err == nil && receive() {
	}
	header, _ = stream.Header()
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return header, stream.Trailer(), replies, err
}

func canonical(md metadata.MD) http.Header {
	h := http.Header{}
	for name, values := range md {
		h[http.CanonicalHeaderKey(name)] = values
	}
	return h
}
