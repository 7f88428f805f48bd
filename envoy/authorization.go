// SPDX-License-Identifier: MIT

package envoy

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	auth "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	rpc "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/internal/httptext"
	"github.com/diana-limiter/diana/internal/respond"
	"github.com/diana-limiter/diana/rule"
)

// Authorization is the service envoy.service.auth.v3.Authorization: it decides about HTTP requests by the
// rules of a Limiter. It is safe for concurrent use.
type Authorization struct {
	auth.UnimplementedAuthorizationServer

	// OnInvalid is that of RateLimitOptions. Set it before the first question.
	OnInvalid func(error)

	limiter *diana.Limiter
}

// NewAuthorization returns an Authorization that asks a Limiter.
func NewAuthorization(limiter *diana.Limiter) *Authorization { return &Authorization{limiter: limiter} }

// Check decides about a request. A refusal has the configured status if that is below 500, and 429
// otherwise: Envoy takes a 5xx for a failure of the service. The error is InvalidArgument for a question
// without a request.
func (s *Authorization) Check(ctx context.Context, q *auth.CheckRequest) (*auth.CheckResponse, error) {
	of := q.GetAttributes().GetRequest().GetHttp()
	if of == nil {
		return nil, told(s.OnInvalid, errNoRequest)
	}
	code := respond.BelowServerError(s.limiter.Config().Response.Status)
	d, err := s.limiter.Take(ctx, original(q.GetAttributes(), of))
	defer d.Done()
	w := answer{header: http.Header{}}
	var strange *rule.PathError
	switch {
	case errors.As(err, &strange):
		respond.RejectPath(&w, strange, code)
		return denied(code, w.header, w.body.String()), nil
	case err != nil:
		return nil, status.FromContextError(err).Err()
	}
	if d.Allowed {
		d.SetFields(w.header)
		return &auth.CheckResponse{Status: &rpc.Status{}, HttpResponse: &auth.CheckResponse_OkResponse{
			OkResponse: &auth.OkHttpResponse{ResponseHeadersToAdd: options(w.header)},
		}}, nil
	}
	d.Refuse(&w, code)
	return denied(code, w.header, w.body.String()), nil
}

var errNoRequest = status.Error(codes.InvalidArgument, "attributes.request.http is missing, expected the HTTP request that Envoy asks about")

// told calls f, which may be nil, with err if that is InvalidArgument. It returns err.
func told(f func(error), err error) error {
	if f != nil && status.Code(err) == codes.InvalidArgument {
		f(err)
	}
	return err
}

// original returns the request that Envoy asks about.
func original(a *auth.AttributeContext, of *auth.AttributeContext_HttpRequest) diana.Request {
	path, short, query := httptext.Target(of.GetPath())
	r := &http.Request{
		Method: of.GetMethod(), Host: of.GetHost(), Header: make(http.Header, len(of.GetHeaders())),
		URL: &url.URL{Path: path, RawQuery: query}, Body: http.NoBody,
	}
	for name, value := range of.GetHeaders() {
		if !strings.HasPrefix(name, ":") {
			r.Header.Add(name, value)
		}
	}
	r.Header = httptext.SplitLines(r.Header)
	for _, h := range of.GetHeaderMap().GetHeaders() { // in place of the above, if Envoy is set to send it
		if name := h.GetKey(); !strings.HasPrefix(name, ":") {
			r.Header.Add(name, cmp.Or(h.GetValue(), string(h.GetRawValue())))
		}
	}
	if at := a.GetSource().GetAddress().GetSocketAddress(); at != nil {
		r.RemoteAddr = net.JoinHostPort(at.GetAddress(), strconv.FormatUint(uint64(at.GetPortValue()), 10))
	}
	request := diana.Request{Method: r.Method, Path: path, HTTP: r}
	if short != path {
		request.OtherPaths = []string{short}
	}
	return request
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

// options returns a header as Envoy sets it in a response, in place of fields with the same names.
func options(h http.Header) (list []*core.HeaderValueOption) {
	for _, name := range slices.Sorted(maps.Keys(h)) {
		for _, value := range h[name] {
			list = append(list, &core.HeaderValueOption{
				Header:       &core.HeaderValue{Key: strings.ToLower(name), Value: value},
				AppendAction: core.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD,
			})
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
