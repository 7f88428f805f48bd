// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
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
	leaving  atomic.Bool        // another process has taken over
	cut      context.CancelFunc // cancels every request
	timeouts timeouts
	tls      *keyPair // of all servers except that for administrators; nil: none

	open     []listening // set by listen
	handover *handover   // set by listen; nil: no other process takes over
}

// listenAt are the addresses at which the servers of a gateway listen. An empty one means that it does not.
type listenAt struct {
	requests, admin, check, grpc string
	handover                     *handover // has the sockets of the process before this one; may be nil
}

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
	address string           // as the flags name it
	socket  *net.TCPListener // below the Listener
}

// newGateway returns a gateway. last answers the requests that the limiter allows. A nil last means that the
// gateway answers them itself. /metrics shows metrics.
func newGateway(limiter *diana.Limiter, last http.Handler, t timeouts, logger *slog.Logger, metrics prometheus.Gatherer) *gateway {
	if last == nil {
		last = echo(limiter)
	}
	ctx, cut := context.WithCancel(context.Background())
	g := &gateway{logger: logger, cut: cut, timeouts: t}
	forClients := func(h http.Handler) *http.Server {
		return &http.Server{
			Handler:           h,
			BaseContext:       func(net.Listener) context.Context { return ctx },
			ConnContext:       withClientConn,
			ErrorLog:          newServerLog(logger),
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

// acceptH2C lets clients use HTTP/2 without TLS, if they begin with it. A client cannot change to it by an
// Upgrade.
func (g *gateway) acceptH2C() {
	for _, s := range []*http.Server{g.server, g.check} {
		s.Protocols = new(http.Protocols)
		s.Protocols.SetHTTP1(true)
		s.Protocols.SetUnencryptedHTTP2(true)
	}
}

// inFrontOf returns last behind all filters of the gateway.
func (g *gateway) inFrontOf(last http.Handler, limiter *diana.Limiter, logger *slog.Logger) http.Handler {
	names := func(r *http.Request) []slog.Attr { return identities(limiter, r) }
	return chain(serverOptions(last), dropConnectionFields, slowBodies(g.timeouts), limiter.Handler, g.inFlight.filter, requestID, accessLog(logger, names))
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
	plain, secure := "http://", "http://"
	if g.tls != nil {
		secure = "https://"
	}
	for _, s := range []struct {
		flag, name, address string
		server              server
	}{
		{"--listen", "serving on " + secure, at.requests, g.server},
		{"--admin", "admin on " + plain, at.admin, g.admin},
		{"--check", "check on " + secure, at.check, g.check},
		{"--grpc", "grpc on ", at.grpc, g.grpc},
	} {
		if s.address == "" {
			continue
		}
		l, err := at.handover.listen(s.address)
		if err != nil {
			err = fmt.Errorf("%s: %w", s.flag, err)
			for _, l := range g.open {
				err = errors.Join(err, l.Close())
			}
			return err
		}
		if h, ok := s.server.(*http.Server); ok {
			h.Handler = g.leaveConnections(h.Handler)
		}
		socket := l.(*net.TCPListener)
		if s.server == server(g.server) || s.server == server(g.check) {
			l = clientListener{l, g.timeouts.Write}
			if g.tls != nil { // above the clientConns, because their deadlines cover the handshake too
				l = tls.NewListener(l, g.tls.config("h2", "http/1.1"))
			}
		}
		g.open = append(g.open, listening{s.name, s.server, l, s.address, socket})
	}
	g.handover = at.handover
	return nil
}

// run serves until ctx ends, a signal stops the gateway or another process takes over, and then until the
// requests in flight are finished. It calls reload on SIGHUP.
func (g *gateway) run(ctx context.Context, signals <-chan os.Signal, reload func()) error {
	failed := make(chan error, len(g.open))
	var serving sync.WaitGroup
	defer serving.Wait()
	defer g.close()
	for _, l := range g.open {
		serving.Go(func() { failed <- l.server.Serve(l.Listener) })
	}
	if g.handover != nil {
		defer g.handover.close()
		if g.abandons(signals) {
			return nil
		}
		if err := g.handover.ready(g.open); err != nil {
			return err
		}
	}
	for {
		select {
		case err := <-failed:
			return err
		case <-g.handover.handedOver():
			g.leave(signals)
			return nil
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
	g.handover.close() // a successor must not ask for sockets that are about to close
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

// shutdown stops all servers, when their requests have ended or ctx ends. It stops that for administrators only
// if another process has taken over.
func (g *gateway) shutdown(ctx context.Context) error {
	errs := make([]error, len(g.open))
	var stopping sync.WaitGroup
	for i, l := range g.open {
		if l.server != server(g.admin) || g.leaving.Load() {
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
