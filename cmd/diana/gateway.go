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
)

// gateway is the running program: the listener for requests and the one for
// administrators.
type gateway struct {
	logger   *slog.Logger
	server   *http.Server
	admin    *http.Server
	inFlight inFlight
	draining atomic.Bool
	cut      context.CancelFunc // cancels every request
	timeouts timeouts

	listener, adminListener net.Listener // set by listen
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
	g.server = &http.Server{
		Handler:           g.inFrontOf(last, limiter, logger),
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ConnContext:       withClientConn,
		ErrorLog:          slog.NewLogLogger(logger.Handler(), slog.LevelError),
		ReadHeaderTimeout: t.Header,
		IdleTimeout:       t.Idle,
		MaxHeaderBytes:    64 << 10,
		// No ReadTimeout and no WriteTimeout, see clientConn.

		DisableGeneralOptionsHandler: true, // the limiter evaluates OPTIONS * too, see serverOptions
	}
	g.admin = &http.Server{
		Handler:           newAdmin(limiter, g.draining.Load, metrics, logger),
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

// listen opens both listeners, or neither.
func (g *gateway) listen(address, admin string) (err error) {
	if g.listener, err = net.Listen("tcp", address); err != nil {
		return err
	}
	if g.adminListener, err = net.Listen("tcp", admin); err != nil {
		return errors.Join(err, g.listener.Close())
	}
	return nil
}

// run serves until ctx ends or a signal stops the gateway, and then until the requests in flight are
// finished. It calls reload on SIGHUP.
func (g *gateway) run(ctx context.Context, signals <-chan os.Signal, reload func()) error {
	failed := make(chan error, 2)
	var serving sync.WaitGroup
	defer serving.Wait()
	defer g.close()
	serving.Go(func() { failed <- g.server.Serve(clientListener{g.listener, g.timeouts.Write}) })
	serving.Go(func() { failed <- g.admin.Serve(g.adminListener) })
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
		err := g.server.Shutdown(ctx)
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

// close ends all requests and both servers.
func (g *gateway) close() {
	g.cut()
	_ = g.server.Close()
	_ = g.admin.Close()
}
