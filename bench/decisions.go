// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/diana-limiter/diana/bench/measure"
	"github.com/diana-limiter/diana/bench/page"
	"github.com/diana-limiter/diana/bench/rivals"
	"github.com/diana-limiter/diana/internal/testproc"
)

// The group decisions measures servers that decide for another gateway, which asks them about each request:
//
//   - Envoy's rate limit service over gRPC. Callers share four connections, as the workers of an Envoy have
//     one connection each. A question has one descriptor, one of 10,000 addresses, which Redis counts.
//   - /check over HTTP, by wrk on 64 connections, with three local rules.
//
// Each server is a process of its own. No limit over gRPC is ever reached, because a refusal that is certain
// costs Diana no call of Redis.

var (
	callRate = measure.Figure{Name: "calls/s", Format: measure.PerSecondText, Better: measure.More}
	callTime = measure.Figure{Name: "CPU/call", Format: measure.SecondsText} // of the server's process
)

// The names that lines mention.
const (
	allowedCheck = "a gateway asks at /check, allowed"
	refusedCheck = "a gateway asks at /check, refused"

	dianaGRPC  = "diana serve --grpc"
	bareGRPC   = "bare gRPC server, one EVALSHA each"
	dianaCheck = "diana serve --check, 3 rules"
	bare200    = "bare handler that answers 200"
)

const (
	grpcConnections = 4
	grpcAddresses   = 10_000
)

func grpcWorkload(callers int) string {
	return fmt.Sprintf("Envoy asks over gRPC, %d callers", callers)
}

// grpcCallers are the numbers of callers, with what D1 demands beside the floor and beside Envoy's service.
var grpcCallers = []struct {
	callers     int
	floor, best float64
}{{4, 0.9, 1.5}, {64, 1.2, 2.2}}

func decisionsGroup() group {
	var lines []page.Line
	for _, n := range grpcCallers {
		workload := grpcWorkload(n.callers)
		lines = append(lines,
			page.Compare(fmt.Sprintf("calls/s over gRPC, %d callers", n.callers), workload, callRate, dianaGRPC, rivals.Envoy).Must("D1", page.RatioAtLeast(n.best)),
			page.Compare("the same", workload, callRate, dianaGRPC, bareGRPC).Must("D1", page.RatioAtLeast(n.floor)),
			page.Compare("the same: p99", workload, p99, dianaGRPC, rivals.Envoy),
			page.Compare("the same: processor a call", workload, callTime, dianaGRPC, rivals.Envoy),
		)
	}
	return group{measure: measureDecisions, Chapter: page.Chapter{
		Name: "decisions", Title: "Deciding for other gateways",
		Figures: []measure.Figure{callRate, p50, p99, callTime},
		Lines: append(lines,
			page.Compare("questions/s at /check, allowed", allowedCheck, callRate, dianaCheck, bareCopy).Must("D1", page.RatioAtLeast(0.85)),
			page.Compare("questions/s at /check, allowed, beside less", allowedCheck, callRate, dianaCheck, bare200),
			page.Compare("questions/s at /check, refused", refusedCheck, callRate, dianaCheck, bareCopy).Must("D1", page.RatioAtLeast(0.85)),
		),
	}}
}

func measureDecisions(ctx context.Context, r *measure.Run) error {
	return measure.InYard(ctx, r, "upstream", func(y *measure.Yard) error {
		if err := measureGRPC(ctx, r, y); err != nil {
			return err
		}
		return measureCheck(ctx, r, y)
	})
}

// questionRules allow a client the given number of requests a day.
func questionRules(rpu int) measure.Command {
	return func(y *measure.Yard, address string) ([]string, error) {
		file, err := y.File("check.yaml", fmt.Sprintf("limits: [{url: /, rules: [{rpu: 1000000000}, "+
			"{actor: device, rpu: 1000000000}, {actor: ip, unit: day, rpu: %d}]}]\n", rpu))
		return []string{y.Diana, "serve", "--config", file, "--check", address, "--admin", "127.0.0.1:0"}, err
	}
}

func measureCheck(ctx context.Context, r *measure.Run, y *measure.Yard) error {
	load := webLoad{measure.Wrk{Path: "/check", Fields: []string{ // by which a gateway names the request
		"X-Forwarded-Method: GET", "X-Forwarded-Uri: " + rivals.PathAsked + "?page=2", "X-Forwarded-Host: shop.example",
		"X-Forwarded-For: 192.0.2.7", "X-Device-Id: 0a1b2c3d",
	}}, callRate, callTime}
	return load.measure(ctx, r, y, []*webSystem{
		{workload: allowedCheck, name: dianaCheck, kind: measure.Diana, command: questionRules(1_000_000_000)},
		{workload: allowedCheck, name: bareCopy, kind: measure.Floor, command: copyOf(questionRules(1_000_000_000), "/check", "allowed")},
		{workload: allowedCheck, name: bare200, kind: measure.Floor, command: measure.Own("200")},
		{workload: refusedCheck, name: dianaCheck, kind: measure.Diana, refuses: true, command: questionRules(1)},
		{workload: refusedCheck, name: bareCopy, kind: measure.Floor, refuses: true, command: copyOf(questionRules(1), "/check", "refused")},
	})
}

