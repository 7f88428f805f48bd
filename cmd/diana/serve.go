// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/cmd/diana/internal/actor"
	dianaprom "github.com/diana-limiter/diana/prometheus"
)

// serveCommand runs the gateway.
type serveCommand struct {
	Config   string   `placeholder:"FILE" help:"Configuration file. Default: diana.yaml, or a demonstration if there is none."`
	Listen   string   `placeholder:"ADDR" help:"Address to receive requests at. Port 0 picks a free port. Default: 127.0.0.1:8080, or none with --check or --grpc and without --upstream."`
	Admin    string   `default:"127.0.0.1:9090" placeholder:"ADDR" help:"Address of the administrators' listener, with /metrics, /healthz, /readyz and /status (${default})."`
	Handover string   `placeholder:"SOCKET" help:"Socket of the file system by which a later diana serve takes over all listeners, without a lost request: start it with the same flag. The folder must belong to the user of the gateway, and no other user may write to it."`
	Timeouts timeouts `embed:""`

	upstreamFlags
	tlsFlags
	decisionFlags
	logFlags
	adminFlags
	recentFlags
}

// Help is the end of what --help prints.
func (serveCommand) Help() string {
	return `The gateway notices changes of the configuration file; SIGHUP lets it read the file at once. At SIGTERM and SIGINT the gateway finishes the requests in flight, for at most --drain-timeout, and ends. A second such signal closes their connections without an answer.

A TIME is a number and a unit, such as 500ms, 60s or 2m, of at least 1ms. --read-timeout and --write-timeout start again with each progress, and do not apply to upgraded connections such as WebSockets.

The administrators' listener changes something only with --admin-token: a client sends the token as Authorization: Bearer TOKEN. The gateway reads the token again at each use. A proxy on this machine makes every request look local, so it must check the token itself.`
}

// Run serves until a signal or the end of ctx stops it.
func (c *serveCommand) Run(ctx context.Context, o *output) error {
	if c.Listen == "" && (!c.asked() || len(c.Upstream) > 0) {
		c.Listen = "127.0.0.1:8080"
	}
	if err := c.valid(); err != nil {
		return usageError{err}
	}
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGHUP, syscall.SIGTERM, syscall.SIGINT)
	defer signal.Stop(signals)

	logger := c.logger(o.err)
	slog.SetDefault(logger) // also for package log, which net/http writes to
	fitContainer(logger)
	keepHeapFloor()
	if err := c.AdminToken.check(logger); err != nil {
		return err
	}
	certificate, err := c.certificate(logger)
	if err != nil {
		return err
	}
	s := chosen(c.Config)
	if s.builtIn() && len(c.Descriptors) > 0 {
		s.empty = true
	}
	redis := dianaprom.NewRedisCalls()
	diverted := newDiverted(c.Timeouts, logger)
	memory := c.newMemory()
	options := diana.Options{
		Accept:        c.accept,
		Decoders:      decoders(),
		Logger:        logger,
		OnRefusal:     logRefusal(logger),
		RedisObserved: redis.Observe,
		Upstream:      diverted.to,
	}
	memory.observe(&options)
	limiter, err := unlessStopped(ctx, signals, func() (*diana.Limiter, error) { return s.open(options) })
	switch {
	case errors.Is(err, errStopped):
		logger.Info("stopped at the start")
		return nil
	case err != nil:
		return o.faults(s, err)
	}
	defer func() { _ = limiter.Close() }() // the program ends anyway
	diverted.limiter = limiter
	memory.follow(limiter)
	if s.builtIn() && !s.empty {
		logger.Info("no --config and no " + usualFile + " here: using the " + demoSource)
	}
	rejected := newRejections(logger)
	limits, err := c.openLimits(ctx, limiter, redis, rejected, logger)
	if err != nil {
		return o.descriptorFaults(err)
	}
	if limits != nil {
		defer func() { _ = limits.Close() }()
	}
	status := limiter.Status()
	logger.Info("configuration", "source", status.Config.Source, "version", status.Config.Version, "rules", len(status.Rules))

	registry := newRegistry(limiter, redis)
	metrics := prometheus.Gatherers{registry}
	if c.asked() {
		metrics = append(metrics, rejected.registry())
	}
	if limits != nil {
		metrics = append(metrics, withDescriptors(registry, limits.Limiter(), limits.Failed))
	}
	g := c.gateway(limiter, certificate, registry, metrics, logger)
	if certificate != nil {
		following, stop := context.WithCancel(ctx)
		defer stop()
		go certificate.follow(following)
	}
	g.serveDecisions(&c.decisionFlags, limiter, limits, rejected)
	g.server.Handler = memory.filter(g.server.Handler)
	view := newLive(limiter, memory)
	watching, stopWatching := context.WithCancel(ctx)
	defer stopWatching()
	g.admin.RegisterOnShutdown(stopWatching) // because it waits for the streams
	go view.Run(watching)
	api := withAPI(g.admin.Handler, view.Register, (&actor.View{Limiter: limiter}).Register, memory.whatIf(limiter, c.accept).Register, c.changes(s, limiter, logger).Register)
	g.admin.Handler = c.guard(api, newReset(limiter.Config, noteResets(view, memory.resetter(limiter.Reset)), logger), logger)
	err = c.listen(ctx, signals, g, logger)
	switch {
	case errors.Is(err, errStopped):
		logger.Info("stopped at the start")
		return nil
	case err != nil:
		return err
	}
	for _, l := range g.open {
		o.printf("diana: %s%s\n", l.name, l.Addr())
	}
	return g.run(ctx, signals, func() {
		if s.builtIn() {
			logger.Info("nothing to reload: the configuration is built in")
			return
		}
		// Reload logs its result. It may wait for a configuration centre, and signals must not wait for it.
		go func() {
			_ = limiter.Reload()
			if limits != nil {
				limits.Reload()
			}
		}()
	})
}

