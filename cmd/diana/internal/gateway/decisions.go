// SPDX-License-Identifier: MIT

package gateway

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/cmd/diana/internal/certificate"
	"github.com/diana-limiter/diana/cmd/diana/internal/command"
	"github.com/diana-limiter/diana/cmd/diana/internal/forwardauth"
	"github.com/diana-limiter/diana/cmd/diana/internal/logs"
	"github.com/diana-limiter/diana/config"
	"github.com/diana-limiter/diana/envoy"
	"github.com/diana-limiter/diana/internal/respond"
	dianaprom "github.com/diana-limiter/diana/prometheus"
)

// DecisionFlags are the flags of a gateway that decides for other gateways.
type DecisionFlags struct {
	Check       string   `placeholder:"ADDR" help:"Address at which other gateways ask over HTTP whether a request may pass, at /check and /json. Default: none."`
	GRPC        string   `name:"grpc" placeholder:"ADDR" help:"Address at which Envoy asks over gRPC: its rate limit service, its external authorization and its external processing. Default: none."`
	Descriptors []string `sep:"none" placeholder:"PATH" help:"File of envoyproxy/ratelimit, or directory of such files, with the limits of the rate limit service. Repeatable. Or xds://HOST:PORT/NODE, a control plane that sends them; xdss:// over TLS."`
	Charge      string   `name:"descriptors-charge" enum:"none,all" default:"none" placeholder:"none|all" help:"What a request is charged to that one of its descriptors refuses: none of them, or all, as envoyproxy/ratelimit does (${default})."`
	Merge       bool     `name:"descriptors-merge" help:"Join files of --descriptors that have the same domain, as MERGE_DOMAIN_CONFIG does in envoyproxy/ratelimit."`
}

// asked reports whether other gateways can ask.
func (f *DecisionFlags) asked() bool { return f.Check != "" || f.GRPC != "" }

func (f *DecisionFlags) valid() error {
	if len(f.Descriptors) > 0 && !f.asked() {
		return errors.New("--descriptors: expected --grpc or --check too, where Envoy asks")
	}
	if f.Merge && len(f.Descriptors) == 0 {
		return errors.New("--descriptors-merge: expected --descriptors too, whose files it joins")
	}
	if _, err := f.xds(); err != nil {
		return fmt.Errorf("--descriptors: %w", err)
	}
	return command.Named(f.Descriptors...)
}

// xds returns the control plane of --descriptors, or nil if files have the limits.
func (f *DecisionFlags) xds() (*envoy.XDS, error) {
	if !slices.ContainsFunc(f.Descriptors, isXDS) {
		return nil, nil
	}
	if len(f.Descriptors) > 1 {
		return nil, fmt.Errorf("found %d, expected a control plane alone, because its limits replace all others", len(f.Descriptors))
	}
	const form = "xds://HOST:PORT/NODE"
	u, err := url.Parse(f.Descriptors[0])
	if err != nil {
		return nil, fmt.Errorf("%q, expected %s", f.Descriptors[0], form)
	}
	node := strings.TrimPrefix(u.Path, "/")
	if u.Hostname() == "" || u.Port() == "" || node == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, fmt.Errorf("%q, expected %s", f.Descriptors[0], form)
	}
	x := &envoy.XDS{Address: u.Host, Node: node}
	if u.Scheme == "xdss" {
		x.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	return x, nil
}

func isXDS(text string) bool {
	return strings.HasPrefix(text, "xds://") || strings.HasPrefix(text, "xdss://")
}

// accept returns an error for a configuration with rules that cannot be kept for gateways that ask over HTTP. Over gRPC
// Envoy can say how a request ends.
func (f *DecisionFlags) accept(c *config.Config) error {
	if f.Check == "" {
		return nil
	}
	return forwardauth.Accept(c)
}

// openLimits returns the rate limit service of the descriptors, or nil if there are none.
func (f *DecisionFlags) openLimits(ctx context.Context, limiter *diana.Limiter, redis *dianaprom.RedisCalls, rejected *rejections, logger *slog.Logger) (*envoy.RateLimit, error) {
	if len(f.Descriptors) == 0 {
		return nil, nil
	}
	xds, err := f.xds()
	if err != nil {
		return nil, err
	}
	logger = logger.With("limits", "descriptors")
	return envoy.OpenRateLimit(ctx, envoy.RateLimitOptions{
		Paths: f.Descriptors, XDS: xds, Settings: limiter.Config, ChargeAll: f.Charge == "all", Merge: f.Merge,
		Logger: logger, RedisObserved: redis.Observe, OnRefusal: logs.Refusals(logger),
		OnInvalid: func(err error) { rejected.invalid(status.Convert(err).Message()) }, OnUnknown: rejected.unknownDomain,
	})
}

// checkHandler answers other gateways that ask over HTTP. limits may be nil.
func checkHandler(limiter *diana.Limiter, limits *envoy.RateLimit, rejected *rejections) http.Handler {
	check := forwardauth.New(limiter, forwardauth.Told{Peer: rejected.peer, Invalid: rejected.invalid})
	var json http.Handler = limits
	if limits == nil {
		json = withoutDescriptors(rejected)
	}
	json = check.Guard(json)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/json" {
			json.ServeHTTP(w, r)
			return
		}
		check.ServeHTTP(w, r)
	})
}

// deadAfter is how long a connection of an Envoy may be silent before Diana asks whether the Envoy is still there.
const deadAfter = time.Minute

// grpcServer answers Envoys that ask over gRPC. limits and pair may be nil. It has goroutines until it is stopped.
func grpcServer(limiter *diana.Limiter, limits *envoy.RateLimit, rejected *rejections, t Timeouts, pair *certificate.Pair) server {
	authorization := envoy.NewAuthorization(limiter)
	authorization.OnInvalid = func(err error) { rejected.invalid(status.Convert(err).Message()) }
	o := []grpc.ServerOption{
		grpc.ConnectionTimeout(t.Header), grpc.KeepaliveParams(keepalive.ServerParameters{
			MaxConnectionIdle: t.Idle, Time: deadAfter, // an Envoy that is gone holds no slots
		}),
	}
	if pair != nil {
		o = append(o, grpc.Creds(credentials.NewTLS(pair.Config("h2"))))
	}
	return envoy.NewServer(limits, authorization, o...)
}

// withoutDescriptors answers the requests of the rate limit service in a program that has no limits for it.
func withoutDescriptors(rejected *rejections) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		rejected.invalid("/json: there are no limits, expected --descriptors")
		respond.Problem(w, http.StatusNotFound, "Start diana serve with --descriptors to ask /json.")
	})
}
