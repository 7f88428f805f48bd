// SPDX-License-Identifier: MIT

package envoy

import (
	"context"

	auth "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/reflection"
)

// mostMessage is the size of the largest request, in bytes.
const mostMessage = 4 << 20

// streamWorkers is how many goroutines serve calls. A call that finds none free gets a new goroutine, whose
// stack has to grow first; that is a sixth of the processor time of a call.
const streamWorkers = 128

// NewServer returns a server with the services that are not nil, with health and with reflection. The
// services "" and those by their names are healthy until Shutdown. The server has goroutines from now on,
// until Shutdown or Close.
func NewServer(limits *RateLimit, authorization *Authorization, o ...grpc.ServerOption) *Server {
	s := &Server{Server: grpc.NewServer(append([]grpc.ServerOption{grpc.MaxRecvMsgSize(mostMessage), grpc.NumStreamWorkers(streamWorkers)}, o...)...), health: health.NewServer()}
	if limits != nil {
		rls.RegisterRateLimitServiceServer(s, limits)
	}
	if authorization != nil {
		auth.RegisterAuthorizationServer(s, authorization)
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
}

// Shutdown stops the server. Calls in flight end first, until ctx ends; then they are cut off and the
// error is ctx's. The health service answers at once that the server does not serve any more.
func (s *Server) Shutdown(ctx context.Context) error {
	s.health.Shutdown()
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

// Close cuts off all calls.
func (s *Server) Close() error {
	s.Stop()
	return nil
}
