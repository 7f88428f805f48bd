// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"errors"
	"log/slog"
	"net/http"

	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/cmd/diana/internal/forwardauth"
	"github.com/diana-limiter/diana/config"
	"github.com/diana-limiter/diana/envoy"
	dianaprom "github.com/diana-limiter/diana/prometheus"
)

// decisionFlags are the flags of a gateway that decides for other gateways.
type decisionFlags struct {
	Check       string   `placeholder:"ADDR" help:"Address at which other gateways ask over HTTP whether a request may pass, at /check and /json. Default: none."`
	GRPC        string   `name:"grpc" placeholder:"ADDR" help:"Address at which Envoy asks over gRPC: its rate limit service and its external authorization. Default: none."`
	Descriptors []string `sep:"none" placeholder:"PATH" help:"File of envoyproxy/ratelimit, or directory of such files, with the limits of the rate limit service. Repeatable."`
	Charge      string   `name:"descriptors-charge" enum:"none,all" default:"none" placeholder:"none|all" help:"What a request is charged to that one of its descriptors refuses: none of them, or all, as envoyproxy/ratelimit does (${default})."`
}

// asked reports whether other gateways can ask.
func (f *decisionFlags) asked() bool { return f.Check != "" || f.GRPC != "" }

func (f *decisionFlags) valid() error {
	if len(f.Descriptors) > 0 && !f.asked() {
		return errors.New("--descriptors: expected --grpc or --check too, where Envoy asks")
	}
	return named(f.Descriptors...)
}

// accept returns an error for a configuration with rules that cannot be kept for other gateways.
func (f *decisionFlags) accept(c *config.Config) error {
	if !f.asked() {
		return nil
	}
	return forwardauth.Accept(c)
}

// openLimits returns the rate limit service of the descriptors, or nil if there are none.
func (f *decisionFlags) openLimits(ctx context.Context, limiter *diana.Limiter, redis *dianaprom.RedisCalls, logger *slog.Logger) (*envoy.RateLimit, error) {
	if len(f.Descriptors) == 0 {
		return nil, nil
	}
	logger = logger.With("limits", "descriptors")
	return envoy.OpenRateLimit(ctx, envoy.RateLimitOptions{
		Paths: f.Descriptors, Settings: limiter.Config, ChargeAll: f.Charge == "all",
		Logger: logger, RedisObserved: redis.Observe, OnRefusal: logRefusal(logger),
	})
}

// serveDecisions makes the servers for other gateways. limits may be nil. A gRPC server has goroutines until
// it is stopped, so there is none unless it is asked for.
func (g *gateway) serveDecisions(f *decisionFlags, limiter *diana.Limiter, limits *envoy.RateLimit) {
	check := forwardauth.New(limiter)
	json := check.Guard(limits)
	g.check.Handler = chain(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if limits != nil && r.URL.Path == "/json" {
			json.ServeHTTP(w, r)
			return
		}
		check.ServeHTTP(w, r)
	}), slowBodies(g.timeouts))
	if f.GRPC != "" {
		g.grpc = envoy.NewServer(limits, envoy.NewAuthorization(limiter),
			grpc.ConnectionTimeout(g.timeouts.Header), grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionIdle: g.timeouts.Idle}))
	}
}