// grpcSystem is a rate limit service to measure.
type grpcSystem struct {
	name    string
	kind    measure.Kind
	at      string // its address
	command measure.Command

	server  *measure.Server
	clients [grpcConnections]rls.RateLimitServiceClient
}

func measureGRPC(ctx context.Context, r *measure.Run, y *measure.Yard) error {
	redis, envoy := y.Redis(r), rivals.BuildEnvoy(ctx, r, y)
	if err := envoy.Limit("{key: remote_address, rate_limit: {unit: hour, requests_per_unit: 1000000000}}"); err != nil {
		return err
	}
	at := [3]string{y.FreeAddress(), y.FreeAddress(), y.FreeAddress()}
	systems := []*grpcSystem{
		{name: dianaGRPC, kind: measure.Diana, at: at[0], command: func(y *measure.Yard, address string) ([]string, error) {
			file, err := y.File("grpc.yaml", fmt.Sprintf("redis: {url: %q}\nlimits: []\n", redis.URL()))
			return []string{y.Diana, "serve", "--config", file, "--check", address, "--grpc", at[0], "--admin", "127.0.0.1:0", "--descriptors", envoy.Config()}, err
		}},
		{name: bareGRPC, kind: measure.Floor, at: at[1], command: y.Own("grpc", at[1]+","+redis.Addr())},
	}
	if envoy.Built() {
		systems = append(systems, &grpcSystem{name: rivals.Envoy, kind: measure.Rival, at: at[2], command: envoy.Command(redis, at[2])})
	}
	for _, s := range systems {
		var err error
		if s.server, err = y.Start(s.command); err == nil {
			err = s.connect(ctx, y)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	for _, n := range grpcCallers {
		callers := n.callers
		r.Note("  %s", grpcWorkload(callers))
		err := r.Interleave(ctx, len(systems), func(round, i int) error {
			s := systems[i]
			if round == 0 {
				s.drive(ctx, r, callers) // warm up
			}
			before := s.server.Time()
			l := s.drive(ctx, r, callers)
			if l.Err != nil {
				return fmt.Errorf("%s: %w", s.name, l.Err)
			}
			m := r.Row(grpcWorkload(callers), s.name, s.kind)
			m.Add(callRate, l.Rate())
			m.AddLatencies(p50, p99, &l.Latencies)
			if cpu := s.server.Time() - before; cpu > 0 {
				m.Add(callTime, cpu/float64(l.Latencies.N))
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// connect opens the connections. It returns when the server limits.
func (s *grpcSystem) connect(ctx context.Context, y *measure.Yard) error {
	for i := range s.clients {
		c, err := grpc.NewClient("passthrough:///"+s.at, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			return err
		}
		y.Cleanup(func() { _ = c.Close() }) // all calls have ended
		s.clients[i] = rls.NewRateLimitServiceClient(c)
		if err := testproc.Poll(testproc.Patience, func() error { return s.ask(ctx, i, i) }); err != nil {
			return err
		}
	}
	return nil
}

// drive lets callers ask for a second.
func (s *grpcSystem) drive(ctx context.Context, r *measure.Run, callers int) *measure.Load {
	return r.Drive(callers, time.Second, func(caller int) func() error {
		n := caller * grpcAddresses / callers
		return func() error {
			n++
			return s.ask(ctx, caller%grpcConnections, n)
		}
	})
}

// ask asks about the n-th address.
func (s *grpcSystem) ask(ctx context.Context, connection, n int) error {
	n = n * 7919 % grpcAddresses // so that callers do not meet
	answer, err := s.clients[connection].ShouldRateLimit(ctx, &rls.RateLimitRequest{
		Domain: rivals.EnvoyDomain,
		Descriptors: []*common.RateLimitDescriptor{{
			Entries: []*common.RateLimitDescriptor_Entry{{Key: "remote_address", Value: fmt.Sprintf("192.0.%d.%d", n/100, n%100)}},
		}},
	})
	if err != nil {
		return err
	}
	statuses := answer.GetStatuses()
	if answer.GetOverallCode() != rls.RateLimitResponse_OK || len(statuses) != 1 || s.kind != measure.Floor && statuses[0].GetCurrentLimit() == nil {
		return errors.New("the answer is not one of a limit")
	}
	return nil
}