// gateway returns the gateway of the flags. It adds the metrics of the certificate, which may be nil, and of
// several upstreams to the registry.
func (c *serveCommand) gateway(limiter *diana.Limiter, certificate *keyPair, registry *prometheus.Registry, metrics prometheus.Gatherer, logger *slog.Logger) *gateway {
	last, upstreams := c.proxy(c.Timeouts, limiter.Config, logger)
	if upstreams != nil {
		registry.MustRegister(poolMetrics{upstreams})
	}
	g := newGateway(limiter, last, c.Timeouts, logger, metrics)
	if c.H2C {
		g.acceptH2C()
	}
	if certificate != nil {
		g.tls = certificate
		registry.MustRegister(certificate.expiry())
	}
	return g
}

// listen opens the listeners of the flags, with the sockets of an earlier process if there is one.
func (c *serveCommand) listen(ctx context.Context, signals <-chan os.Signal, g *gateway, logger *slog.Logger) error {
	at := listenAt{requests: c.Listen, admin: c.Admin, check: c.Check, grpc: c.GRPC}
	if c.Handover == "" {
		return g.listen(at)
	}
	h, err := unlessStopped(ctx, signals, func() (*handover, error) { return takeOver(c.Handover, logger) })
	if errors.Is(err, errStopped) {
		return errors.Join(err, os.Remove(besideOf(c.Handover))) // which takeOver would do if it did not hang
	}
	if err != nil {
		return err
	}
	at.handover = h
	if err = g.listen(at); err == nil {
		return nil
	}
	h.close()
	if errors.Is(err, syscall.EADDRINUSE) && h.predecessor == nil {
		return fmt.Errorf("%w, and no process hands over at %s, expected one that runs with the same --handover", err, c.Handover)
	}
	return err
}

// errStopped is the error of a start that a signal stopped.
var errStopped = errors.New("stopped")

// unlessStopped opens something. That takes a while if a configuration centre or an earlier process hangs, so
// unlessStopped returns errStopped as soon as ctx ends or a signal stops the program.
func unlessStopped[T any](ctx context.Context, signals <-chan os.Signal, open func() (*T, error)) (*T, error) {
	type opened struct {
		thing *T
		err   error
	}
	done := make(chan opened, 1)
	go func() {
		t, err := open()
		done <- opened{t, err}
	}()
	for {
		select {
		case o := <-done:
			return o.thing, o.err
		case <-ctx.Done():
			return nil, errStopped
		case s := <-signals:
			if s != syscall.SIGHUP { // the configuration is being read already
				return nil, errStopped
			}
		}
	}
}

// valid returns an error if a flag is wrong.
func (c *serveCommand) valid() error {
	taken := map[string]string{} // names of flags, by address
	for _, flag := range []struct{ name, address string }{{"--listen", c.Listen}, {"--admin", c.Admin}, {"--check", c.Check}, {"--grpc", c.GRPC}} {
		if flag.address == "" && flag.name != "--admin" {
			continue
		}
		if err := validAddress(flag.name, flag.address); err != nil {
			return err
		}
		if other := taken[flag.address]; other != "" && !strings.HasSuffix(flag.address, ":0") {
			return fmt.Errorf("%s: %s is the address of %s too, expected another one", flag.name, flag.address, other)
		}
		taken[flag.address] = flag.name
		for _, u := range c.Upstream {
			if flag.name == "--listen" && leadsTo(u, flag.address) {
				return fmt.Errorf("--upstream: %q is the address of --listen, expected another server", u)
			}
		}
	}
	return errors.Join(c.Timeouts.valid(), c.upstreamFlags.valid(), c.tlsFlags.valid(), c.decisionFlags.valid(), c.adminFlags.valid(), c.recentFlags.valid())
}

// validAddress returns an error if a program cannot listen on an address.
func validAddress(flag, address string) error {
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("%s: %w, expected HOST:PORT", flag, err)
	}
	if _, err := net.LookupPort("tcp", port); err != nil {
		return fmt.Errorf("%s: %q, expected HOST:PORT with a port of 0 to 65535", flag, address)
	}
	return nil
}
