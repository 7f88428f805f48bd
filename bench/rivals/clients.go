// SPDX-License-Identifier: MIT

package rivals

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"

	"connectrpc.com/connect"
	"github.com/cloudwego/hertz/pkg/app"
	"github.com/cloudwego/hertz/pkg/common/config"
	"github.com/cloudwego/hertz/pkg/common/hlog"
	"github.com/cloudwego/hertz/pkg/network"
	"github.com/cloudwego/hertz/pkg/route"
	"github.com/valyala/fasthttp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
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

// toHertz returns a client of a route of hertz. Hertz has no limiter of its own that counts by a key.
func toHertz(before ...app.HandlerFunc) Client {
	hlog.SetLevel(hlog.LevelWarn) // else hertz prints the routes
	router := route.NewEngine(config.NewOptions(nil))
	router.Use(before...)
	router.GET(routePattern, func(_ context.Context, c *app.RequestContext) { c.SetStatusCode(http.StatusNoContent) })
	return func(address string) *Request {
		c := router.NewContext()
		c.SetConn(hertzConn{remote: tcpAddress(address)})
		c.Request.SetRequestURI("http://example.com" + PathAsked)
		c.Request.Header.Set(deviceAsked[0], deviceAsked[1])
		return &Request{
			Send: func() {
				c.Response.Reset()
				c.Params = c.Params[:0]
				c.SetIndex(-1)
				router.ServeHTTP(context.Background(), c)
			},
			Answer: func() (int, map[string][]string) {
				fields := map[string][]string{}
				c.Response.Header.VisitAll(func(name, value []byte) { fields[string(name)] = append(fields[string(name)], string(value)) })
				return c.Response.StatusCode(), fields
			},
		}
	}
}

// hertzConn is a connection that has only an address.
type hertzConn struct {
	network.Conn // nobody calls its other methods
	remote       net.Addr
}

// RemoteAddr returns the address of the client.
func (c hertzConn) RemoteAddr() net.Addr { return c.remote }

// toConnect returns a client of a unary method of Connect, which answers an allowed call with 200.
func toConnect(o ...connect.Interceptor) Client {
	const procedure = "/orders.v5.Orders/List"
	method := func(context.Context, *connect.Request[emptypb.Empty]) (*connect.Response[emptypb.Empty], error) {
		return connect.NewResponse(&emptypb.Empty{}), nil
	}
	h := connect.NewUnaryHandler(procedure, method, connect.WithInterceptors(o...))
	return func(address string) *Request {
		r := httptest.NewRequest(http.MethodPost, procedure, http.NoBody)
		r.Header.Set("Content-Type", "application/proto")
		r.Header.Set(deviceAsked[0], deviceAsked[1])
		r.RemoteAddr = net.JoinHostPort(address, "1234")
		sent := Sending(h, r)
		answer := sent.Answer
		sent.Answer = func() (int, map[string][]string) {
			status, fields := answer()
			if status == http.StatusOK {
				status = http.StatusNoContent
			}
			return status, fields
		}
		return sent
	}
}

// toGRPC returns a client of a method with an interceptor, or of the bare method if it is nil.
func toGRPC(interceptor grpc.UnaryServerInterceptor) Client {
	method := func(context.Context, any) (any, error) { return nil, nil }
	info := &grpc.UnaryServerInfo{Server: method, FullMethod: "/orders.v5.Orders/List"} // of a registered service
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
