// SPDX-License-Identifier: MIT

package dianaconnect

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"sync"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/internal/calls"
	"github.com/diana-limiter/diana/internal/native"
)

// Options are what a program decides about its interceptors. The zero value is ready to use.
type Options struct {
	// Actor returns an actor that the server has established, such as the account of a token that an
	// earlier interceptor has put into ctx. It is believed over header fields: see [diana.WithActor]. If
	// kind is empty, the fields count. Nil means that they always do.
	Actor func(ctx context.Context, procedure string) (kind, value string)

	// PerMessage charges each message that a stream receives, in place of the stream. The first message
	// that is refused ends the stream. A stream holds the slot of its latest message until the next one. The
	// handler sees the credentials of the client until it has received a message.
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
		fields := http.Header{} // on the stack
		err = i.answer(ctx, &d, err, fields)
		if len(fields) > 0 {
			if info, ok := connect.CallInfoForHandlerContext(ctx); ok { // an error may be shared, so it does not get the fields
				maps.Copy(info.ResponseHeader(), fields)
				maps.Copy(info.ResponseTrailer(), fields)
			}
		}
		if err != nil {
			return nil, err
		}
		proved, changed := native.Upstream(ctx, &d)
		replace(req.Header(), changed)
		response, err = next(proved, req)
		settle(ctx, &d, req.HTTPMethod(), err)
		return response, err
	}
}

// prepared returns a function that prepares the procedure of a handler at its first call, for both methods by which
// its calls come. A handler has one procedure.
func (i *interceptor) prepared() func(method string, spec connect.Spec) *diana.Prepared {
	var once sync.Once
	var get, post *diana.Prepared
	return func(method string, spec connect.Spec) *diana.Prepared {
		once.Do(func() {
			get, post = i.limiter.Prepare(http.MethodGet, spec.Procedure), i.limiter.Prepare(http.MethodPost, spec.Procedure)
		})
		if method == http.MethodGet {
			return get
		}
		return post
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
		fields := http.Header{}
		err = i.answer(ctx, &d, err, fields)
		maps.Copy(conn.ResponseHeader(), fields)
		maps.Copy(conn.ResponseTrailer(), fields)
		if err != nil {
			return err
		}
		proved, changed := native.Upstream(ctx, &d)
		replace(conn.RequestHeader(), changed)
		err = next(proved, conn)
		settle(ctx, &d, http.MethodPost, err)
		return err
	}
}

// settle settles a call with the error of its handler.
func settle(ctx context.Context, d *diana.Decision, method string, err error) {
	if method == http.MethodGet && connect.IsNotModifiedError(err) && ctx.Err() == nil {
		d.SetStatus(http.StatusNotModified)
		return
	}
	calls.Settle(ctx, d, uint32(codeOf(err)))
}

// codeOf returns the code that a handler sends for an error.
func codeOf(err error) connect.Code {
	if err == nil {
		return 0
	}
	if coded, ok := errors.AsType[*connect.Error](err); ok {
		return coded.Code()
	}
	switch {
	case errors.Is(err, context.Canceled):
		return connect.CodeCanceled
	case errors.Is(err, context.DeadlineExceeded):
		return connect.CodeDeadlineExceeded
	}
	return connect.CodeUnknown
}

// answer sets the RateLimit fields of a decision, and returns the error of a call that may not proceed. err is
// that of Take.
func (i *interceptor) answer(ctx context.Context, d *diana.Decision, err error, fields http.Header) error {
	if code, _ := calls.Rejected(err); code != 0 {
		return connect.NewError(connect.Code(code), err)
	} else if err != nil {
		return connect.NewError(codeOf(err), err)
	}
	if d.SetFields(fields); d.Allowed {
		return nil
	}
	delete(fields, "Cache-Control") // no trailer may have it, and nobody caches a refusal without it
	if i.Refuse != nil {
		refused := *d // a copy, so that only a call that gets here allocates
		if err := i.Refuse(ctx, &refused); err != nil {
			return err
		}
	}
	return refusal(d)
}

// refusal returns the error of a call that the limits refuse.
func refusal(d *diana.Decision) error {
	quota := &errdetails.QuotaFailure{}
	for _, name := range calls.Refusing(d) {
		quota.Violations = append(quota.Violations, &errdetails.QuotaFailure_Violation{
			Subject: name, QuotaId: name, Description: "The call is more than this rule allows.",
		})
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
