// SPDX-License-Identifier: MIT

package envoy

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
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
	request := original(q.GetAttributes(), of)
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
		d.SetFields(w.header)
		return &auth.CheckResponse{Status: &rpc.Status{}, HttpResponse: &auth.CheckResponse_OkResponse{
			OkResponse: changes(&d, request.HTTP.Header, w.header),
		}}, nil
	}
	d.Refuse(&w, code)
	return denied(code, w.header, w.body.String()), nil
}

// changes returns an answer that allows a request with the header h, and lets Envoy change that as
// [diana.Decision.SetUpstream] says. response is what Envoy adds to the response.
func changes(d *diana.Decision, h, response http.Header) *auth.OkHttpResponse {
	ok := &auth.OkHttpResponse{ResponseHeadersToAdd: options(response)}
	before := h.Clone()
	d.SetUpstream(h)
	set := http.Header{}
	for name, lines := range h {
		if !slices.Equal(lines, before[name]) {
			set[name] = lines
		}
	}
	for name := range before {
		if _, kept := h[name]; !kept {
			ok.HeadersToRemove = append(ok.HeadersToRemove, strings.ToLower(name))
		}
	}
	slices.Sort(ok.HeadersToRemove)
	ok.Headers = options(set)
	return ok
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
	r.TLS = shown(a.GetSource().GetCertificate())
	request := diana.Request{Method: r.Method, Path: path, HTTP: r}
	if short != path {
		request.OtherPaths = []string{short}
	}
	return request
}

// shown returns the TLS connection of a client by the certificate that Envoy has verified, which is PEM in URL encoding,
// or nil if Envoy has sent none.
func shown(certificate string) *tls.ConnectionState {
	text, err := url.QueryUnescape(strings.ReplaceAll(certificate, "+", "%2B"))
	if err != nil {
		return nil
	}
	block, _ := pem.Decode([]byte(text))
	if block == nil {
		return nil
	}
	leaf, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil
	}
	chain := []*x509.Certificate{leaf}
	return &tls.ConnectionState{PeerCertificates: chain, VerifiedChains: [][]*x509.Certificate{chain}}
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
