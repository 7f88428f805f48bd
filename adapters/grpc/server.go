// SPDX-License-Identifier: MIT

package dianagrpc

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/rule"
)

// Options are what a program decides about its interceptors. The zero value is ready to use.
type Options struct {
	// Actor returns an actor that the server has established, such as the account of a token that an
	// earlier interceptor has put into ctx. It is believed over metadata, as with [diana.WithActor]:
	// kind is "account", for example, and an empty value means that there is none. An empty kind leaves
	// the call as it is. Nil means that the configuration alone identifies the client.
	Actor func(ctx context.Context, fullMethod string) (kind, value string)

	// PerMessage charges each message that a stream receives, in place of the stream. The first message
	// that is refused ends the stream. A stream holds the slot of its latest message until the next one.
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
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (reply any, err error) {
		err = o.serve(ctx, limiter, info.FullMethod, func() error {
			reply, err = handler(ctx, req)
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
	return func(service any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		if o.PerMessage {
			return o.servePerMessage(service, stream, limiter, info.FullMethod, handler)
		}
		return o.serve(stream.Context(), limiter, info.FullMethod, func() error { return handler(service, stream) })
	}
}

// serve charges a call once, and calls next if it is allowed.
func (o Options) serve(ctx context.Context, limiter *diana.Limiter, method string, next func() error) error {
	d, err := limiter.Take(ctx, o.request(ctx, method))
	defer d.Done()
	fields, err := o.answer(ctx, &d, err)
	_ = grpc.SetHeader(ctx, fields) // fails if the header was sent; the trailer still has the fields
	_ = grpc.SetTrailer(ctx, fields)
	if err != nil {
		return err
	}
	err = next()
	settle(ctx, &d, err)
	return err
}

// request returns a call as the HTTP request that it is.
func (o Options) request(ctx context.Context, method string) diana.Request {
	path, query, _ := strings.Cut(method, "?")     // a server behind a handler of unknown services may read it so
	fields, _ := metadata.FromIncomingContext(ctx) // a copy, which becomes the header
	r := (&http.Request{
		Method: http.MethodPost, URL: &url.URL{Path: path, RawQuery: query}, Header: http.Header(fields), Body: http.NoBody,
	}).WithContext(ctx) // which has the actors of diana.WithActor
	for name, values := range fields {
		switch key := http.CanonicalHeaderKey(name); {
		case strings.HasPrefix(name, ":"):
			if name == ":authority" && len(values) > 0 {
				r.Host = values[0]
			}
			delete(fields, name)
		case key != name: // the loop can meet the new name again
			delete(fields, name)
			fields[key] = values
		}
	}
	if p, ok := peer.FromContext(ctx); ok && p.Addr != nil {
		r.RemoteAddr = p.Addr.String()
		if t, ok := p.AuthInfo.(credentials.TLSInfo); ok {
			r.TLS = &t.State
		}
	}
	if o.Actor != nil {
		if kind, value := o.Actor(ctx, method); kind != "" {
			r = diana.WithActor(r, kind, value)
		}
	}
	return diana.Request{Method: r.Method, Path: path, HTTP: r}
}

// answer returns the RateLimit fields of a decision and the error of a call that may not proceed. err is
// that of Take.
func (o Options) answer(ctx context.Context, d *diana.Decision, err error) (metadata.MD, error) {
	if strange, ok := errors.AsType[*rule.PathError](err); ok {
		return nil, status.Error(codes.InvalidArgument, "This call was refused because "+strange.Error()+".")
	} else if err != nil {
		return nil, status.FromContextError(err).Err()
	}
	header, fields := http.Header{}, metadata.MD{}
	d.SetFields(header)
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
	for i := range d.Verdicts {
		if v := &d.Verdicts[i]; v.Refused() {
			name := strings.ToValidUTF8(v.Rule.Name, "\uFFFD")
			quota.Violations = append(quota.Violations, &errdetails.QuotaFailure_Violation{
				Subject: name, QuotaId: name, Description: "The call is more than this rule allows.",
			})
		}
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
