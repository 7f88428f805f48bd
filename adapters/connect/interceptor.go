// SPDX-License-Identifier: MIT

package dianaconnect

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"sync"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/rule"
)

// Options are what a program decides about its interceptors. The zero value is ready to use.
type Options struct {
	// Actor returns an actor that the server has established, such as the account of a token that an
	// earlier interceptor has put into ctx. It is believed over header fields: see [diana.WithActor]. If
	// kind is empty, the fields count. Nil means that they always do.
	Actor func(ctx context.Context, procedure string) (kind, value string)

	// PerMessage charges each message that a stream receives, in place of the stream. The first message
	// that is refused ends the stream. A stream holds the slot of its latest message until the next one.
	PerMessage bool

	// Refuse returns the error of a call that is refused. It must not keep the Decision. Nil means
	// resource_exhausted with RetryInfo and QuotaFailure, and so does a nil error.
	Refuse func(ctx context.Context, d *diana.Decision) error
}

// Interceptor returns an interceptor that limits the calls of a handler, with the zero Options. It leaves
// the calls of a client as they are.
func Interceptor(limiter *diana.Limiter) connect.Interceptor { return Options{}.Interceptor(limiter) }

// Interceptor is like the function of that name, with these options.
func (o Options) Interceptor(limiter *diana.Limiter) connect.Interceptor {
	return &interceptor{o, limiter}
}

type interceptor struct {
	Options
	limiter *diana.Limiter
}

// WrapUnary limits unary calls.
func (i *interceptor) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	limits := i.prepared()
	return func(ctx context.Context, req connect.AnyRequest) (response connect.AnyResponse, err error) {
		if req.Spec().IsClient {
			return next(ctx, req)
		}
		d, err := limits(req.HTTPMethod(), req.Spec()).Take(ctx, i.request(ctx, req.HTTPMethod(), req.Spec(), req.Peer(), req.Header()))
		defer d.Done()
		fields, err := i.answer(ctx, &d, err)
		if info, ok := connect.CallInfoForHandlerContext(ctx); ok { // an error may be shared, so it does not get the fields
			maps.Copy(info.ResponseHeader(), fields)
			maps.Copy(info.ResponseTrailer(), fields)
		}
		if err != nil {
			return nil, err
		}
		response, err = next(ctx, req)
		settle(ctx, &d, req.HTTPMethod(), err)
		return response, err
	}
}

// prepared returns a function that prepares the procedure of a handler at its first call. A handler has one
// procedure. If its calls come by GET and POST, those of one method find their rules each time.
func (i *interceptor) prepared() func(method string, spec connect.Spec) *diana.Prepared {
	var once sync.Once
	var limits *diana.Prepared
	return func(method string, spec connect.Spec) *diana.Prepared {
		once.Do(func() { limits = i.limiter.Prepare(method, spec.Procedure) })
		return limits
	}
}

// WrapStreamingClient returns next.
func (*interceptor) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

// WrapStreamingHandler limits streams.
func (i *interceptor) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	prepared := i.prepared()
	return func(ctx context.Context, conn connect.StreamingHandlerConn) error {
		limits := prepared(http.MethodPost, conn.Spec())
		if i.PerMessage {
			return i.servePerMessage(ctx, conn, limits, next)
		}
		d, err := limits.Take(ctx, i.request(ctx, http.MethodPost, conn.Spec(), conn.Peer(), conn.RequestHeader()))
		defer d.Done()
		fields, err := i.answer(ctx, &d, err)
		maps.Copy(conn.ResponseHeader(), fields)
		maps.Copy(conn.ResponseTrailer(), fields)
		if err != nil {
			return err
		}
		err = next(ctx, conn)
		settle(ctx, &d, http.MethodPost, err)
		return err
	}
}

// request returns a call as the HTTP request that it is, with the procedure as its path.
func (i *interceptor) request(ctx context.Context, method string, spec connect.Spec, peer connect.Peer, header http.Header) diana.Request {
	r := &http.Request{
		Method: method, Host: header.Get("Host"), Header: header, RemoteAddr: peer.Addr, Body: http.NoBody,
		URL: &url.URL{Path: spec.Procedure, RawQuery: peer.Query.Encode()},
	}
	r = r.WithContext(ctx) // which has the actors of diana.WithActor
	if i.Actor != nil {
		if kind, value := i.Actor(ctx, spec.Procedure); kind != "" {
			r = diana.WithActor(r, kind, value)
		}
	}
	return diana.Request{Method: method, Path: spec.Procedure, HTTP: r}
}

// answer returns the RateLimit fields of a decision and the error of a call that may not proceed. err is
// that of Take.
func (i *interceptor) answer(ctx context.Context, d *diana.Decision, err error) (http.Header, error) {
	if _, ok := errors.AsType[*rule.PathError](err); ok {
		return nil, connect.NewError(connect.CodeInvalidArgument, err)
	} else if credential, ok := errors.AsType[*rule.CredentialError](err); ok {
		code := map[int]connect.Code{http.StatusUnauthorized: connect.CodeUnauthenticated, http.StatusTooManyRequests: connect.CodeResourceExhausted}[credential.Status]
		if code == 0 {
			code = connect.CodeUnavailable
		}
		return nil, connect.NewError(code, err)
	} else if err != nil {
		return nil, connect.NewError(codeOf(err), err)
	}
	fields := http.Header{}
	if d.SetFields(fields); d.Allowed {
		return fields, nil
	}
	fields.Del("Cache-Control") // no trailer may have it, and nobody caches a refusal without it
	if i.Refuse != nil {
		if err := i.Refuse(ctx, d); err != nil {
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
	text, details := "the limits never allow this call, repeating it does not help", []proto.Message{quota}
	if d.RetryAfter > 0 {
		text = "this call is more than the limits allow"
		details = append(details, &errdetails.RetryInfo{RetryDelay: durationpb.New(d.RetryAfter)})
	}
	refused := connect.NewError(connect.CodeResourceExhausted, errors.New(text))
	for _, m := range details {
		if detail, err := connect.NewErrorDetail(m); err == nil {
			refused.AddDetail(detail)
		}
	}
	return refused
}
