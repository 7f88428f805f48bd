// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/diana-limiter/diana/internal/redistest"
	"github.com/diana-limiter/diana/internal/testproc"
)

const (
	grpcConnections = 4
	grpcAddresses   = 10_000
)

// grpcSystem is a rate limit service to measure.
type grpcSystem struct {
	name  string
	kind  kind
	start func(y *grpcYard, address, at string) ([]string, error)

	server  *httpServer
	clients [grpcConnections]rls.RateLimitServiceClient
}

// grpcYard holds the servers, and what they share.
type grpcYard struct {
	*yard
	redis  *redistest.Server
	envoy  string // the program, or "" if it cannot be built
	folder string // has the folder config with the limits
}

func grpcSystems() []*grpcSystem {
	return []*grpcSystem{
		{name: dianaGRPC, kind: diana, start: func(y *grpcYard, address, at string) ([]string, error) {
			file, err := y.file("grpc.yaml", fmt.Sprintf("redis: {url: %q}\nlimits: []\n", y.redis.URL()))
			return []string{
				y.diana, "serve", "--config", file, "--check", address, "--grpc", at, "--admin", "127.0.0.1:0",
				"--descriptors", filepath.Join(y.folder, "config"),
			}, err
		}},
		{name: envoyExact, kind: rival, start: func(y *grpcYard, address, at string) ([]string, error) {
			return envoyArguments(y.envoy, y.redis, y.folder, address, at), nil
		}},
		{name: bareGRPC, kind: floor, start: func(y *grpcYard, address, at string) ([]string, error) {
			return []string{y.self, serverCommand, address, "grpc", at}, nil
		}},
	}
}

// grpcLimits is a limit that nobody reaches, for each address.
const grpcLimits = "domain: " + envoyDomain + `
descriptors:
- key: remote_address
  rate_limit: {unit: hour, requests_per_unit: 1000000000}
`

func measureGRPC(ctx context.Context, r *run, y *yard) error {
	redis, stop, err := startRedis(r)
	if err != nil {
		return err
	}
	defer stop()
	g := &grpcYard{yard: y, redis: redis, folder: filepath.Join(y.dir, "ratelimit", "limits")}
	if err := g.settle(ctx, r); err != nil {
		return err
	}
	systems, err := g.startServices(ctx)
	if err != nil {
		return err
	}
	for _, callers := range grpcCallers {
		workload := grpcWorkload(callers)
		r.note("  %s", workload)
		err := r.interleave(ctx, len(systems), func(round, i int) error {
			s := systems[i]
			if round == 0 {
				s.drive(ctx, callers, r.span(time.Second, 50*time.Millisecond)) // warm up
			}
			before := processTime(s.server.PID)
			l := s.drive(ctx, callers, r.span(time.Second, 300*time.Millisecond))
			if l.err != nil {
				return fmt.Errorf("%s: %w", s.name, l.err)
			}
			addCalls(r.row(workload, s.name, s.kind), float64(l.latencies.n), l.took,
				l.latencies.quantile(0.5), l.latencies.quantile(0.99), processTime(s.server.PID)-before)
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// settle writes the limits and builds Envoy's service.
func (y *grpcYard) settle(ctx context.Context, r *run) error {
	config := filepath.Join(y.folder, "config")
	if err := os.MkdirAll(config, 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(config, "limits.yaml"), []byte(grpcLimits), 0o600); err != nil {
		return err
	}
	if r.quick {
		return nil
	}
	r.note("  building %s", envoyExact)
	var err error
	if y.envoy, err = buildEnvoy(ctx, y.dir); err != nil {
		r.note("  %s cannot be built: %v", envoyExact, err)
	}
	return nil
}

// startServices starts the servers whose programs there are. It returns when they limit.
func (y *grpcYard) startServices(ctx context.Context) (systems []*grpcSystem, err error) {
	for _, s := range grpcSystems() {
		if s.name == envoyExact && y.envoy == "" {
			continue
		}
		at := y.freeAddress()
		s.server, err = y.start(func(_ *yard, address string) ([]string, error) { return s.start(y, address, at) })
		if err == nil {
			err = s.connect(ctx, y.host, at)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s.name, err)
		}
		systems = append(systems, s)
	}
	return systems, nil
}

// connect opens the connections. It returns when the server limits.
func (s *grpcSystem) connect(ctx context.Context, h *host, address string) error {
	for i := range s.clients {
		c, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			return err
		}
		h.Cleanup(func() { _ = c.Close() }) // all calls have ended
		s.clients[i] = rls.NewRateLimitServiceClient(c)
		if err := testproc.Poll(patience, func() error { return s.ask(ctx, i, addressOf(i)) }); err != nil {
			return err
		}
	}
	return nil
}

// drive lets callers ask for a duration.
func (s *grpcSystem) drive(ctx context.Context, callers int, d time.Duration) *load {
	return drive(callers, d, func(caller int) func() error {
		n := caller * grpcAddresses / callers
		return func() error {
			n++
			return s.ask(ctx, caller%grpcConnections, addressOf(n))
		}
	})
}

// addressOf returns one of the addresses.
func addressOf(n int) string {
	n = n * 7919 % grpcAddresses // so that callers do not meet
	return fmt.Sprintf("192.0.%d.%d", n/100, n%100)
}

var errNotLimited = errors.New("the answer is not one of a limit")

// ask asks about an address.
func (s *grpcSystem) ask(ctx context.Context, connection int, address string) error {
	answer, err := s.clients[connection].ShouldRateLimit(ctx, &rls.RateLimitRequest{
		Domain: envoyDomain,
		Descriptors: []*common.RateLimitDescriptor{{
			Entries: []*common.RateLimitDescriptor_Entry{{Key: "remote_address", Value: address}},
		}},
	})
	switch {
	case err != nil:
		return err
	case answer.GetOverallCode() != rls.RateLimitResponse_OK || len(answer.GetStatuses()) != 1:
		return errNotLimited
	case s.kind != floor && answer.GetStatuses()[0].GetCurrentLimit() == nil:
		return errNotLimited
	}
	return nil
}

// bareService allows all requests.
type bareService struct {
	rls.UnimplementedRateLimitServiceServer
}

// ShouldRateLimit answers OK with one status.
func (bareService) ShouldRateLimit(context.Context, *rls.RateLimitRequest) (*rls.RateLimitResponse, error) {
	return &rls.RateLimitResponse{
		OverallCode: rls.RateLimitResponse_OK,
		Statuses:    []*rls.RateLimitResponse_DescriptorStatus{{Code: rls.RateLimitResponse_OK}},
	}, nil
}

// serveBare serves the bare service until ctx ends. The server has the options of envoy/server.go.
func serveBare(ctx context.Context, address string) error {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	s := grpc.NewServer(grpc.MaxRecvMsgSize(4<<20), grpc.NumStreamWorkers(128))
	rls.RegisterRateLimitServiceServer(s, bareService{})
	context.AfterFunc(ctx, s.Stop)
	go func() { _ = s.Serve(l) }() // a failure is one of the callers too
	return nil
}
