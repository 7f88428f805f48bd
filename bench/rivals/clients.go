// SPDX-License-Identifier: MIT

package rivals

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"

	"github.com/valyala/fasthttp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
)

// Client makes a request from an address to a handler within this process.
type Client func(address string) *Request

// Request can be sent many times.
type Request struct {
	Send func()

	// Answer returns the status and the fields of the last response.
	Answer func() (status int, fields map[string][]string)
}

// URLAsked is the number of the URL that requests are for.
const URLAsked = 5

// PathAsked is its path. The device is the actor of a rule.
var (
	PathAsked   = fmt.Sprintf("/api/v%d/orders", URLAsked)
	deviceAsked = [2]string{"X-Device-Id", "0a1b2c3d"}
)

// ToHTTP returns a client of a handler.
func ToHTTP(h http.Handler) Client {
	return func(address string) *Request {
		r := httptest.NewRequest(http.MethodGet, PathAsked, nil)
		r.Header.Set(deviceAsked[0], deviceAsked[1])
		r.RemoteAddr = net.JoinHostPort(address, "1234")
		return Sending(h, r)
	}
}

// Sending sends a request to a handler.
func Sending(h http.Handler, r *http.Request) *Request {
	var response *httptest.ResponseRecorder
	return &Request{
		Send: func() {
			response = httptest.NewRecorder()
			h.ServeHTTP(response, r)
		},
		Answer: func() (int, map[string][]string) { return response.Code, response.Header() },
	}
}

// toFast returns a client of a handler of fasthttp, which fiber uses.
func toFast(h fasthttp.RequestHandler) Client {
	return func(address string) *Request {
		var sent fasthttp.Request
		sent.Header.SetMethod(http.MethodGet)
		sent.SetRequestURI("http://example.com" + PathAsked)
		sent.Header.Set(deviceAsked[0], deviceAsked[1])
		c := &fasthttp.RequestCtx{}
		c.Init(&sent, tcpAddress(address), nil)
		return &Request{
			Send: func() {
				c.Response.Reset()
				c.ResetUserValues()
				h(c)
			},
			Answer: func() (int, map[string][]string) {
				fields := map[string][]string{}
				for name, value := range c.Response.Header.All() {
					fields[string(name)] = append(fields[string(name)], string(value))
				}
				return c.Response.StatusCode(), fields
			},
		}
	}
}

// toGRPC returns a client of a method with an interceptor, or of the bare method if it is nil.
func toGRPC(interceptor grpc.UnaryServerInterceptor) Client {
	method := func(context.Context, any) (any, error) { return nil, nil }
	info := &grpc.UnaryServerInfo{FullMethod: "/orders.v5.Orders/List"}
	return func(address string) *Request {
		ctx := peer.NewContext(context.Background(), &peer.Peer{Addr: tcpAddress(address)})
		ctx = metadata.NewIncomingContext(ctx, metadata.Pairs(
			":authority", "example.com", "content-type", "application/grpc", "user-agent", "grpc-go/1.85.0", deviceAsked[0], deviceAsked[1],
		))
		stream, err := &grpcStream{}, error(nil)
		ctx = grpc.NewContextWithServerTransportStream(ctx, stream)
		r := &Request{Send: func() {
			stream.header, stream.trailer = nil, nil
			_, err = interceptor(ctx, nil, info, method)
		}, Answer: func() (int, map[string][]string) {
			code, ok := map[codes.Code]int{codes.OK: http.StatusNoContent, codes.ResourceExhausted: http.StatusTooManyRequests}[status.Code(err)]
			if !ok {
				code = http.StatusInternalServerError
			}
			return code, stream.header
		}}
		if interceptor == nil {
			r.Send = func() { _, err = method(ctx, nil) }
		}
		return r
	}
}

// grpcStream keeps the fields of a response, as google.golang.org/grpc sets them.
type grpcStream struct {
	grpc.ServerTransportStream // nobody calls its other methods
	header, trailer            metadata.MD
}

// Method returns no name.
func (s *grpcStream) Method() string { return "" }

// SetHeader adds fields.
func (s *grpcStream) SetHeader(fields metadata.MD) error {
	s.header = metadata.Join(s.header, fields)
	return nil
}

// SetTrailer adds fields behind the response.
func (s *grpcStream) SetTrailer(fields metadata.MD) error {
	s.trailer = metadata.Join(s.trailer, fields)
	return nil
}

func tcpAddress(address string) net.Addr { return &net.TCPAddr{IP: net.ParseIP(address), Port: 1234} }
