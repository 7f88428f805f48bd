// SPDX-License-Identifier: MIT

package envoy

import (
	"context"
	"sync"
	"time"

	auth "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	proc "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	_ "google.golang.org/grpc/encoding/gzip" // for clients that compress; mostMessage bounds the result too
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/status"
)

// mostMessage is the size of the largest request in bytes, also after it is decompressed.
const mostMessage = 4 << 20

// streamWorkers is how many goroutines serve calls. A call that finds none free gets a new goroutine, whose
// stack has to grow first; that is a sixth of the processor time of a call.
const streamWorkers = 128

// NewServer returns a server with the services that are not nil, with health and with reflection. The
// services "" and those by their names are healthy until Shutdown. The server has goroutines from now on,
// until Shutdown or Close.
func NewServer(limits *RateLimit, authorization *Authorization, o ...grpc.ServerOption) *Server {
	s := &Server{health: health.NewServer(), leaving: make(chan struct{})}
	s.Server = grpc.NewServer(append([]grpc.ServerOption{
		grpc.MaxRecvMsgSize(mostMessage), grpc.ForceServerCodecV2(newCodec()), grpc.NumStreamWorkers(streamWorkers), grpc.StreamInterceptor(s.untilLeaving),
		grpc.WaitForHandlers(true), // because a request that is cut off is settled first
	}, o...)...)
	if limits != nil {
		rls.RegisterRateLimitServiceServer(s, limits)
	}
	if authorization != nil {
		auth.RegisterAuthorizationServer(s, authorization)
		proc.RegisterExternalProcessorServer(s, authorization)
	}
	for name := range s.GetServiceInfo() {
		s.health.SetServingStatus(name, grpc_health_v1.HealthCheckResponse_SERVING)
	}
	grpc_health_v1.RegisterHealthServer(s, s.health)
	reflection.Register(s)
	return s
}

// Server is a gRPC server of this package.
type Server struct {
	*grpc.Server
	health *health.Server

	leaving chan struct{} // closed when streams must end
	leave   sync.Once
}

// SetServing says whether a service is healthy, until Shutdown. It can have any name.
func (s *Server) SetServing(name string, serving bool) {
	state := grpc_health_v1.HealthCheckResponse_NOT_SERVING
	if serving {
		state = grpc_health_v1.HealthCheckResponse_SERVING
	}
	s.health.SetServingStatus(name, state)
}

// untilLeaving is an interceptor that ends a stream when the server stops. Streams watch the health of the
// server, or ask for its services. They never end by themselves, and a server would wait for them. A stream with an
// HTTP request ends with that.
func (s *Server) untilLeaving(service any, stream grpc.ServerStream, of *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
	if of.FullMethod == proc.ExternalProcessor_Process_FullMethodName {
		return handle(service, stream)
	}
	done := make(chan error, 1)
	go func() { done <- handle(service, stream) }()
	select {
	case err := <-done:
		return err
	case <-s.leaving:
		return status.Error(codes.Unavailable, "the server stops")
	}
}

// tellFor is how long streams stay after the health service has answered that the server stops.
const tellFor = 500 * time.Millisecond

// Shutdown stops the server. Calls in flight end first, until ctx ends; then they are cut off and the
// error is ctx's. The health service answers at once that the server does not serve any more.
func (s *Server) Shutdown(ctx context.Context) error {
	s.health.Shutdown()
	defer time.AfterFunc(tellFor, s.endStreams).Stop()
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.GracefulStop()
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		s.Stop()
		<-done
		return ctx.Err()
	}
}

func (s *Server) endStreams() { s.leave.Do(func() { close(s.leaving) }) }

// Close cuts off all calls.
func (s *Server) Close() error {
	s.endStreams()
	s.Stop()
	return nil
}
