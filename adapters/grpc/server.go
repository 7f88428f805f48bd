// SPDX-License-Identifier: MIT

package dianagrpc

import (
	"context"
	"net/http"
	"strings"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/internal/calls"
)

// Options are what a program decides about its interceptors. The zero value is ready to use.
type Options struct {
	// Actor returns an actor that the server has established, such as the account of a token that an
	// earlier interceptor has put into ctx. It is believed over metadata, as with [diana.WithActor]:
	// kind is "account", for example, and an empty value means that there is none. An empty kind leaves
	// the call as it is. Nil means that the configuration alone identifies the client.
	Actor func(ctx context.Context, fullMethod string) (kind, value string)

	// PerMessage charges each message that a stream receives, in place of the stream. The first message
	// that is refused ends the stream. A stream holds the slot of its latest message until the next one. The
	// handler sees the credentials of the client until it has received a message.
	PerMessage bool

	// Refuse returns the error of a call that is refused. It must not keep the Decision. Nil means
	// RESOURCE_EXHAUSTED with RetryInfo and QuotaFailure, and so does a nil error.
	Refuse func(ctx context.Context, d *diana.Decision) error
}

// UnaryServerInterceptor returns an interceptor that limits unary calls, with the zero Options.
func UnaryServerInterceptor(limiter *diana.Limiter) grpc.UnaryServerInterceptor {
	return Options{}.UnaryServerInterceptor(limiter)
}

// UnaryServerInterceptor is like the function of that name, with these options.
func (o Options) UnaryServerInterceptor(limiter *diana.Limiter) grpc.UnaryServerInterceptor {
	known := &methods{limiter: limiter}
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (reply any, err error) {
		err = o.serve(ctx, known.of(info.FullMethod, info.Server), info.FullMethod, func(proved context.Context) error {
			of := ctx
			if proved != nil {
				of = proved
			}
			reply, err = handler(of, req)
			return err
		})
		return reply, err
	}
}

// StreamServerInterceptor returns an interceptor that limits streams, with the zero Options.
func StreamServerInterceptor(limiter *diana.Limiter) grpc.StreamServerInterceptor {
	return Options{}.StreamServerInterceptor(limiter)
}

// StreamServerInterceptor is like the function of that name, with these options.
func (o Options) StreamServerInterceptor(limiter *diana.Limiter) grpc.StreamServerInterceptor {
	known := &methods{limiter: limiter}
	return func(service any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		method := known.of(info.FullMethod, service)
		if o.PerMessage {
			return o.servePerMessage(service, stream, method, info.FullMethod, handler)
		}
		return o.serve(stream.Context(), method, info.FullMethod, func(proved context.Context) error {
			if proved != nil {
				stream = &provedStream{stream, proved}
			}
			return handler(service, stream)
		})
	}
}

// serve charges a call once, and calls next if it is allowed. next gets nil, or the context that replaces ctx.
func (o Options) serve(ctx context.Context, limits *diana.Prepared, method string, next func(proved context.Context) error) error {
	d, err := limits.Take(ctx, o.request(ctx, method))
	defer d.Done()
	fields, err := o.answer(ctx, &d, err)
	_ = grpc.SetHeader(ctx, fields) // fails if the header was sent; the trailer still has the fields
	_ = grpc.SetTrailer(ctx, fields)
	if err != nil {
		return err
	}
	err = next(upstream(ctx, &d))
	settle(ctx, &d, err)
	return err
}

// provedStream is a stream whose handler does not see the credentials of the client.
type provedStream struct {
	grpc.ServerStream
	ctx context.Context
}

// Context returns the context without them.
func (s *provedStream) Context() context.Context { return s.ctx }

// settle settles a call with the error of its handler.
func settle(ctx context.Context, d *diana.Decision, err error) {
	s, ok := status.FromError(err)
	if !ok {
		s = status.FromContextError(err) // what grpc.Server makes of it
	}
	calls.Settle(ctx, d, uint32(s.Code()))
}

// answer returns the RateLimit fields of a decision and the error of a call that may not proceed. err is
// that of Take.
func (o Options) answer(ctx context.Context, d *diana.Decision, err error) (metadata.MD, error) {
	if code, reason := calls.Rejected(err); code != 0 {
		return nil, status.Error(codes.Code(code), "This call was refused because "+reason+".")
	} else if err != nil {
		return nil, status.FromContextError(err).Err()
	}
	header := http.Header{} // on the stack
	d.SetFields(header)
	var fields metadata.MD
	if len(header) > 0 {
		fields = metadata.MD{}
	}
	for name, values := range header {
		fields[strings.ToLower(name)] = values
	}
	if d.Allowed {
		return fields, nil
	}
	if o.Refuse != nil {
		refused := *d // a copy, so that only a call that gets here allocates
		if err := o.Refuse(ctx, &refused); err != nil {
			return fields, err
		}
	}
	return fields, refusal(d)
}

// refusal returns the error of a call that the limits refuse.
func refusal(d *diana.Decision) error {
	quota := &errdetails.QuotaFailure{}
	for _, name := range calls.Refusing(d) {
		quota.Violations = append(quota.Violations, &errdetails.QuotaFailure_Violation{
			Subject: name, QuotaId: name, Description: "The call is more than this rule allows.",
		})
	}
	text, details := "The limits never allow this call. Repeating it does not help.", []protoadapt.MessageV1{quota}
	if d.RetryAfter > 0 {
		text = "This call is more than the limits allow."
		details = append(details, &errdetails.RetryInfo{RetryDelay: durationpb.New(d.RetryAfter)})
	}
	s, err := status.New(codes.ResourceExhausted, text).WithDetails(details...)
	if err != nil {
		return status.Error(codes.ResourceExhausted, text)
	}
	return s.Err()
}
