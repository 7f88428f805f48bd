// SPDX-License-Identifier: MIT

package envoy

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	auth "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	proc "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	rpc "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/internal/respond"
	"github.com/diana-limiter/diana/rule"
)

// Authorization decides about HTTP requests by the rules of a Limiter. It is the service
// envoy.service.auth.v3.Authorization, which sees the header of a request, and also the service
// envoy.service.ext_proc.v3.ExternalProcessor, which sees the request and its response. It is safe for concurrent use.
type Authorization struct {
	auth.UnimplementedAuthorizationServer
	proc.UnimplementedExternalProcessorServer

	// OnInvalid is that of RateLimitOptions. Set it before the first question.
	OnInvalid func(error)

	limiter *diana.Limiter
	streams atomic.Int64 // of Process
}

// NewAuthorization returns an Authorization that asks a Limiter.
func NewAuthorization(limiter *diana.Limiter) *Authorization { return &Authorization{limiter: limiter} }

// Check decides about a request. A refusal has the configured status if that is below 500, and 429
// otherwise: Envoy takes a 5xx for a failure of the service. The error is InvalidArgument for a question
// without a request, and FailedPrecondition if a rule of the request needs to learn how the request ends, because
// Process alone does.
func (s *Authorization) Check(ctx context.Context, q *auth.CheckRequest) (*auth.CheckResponse, error) {
	of := q.GetAttributes().GetRequest().GetHttp()
	if of == nil {
		return nil, told(s.OnInvalid, errNoRequest)
	}
	code := respond.BelowServerError(s.limiter.Config().Response.Status)
	request, query := to(of.GetMethod(), of.GetPath())
	request.Native = &asked{q.GetAttributes(), of, request.Path, query}
	d, err := s.limiter.Take(ctx, request)
	defer d.Done()
	w := answer{header: http.Header{}}
	var strange *rule.PathError
	var credential *rule.CredentialError
	switch {
	case errors.As(err, &credential):
		rejected := *credential
		rejected.Status = respond.BelowServerError(credential.Status)
		respond.Reject(&w, &http.Request{Header: http.Header{}}, &rejected, "")
		return denied(rejected.Status, w.header, w.body.String()), nil
	case errors.As(err, &strange):
		respond.RejectPath(&w, strange, code)
		return denied(code, w.header, w.body.String()), nil
	case err != nil:
		return nil, status.FromContextError(err).Err()
	}
	if d.Allowed {
		for i := range d.Verdicts {
			if of := d.Verdicts[i].Rule; of.Algorithm.Held || len(of.Charge) > 0 {
				return nil, told(s.OnInvalid, status.Errorf(codes.FailedPrecondition, "rule %q needs to learn how a request ends, which ext_proc says and ext_authz does not", of.Name))
			}
		}
		d.SetFields(w.header)
		return &auth.CheckResponse{Status: &rpc.Status{}, HttpResponse: &auth.CheckResponse_OkResponse{
			OkResponse: changes(&d, w.header),
		}}, nil
	}
	d.Refuse(&w, code)
	return denied(code, w.header, w.body.String()), nil
}

// changes returns an answer that allows a request, and lets Envoy change its header as [diana.Decision.SetUpstream]
// says. response is what Envoy adds to the response.
func changes(d *diana.Decision, response http.Header) *auth.OkHttpResponse {
	ok := &auth.OkHttpResponse{ResponseHeadersToAdd: options(response)}
	if r := d.Request().HTTP; r != nil { // the copy in which credentials were looked for
		before := maps.Clone(r.Header)
		d.SetUpstream(r.Header)
		ok.Headers, ok.HeadersToRemove = difference(before, r.Header)
	}
	return ok
}

// difference returns how Envoy makes one header of another.
func difference(before, after http.Header) (set []*core.HeaderValueOption, remove []string) {
	changed := http.Header{}
	for name, lines := range after {
		if !slices.Equal(lines, before[name]) {
			changed[name] = lines
		}
	}
	for name := range before {
		if _, kept := after[name]; !kept {
			remove = append(remove, strings.ToLower(name))
		}
	}
	slices.Sort(remove)
	return options(changed), remove
}

var errNoRequest = status.Error(codes.InvalidArgument, "attributes.request.http is missing, expected the HTTP request that Envoy asks about")

// told calls f, which may be nil, with err if that is the fault of who asks. It returns err.
func told(f func(error), err error) error {
	if code := status.Code(err); f != nil && (code == codes.InvalidArgument || code == codes.FailedPrecondition) {
		f(err)
	}
	return err
}

// denied returns the answer to a request that is refused.
func denied(code int, header http.Header, body string) *auth.CheckResponse {
	return &auth.CheckResponse{
		Status: &rpc.Status{Code: int32(codes.PermissionDenied)},
		HttpResponse: &auth.CheckResponse_DeniedResponse{DeniedResponse: &auth.DeniedHttpResponse{
			Status: &typev3.HttpStatus{Code: typev3.StatusCode(code)}, Headers: options(header), Body: body,
		}},
	}
}

// options returns a header as Envoy sets it, in place of fields with the same names.
func options(h http.Header) (list []*core.HeaderValueOption) {
	for _, name := range slices.Sorted(maps.Keys(h)) {
		action := core.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD
		for _, value := range h[name] {
			list = append(list, &core.HeaderValueOption{
				Header: &core.HeaderValue{Key: strings.ToLower(name), Value: value}, AppendAction: action,
			})
			action = core.HeaderValueOption_APPEND_IF_EXISTS_OR_ADD
		}
	}
	return list
}

// answer is a ResponseWriter that keeps what is written.
type answer struct {
	header http.Header
	body   bytes.Buffer
}

func (a *answer) Header() http.Header         { return a.header }
func (a *answer) Write(b []byte) (int, error) { return a.body.Write(b) }
func (a *answer) WriteHeader(int)             {}
