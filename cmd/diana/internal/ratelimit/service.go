// SPDX-License-Identifier: MIT

package ratelimit

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/cmd/diana/internal/admin"
	"github.com/diana-limiter/diana/cmd/diana/internal/certificate"
	"github.com/diana-limiter/diana/cmd/diana/internal/logs"
	"github.com/diana-limiter/diana/config"
	"github.com/diana-limiter/diana/envoy"
	dianaprom "github.com/diana-limiter/diana/prometheus"
)

// Service is the running program.
type Service struct {
	settings *Settings
	logger   *slog.Logger
	limits   *envoy.RateLimit
	grpc     *envoy.Server
	pair     *certificate.Pair // nil: no TLS
	open     []listening
	draining atomic.Bool
}

// listening is a server with its listener.
type listening struct {
	name   string
	server interface {
		Serve(net.Listener) error
		Shutdown(context.Context) error
		Close() error
	}
	net.Listener
}

// Open returns a Service whose addresses are open. It waits for the first limits if the settings say so, until ctx ends.
func Open(ctx context.Context, settings *Settings, logger *slog.Logger) (*Service, error) {
	s := &Service{settings: settings, logger: logger}
	var err error
	if settings.GRPCTLS {
		if s.pair, err = certificate.Open(settings.GRPCCert, settings.GRPCKey, "", logger); err != nil {
			return nil, err
		}
	}
	secure, err := s.grpcTLS()
	if err != nil {
		return nil, err
	}
	m, collectors := newMetrics(settings)
	redis := dianaprom.NewRedisCalls()
	options, err := settings.limits()
	if err != nil {
		return nil, err
	}
	options.Logger, options.RedisObserved, options.OnRefusal = logger, redis.Observe, logs.Refusals(logger)
	if options.OnLoaded = m.load; settings.Prometheus {
		options.OnCounted = m.counted
	}
	options.Original.OnShadow = m.shadowed.Inc
	options.Original.OnError = m.failed.WithLabelValues("service_error").Inc
	if s.limits, err = envoy.OpenRateLimit(ctx, *options); err != nil {
		return nil, err
	}
	registry := admin.NewRegistry(s.limits.Limiter(), redis)
	registry.MustRegister(collectors...)
	o := []grpc.ServerOption{
		grpc.UnaryInterceptor(m.call),
		grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionAge: settings.GRPCAge, MaxConnectionAgeGrace: settings.GRPCAgeGrace}),
	}
	if secure != nil {
		o = append(o, grpc.Creds(credentials.NewTLS(secure)))
	}
	s.grpc = envoy.NewServer(s.limits, nil, o...)
	s.grpc.SetServing(healthName, s.healthy())
	shown := prometheus.Gatherers{registry}
	for _, l := range s.limits.Limiters()[1:] {
		own := prometheus.NewRegistry() // because the others lack the label
		prometheus.WrapRegistererWith(prometheus.Labels{"limits": "per_second"}, own).MustRegister(dianaprom.New(l))
		shown = append(shown, own)
	}
	if err := s.listen(shown); err != nil {
		s.close()
		return nil, errors.Join(err, s.limits.Close())
	}
	return s, nil
}

// healthName is the service that the health service of envoyproxy/ratelimit knows.
const healthName = "ratelimit"

// limits returns the options of the limits. Its Original is not nil.
func (s *Settings) limits() (*envoy.RateLimitOptions, error) {
	redis, err := s.redis("REDIS_", &s.Redis)
	if err != nil {
		return nil, err
	}
	c := (&config.Config{Redis: redis}).Filled(config.DefaultVocabulary())
	o := &envoy.RateLimitOptions{
		Settings: func() *config.Config { return c }, ChargeAll: !s.StopOver, Merge: s.Merge, StartWithout: true,
		Original: &envoy.Original{Metadata: s.Metadata, Shadow: s.Shadow, Quota: s.Quota},
	}
	if s.PerSecond {
		if o.PerSecond, err = s.redis("REDIS_PERSECOND_", &s.RedisSeconds); err != nil {
			return nil, err
		}
	}
	if s.Fields {
		o.Original.Limit, o.Original.Remaining, o.Original.Reset = s.LimitField, s.RemainingField, s.ResetField
	}
	if strings.EqualFold(s.ConfigType, "FILE") {
		// A service with invalid files starts there too, and waits for valid ones.
		o.Paths, o.AnyName, o.DotFiles = []string{filepath.Join(s.Root, s.Folder, s.AppFolder)}, true, !s.IgnoreDots
		return o, nil
	}
	o.StartWithout = s.StartWithout
	o.XDS = &envoy.XDS{
		Address: s.XDSServer, Node: s.XDSNode, Metadata: map[string]string{}, Headers: s.XDSHeaders,
		Retry: s.XDSRetry, MostRetry: s.XDSMostRetry, MostMessage: int(s.XDSMost),
	}
	for pair := range strings.SplitSeq(s.XDSMetadata, ",") {
		if key, value, ok := strings.Cut(pair, "="); ok {
			o.XDS.Metadata[key] = value
		}
	}
	if s.XDSTLS {
		t := &config.TLS{CA: s.XDSCA, Certificate: s.XDSCert, Key: s.XDSKey, ServerName: s.XDSName}
		if o.XDS.TLS, err = t.Load(); err != nil {
			return nil, fmt.Errorf("CONFIG_GRPC_XDS_*_TLS_*: %w", err)
		}
	}
	return o, nil
}

