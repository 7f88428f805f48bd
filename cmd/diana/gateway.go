// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/envoy"
)

// gateway is the running program: its servers for requests, for administrators, and for other gateways
// that ask about their requests.
type gateway struct {
	logger   *slog.Logger
	server   *http.Server
	admin    *http.Server
	check    *http.Server
	grpc     server           // nil: there is none
	limits   *envoy.RateLimit // nil: there are no descriptors
	inFlight inFlight
	draining atomic.Bool
	cut      context.CancelFunc // cancels every request
	timeouts timeouts

	open []listening // set by listen
}

// listenAt are the addresses at which the servers of a gateway listen. An empty one means that it does not.
type listenAt struct{ requests, admin, check, grpc string }

// server is a server over HTTP or gRPC.
type server interface {
	Serve(l net.Listener) error
	Shutdown(ctx context.Context) error
	Close() error
}

// listening is a server with its listener.
type listening struct {
	name   string // with its scheme, as the program prints it before the address
	server server
	net.Listener
}

// newGateway returns a gateway. A nil upstream means that the gateway answers itself. /metrics shows
// metrics.
func newGateway(limiter *diana.Limiter, upstream *url.URL, t timeouts, logger *slog.Logger, metrics prometheus.Gatherer) *gateway {
	last := echo(limiter)
	if upstream != nil {
		last = newProxy(upstream, retryCancelled{newTransport(t.Upstream)}, t.Upstream, limiter.Config, logger)
	}
	ctx, cut := context.WithCancel(context.Background())
	g := &gateway{logger: logger, cut: cut, timeouts: t}
	forClients := func(h http.Handler) *http.Server {
		return &http.Server{
			Handler:           h,
			BaseContext:       func(net.Listener) context.Context { return ctx },
			ConnContext:       withClientConn,
			ErrorLog:          slog.NewLogLogger(logger.Handler(), slog.LevelError),
			ReadHeaderTimeout: t.Header,
			IdleTimeout:       t.Idle,
			MaxHeaderBytes:    64 << 10,
			// No ReadTimeout and no WriteTimeout, see clientConn.

			DisableGeneralOptionsHandler: true, // the limiter evaluates OPTIONS * too, see serverOptions
		}
	}
	g.server = forClients(g.inFrontOf(last, limiter, logger))
	g.check = forClients(nil) // see serveDecisions
	g.admin = &http.Server{
		Handler:           newAdmin(func() state { return newState(limiter, g.limits) }, g.draining.Load, metrics, logger),
		ErrorLog:          g.server.ErrorLog,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      90 * time.Second, // a profile of 30 s and more can be taken
		IdleTimeout:       75 * time.Second,
		MaxHeaderBytes:    16 << 10,
	}
	return g
}

// inFrontOf returns last behind all filters of the gateway.
func (g *gateway) inFrontOf(last http.Handler, limiter *diana.Limiter, logger *slog.Logger) http.Handler {
	names := func(r *http.Request) []slog.Attr { return identities(limiter, r) }
	return chain(serverOptions(last), dropConnectionFields, slowBodies(g.timeouts.Read), limiter.Handler, g.inFlight.filter, requestID, accessLog(logger, names))
}

// serverOptions answers OPTIONS *, which asks about the server and not about a path, and passes all
// other requests to next. The upstream does not get it, because a base path would make it a path.
func serverOptions(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.RequestURI == "*" {
			w.Header().Set("Content-Length", "0")
			return
		}
		next.ServeHTTP(w, r)
	})
}

// listen opens all listeners, or none.
func (g *gateway) listen(at listenAt) error {
	for _, s := range []struct {
		name, address string
		server        server
	}{
		{"serving on http://", at.requests, g.server},
		{"admin on http://", at.admin, g.admin},
		{"check on http://", at.check, g.check},
		{"grpc on ", at.grpc, g.grpc},
	} {
		if s.address == "" {
			continue
		}
		l, err := net.Listen("tcp", s.address)
		if err != nil {
			for _, l := range g.open {
				err = errors.Join(err, l.Close())
			}
			return err
		}
		if s.server == server(g.server) || s.server == server(g.check) {
			l = clientListener{l, g.timeouts.Write}
		}
		g.open = append(g.open, listening{s.name, s.server, l})
	}
	return nil
}

// run serves until ctx ends or a signal stops the gateway, and then until the requests in flight are
// finished. It calls reload on SIGHUP.
func (g *gateway) run(ctx context.Context, signals <-chan os.Signal, reload func()) error {
	failed := make(chan error, len(g.open))
	var serving sync.WaitGroup
	defer serving.Wait()
	defer g.close()
	for _, l := range g.open {
		serving.Go(func() { failed <- l.server.Serve(l.Listener) })
	}
	for {
		select {
		case err := <-failed:
			return err
		case <-ctx.Done():
			g.drain(signals)
			return nil
		case s := <-signals:
			if s == syscall.SIGHUP {
				reload()
				continue
			}
			g.drain(signals)
			return nil
		}
	}
}

// drain accepts no further requests. It returns when those in flight are finished, after the drain
// timeout, or at the next signal to stop. Meanwhile the administrators' listener answers that the
// gateway is not ready.
func (g *gateway) drain(signals <-chan os.Signal) {
	g.draining.Store(true)
	g.logger.Info("draining")
	ctx, cancel := context.WithTimeout(context.Background(), g.timeouts.Drain)
	defer cancel()
	finished := make(chan error, 1)
	go func() {
		err := g.shutdown(ctx)
		if err == nil { // Shutdown does not wait for WebSockets
			err = g.inFlight.wait(ctx)
		}
		finished <- err
	}()
	for {
		select {
		case err := <-finished:
			if err != nil {
				g.logger.Warn("requests in flight are cut off", "reason", "they took too long")
				return
			}
			g.logger.Info("drained")
			return
		case s := <-signals:
			if s != syscall.SIGHUP {
				g.logger.Warn("requests in flight are cut off", "reason", s)
				return
			}
		}
	}
}

// shutdown stops all servers but that for administrators, when their requests have ended or ctx ends.
func (g *gateway) shutdown(ctx context.Context) error {
	errs := make([]error, len(g.open))
	var stopping sync.WaitGroup
	for i, l := range g.open {
		if l.server != server(g.admin) {
			stopping.Go(func() { errs[i] = l.server.Shutdown(ctx) })
		}
	}
	stopping.Wait()
	return errors.Join(errs...)
}

// close ends all requests and all servers.
func (g *gateway) close() {
	g.cut()
	for _, l := range g.open {
		_ = l.server.Close()
	}
}
