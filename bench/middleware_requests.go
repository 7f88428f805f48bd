// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/valyala/fasthttp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
)

// client makes a request from an address.
type client func(address string) request

// request is one request within the process, which can be sent many times.
type request interface {
	send()

	// answer returns the status and the fields of the last response.
	answer() (status int, fields map[string][]string)
}

// Addresses of clients.
const oneAddress, otherAddress = "192.0.2.1", "192.0.2.2"

// urlAsked is the number of the URL that requests are for.
const urlAsked = 5

var (
	pathAsked   = fmt.Sprintf("/api/v%d/orders", urlAsked)
	deviceAsked = [2]string{"X-Device-Id", "0a1b2c3d"}
)

// opened returns what sends an allowed request to the middleware, after check.
func (m *middleware) opened(ctx context.Context) (send, stop func(), err error) {
	if err := m.check(ctx); err != nil {
		return nil, nil, err
	}
	c, stop, err := m.open(ctx, plenty)
	if err != nil {
		return nil, nil, err
	}
	r := c(oneAddress)
	r.send()
	if d := decisionOf(r); d != "allowed" {
		stop()
		return nil, nil, errors.New(d)
	}
	return r.send, stop, nil
}

// check returns an error unless the middleware refuses what is beyond a limit of 1, and nothing else. A
// limiter that finds no rule is fast.
func (m *middleware) check(ctx context.Context) error {
	c, stop, err := m.open(ctx, 1)
	if err != nil {
		return err
	}
	defer stop()
	first := c(oneAddress)
	first.send()
	_, fields := first.answer()
	decisions := []string{decisionOf(first)}
	for _, address := range []string{oneAddress, otherAddress} {
		r := c(address)
		r.send()
		decisions = append(decisions, decisionOf(r))
	}
	want := map[scope]string{
		unlimited:  "allowed, allowed, allowed",
		perAddress: "allowed, refused, allowed",
		forAll:     "allowed, refused, refused",
		threeRules: "allowed, refused, refused",
	}[m.scope]
	if got := strings.Join(decisions, ", "); got != want {
		return fmt.Errorf("two requests of one address and one of another: %s; expected %s", got, want)
	}
	if got := hasLimitField(fields); got != m.fields {
		return fmt.Errorf("a response has fields of a limiter: %v, expected %v", got, m.fields)
	}
	if members := strings.Split(strings.Join(fields["Ratelimit"], ","), ","); m.scope == threeRules && m.fields && len(members) != 3 {
		return fmt.Errorf("the rules of the request are %q, expected 3", members)
	}
	return nil
}

// decisionOf returns the decision that a response is about.
func decisionOf(r request) string {
	switch status, _ := r.answer(); status {
	case http.StatusNoContent:
		return "allowed"
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		return "refused"
	default:
		return fmt.Sprintf("status %d", status)
	}
}

// hasLimitField reports whether there is a field such as RateLimit or X-Rate-Limit-Remaining.
func hasLimitField(fields map[string][]string) bool {
	for name := range fields {
		if strings.Contains(strings.ReplaceAll(strings.ToLower(name), "-", ""), "ratelimit") {
			return true
		}
	}
	return false
}

// httpClient returns a client of a handler.
func httpClient(h http.Handler) client {
	return func(address string) request {
		r := httptest.NewRequest(http.MethodGet, pathAsked, nil)
		r.Header.Set(deviceAsked[0], deviceAsked[1])
		r.RemoteAddr = net.JoinHostPort(address, "1234")
		return &httpRequest{handler: h, request: r}
	}
}

type httpRequest struct {
	handler  http.Handler
	request  *http.Request
	response *httptest.ResponseRecorder
}

func (r *httpRequest) send() {
	r.response = httptest.NewRecorder()
	r.handler.ServeHTTP(r.response, r.request)
}

func (r *httpRequest) answer() (status int, fields map[string][]string) {
	return r.response.Code, r.response.Header()
}

// fastClient returns a client of a handler of fasthttp, which fiber uses.
func fastClient(h fasthttp.RequestHandler) client {
	return func(address string) request {
		var sent fasthttp.Request
		sent.Header.SetMethod(http.MethodGet)
		sent.SetRequestURI("http://example.com" + pathAsked)
		sent.Header.Set(deviceAsked[0], deviceAsked[1])
		r := &fastRequest{handler: h}
		r.context.Init(&sent, tcpAddress(address), nil)
		return r
	}
}

type fastRequest struct {
	handler fasthttp.RequestHandler
	context fasthttp.RequestCtx
}

func (r *fastRequest) send() {
	r.context.Response.Reset()
	r.context.ResetUserValues()
	r.handler(&r.context)
}

func (r *fastRequest) answer() (status int, fields map[string][]string) {
	fields = map[string][]string{}
	for name, value := range r.context.Response.Header.All() {
		fields[string(name)] = append(fields[string(name)], string(value))
	}
	return r.context.Response.StatusCode(), fields
}

// grpcClient returns a client of a method with an interceptor, or of the bare method if it is nil.
func grpcClient(interceptor grpc.UnaryServerInterceptor) client {
	method := func(context.Context, any) (any, error) { return nil, nil }
	info := &grpc.UnaryServerInfo{FullMethod: "/orders.v5.Orders/List"}
	return func(address string) request {
		r := &grpcRequest{}
		ctx := peer.NewContext(context.Background(), &peer.Peer{Addr: tcpAddress(address)})
		ctx = metadata.NewIncomingContext(ctx, metadata.Pairs(
			":authority", "example.com", "content-type", "application/grpc", "user-agent", "grpc-go/1.85.0", deviceAsked[0], deviceAsked[1],
		))
		ctx = grpc.NewContextWithServerTransportStream(ctx, r)
		r.call = func() error {
			_, err := method(ctx, nil)
			return err
		}
		if interceptor != nil {
			r.call = func() error {
				_, err := interceptor(ctx, nil, info, method)
				return err
			}
		}
		return r
	}
}

// grpcRequest is also the stream that the fields are set in, as google.golang.org/grpc sets them.
type grpcRequest struct {
	call    func() error
	err     error
	header  metadata.MD
	trailer metadata.MD
}

func (r *grpcRequest) send() {
	r.header, r.trailer = nil, nil
	r.err = r.call()
}

func (r *grpcRequest) answer() (code int, fields map[string][]string) {
	switch status.Code(r.err) {
	case codes.OK:
		return http.StatusNoContent, r.header
	case codes.ResourceExhausted:
		return http.StatusTooManyRequests, r.header
	}
	return http.StatusInternalServerError, r.header
}

func (r *grpcRequest) Method() string { return "" }

func (r *grpcRequest) SetHeader(fields metadata.MD) error {
	r.header = metadata.Join(r.header, fields)
	return nil
}

func (r *grpcRequest) SendHeader(metadata.MD) error { return errors.ErrUnsupported }

func (r *grpcRequest) SetTrailer(fields metadata.MD) error {
	r.trailer = metadata.Join(r.trailer, fields)
	return nil
}

func tcpAddress(address string) net.Addr { return &net.TCPAddr{IP: net.ParseIP(address), Port: 1234} }