// grpcTLS returns how clients are met over gRPC, or nil without TLS.
func (s *Service) grpcTLS() (*tls.Config, error) {
	if s.pair == nil {
		return nil, nil
	}
	c := s.pair.Config("h2")
	if s.settings.GRPCClientCA == "" {
		return c, nil
	}
	text, err := os.ReadFile(s.settings.GRPCClientCA)
	if err != nil {
		return nil, fmt.Errorf("GRPC_CLIENT_TLS_CACERT: %w", err)
	}
	c.ClientCAs, c.ClientAuth = x509.NewCertPool(), tls.RequireAndVerifyClientCert
	if !c.ClientCAs.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("GRPC_CLIENT_TLS_CACERT: %s: expected certificates in PEM, found none", s.settings.GRPCClientCA)
	}
	if name := s.settings.GRPCClient; name != "" {
		c.VerifyConnection = func(state tls.ConnectionState) error { return state.PeerCertificates[0].VerifyHostname(name) }
	}
	return c, nil
}

// listen opens all addresses.
func (s *Service) listen(metrics prometheus.Gatherer) error {
	e := s.settings
	address := func(host string, port uint16) string { return net.JoinHostPort(host, strconv.Itoa(int(port))) }
	network, grpcAddress := "tcp", address(e.GRPCHost, e.GRPCPort)
	if e.GRPCSocket != "" {
		network, grpcAddress = "unix", e.GRPCSocket
	}
	list := []struct {
		name, network, address string
		handler                http.Handler // nil: gRPC
	}{
		{"http", "tcp", address(e.Host, e.Port), pages(s.limits, s.healthy)},
		{"grpc", network, grpcAddress, nil},
		{"debug", "tcp", address(e.DebugHost, e.DebugPort), debugPages(s.limits)},
		{"metrics", "tcp", e.PrometheusAddr, metricsHandler(e.PrometheusPath, metrics)},
	}
	if !e.Prometheus {
		list = list[:3]
	}
	for _, l := range list {
		opened, err := net.Listen(l.network, l.address)
		if err != nil {
			return fmt.Errorf("%s: %w", l.name, err)
		}
		open := listening{name: l.name, server: s.grpc, Listener: opened}
		if l.handler != nil {
			open.server = &http.Server{
				Handler: l.handler, ErrorLog: logs.Server(s.logger), MaxHeaderBytes: 16 << 10,
				ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: 90 * time.Second, IdleTimeout: 75 * time.Second,
			}
		}
		s.open = append(s.open, open)
	}
	return nil
}

// healthy reports whether Envoy shall ask this service.
func (s *Service) healthy() bool {
	if s.draining.Load() || s.settings.HealthyRedis && s.degraded() {
		return false
	}
	if s.settings.HealthyLoaded {
		for range s.limits.Each {
			return true
		}
		return false
	}
	return true
}

// degraded reports whether a Redis is not reached.
func (s *Service) degraded() bool {
	return slices.ContainsFunc(s.limits.Limiters(), func(l *diana.Limiter) bool { return l.Status().Degraded })
}

// Addresses calls f with the name and the address of each server.
func (s *Service) Addresses(f func(name, address string)) {
	for _, l := range s.open {
		f(l.name, l.Addr().String())
	}
}

// drainTime is how long calls in flight may take after a signal to stop. Kubernetes kills after 30 s.
const drainTime = 20 * time.Second

// Run serves until a signal or the end of ctx stops it, and then until the calls in flight are finished. A second signal
// cuts these off.
func (s *Service) Run(ctx context.Context, signals <-chan os.Signal) error {
	defer func() { _ = s.limits.Close() }() // the program ends anyway
	defer s.close()
	following, stop := context.WithCancel(ctx)
	defer stop()
	if s.pair != nil {
		go s.pair.Follow(following)
	}
	go s.followHealth(following)
	failed := make(chan error, len(s.open))
	for _, l := range s.open {
		go func() { failed <- l.server.Serve(l.Listener) }()
	}
	for {
		select {
		case err := <-failed:
			return err
		case <-ctx.Done():
			s.drain(signals)
			return nil
		case signal := <-signals:
			if signal == syscall.SIGHUP {
				s.limits.Reload()
				continue
			}
			s.drain(signals)
			return nil
		}
	}
}

// followHealth tells the health service, until ctx ends.
func (s *Service) followHealth(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			s.grpc.SetServing(healthName, s.healthy())
		}
	}
}

// drain stops all servers when their calls have ended, and gives Redis what was charged without it.
func (s *Service) drain(signals <-chan os.Signal) {
	s.draining.Store(true)
	s.logger.Info("draining")
	ctx, cancel := context.WithTimeout(context.Background(), drainTime)
	defer cancel()
	go func() {
		for {
			select {
			case <-ctx.Done():
				return
			case signal := <-signals:
				if signal != syscall.SIGHUP {
					cancel()
				}
			}
		}
	}()
	for _, l := range s.open { // that of probes first
		if err := l.server.Shutdown(ctx); err != nil {
			s.logger.Warn("calls in flight are cut off", "server", l.name, "error", err)
		}
	}
	for _, l := range s.limits.Limiters() {
		_ = l.Flush(ctx) // Close logs what is lost
	}
	_ = s.limits.Close() // before the last line
	s.logger.Info("drained")
}

// close ends all servers.
func (s *Service) close() {
	_ = s.grpc.Close()
	for _, l := range s.open {
		_ = l.Close()
		_ = l.server.Close()
	}
}
