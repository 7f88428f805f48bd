// SPDX-License-Identifier: MIT

package gateway

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"syscall"
	"time"

	"github.com/diana-limiter/diana/cmd/diana/internal/clientconn"
	"github.com/diana-limiter/diana/cmd/diana/internal/handover"
	"github.com/diana-limiter/diana/cmd/diana/internal/logs"
	"github.com/diana-limiter/diana/internal/respond"
)

// server is a server over HTTP or gRPC.
type server interface {
	Serve(l net.Listener) error
	Shutdown(ctx context.Context) error
	Close() error
}

// forClients returns a server of requests whose contexts end with ctx.
func forClients(ctx context.Context, h http.Handler, t Timeouts, h2c bool, logger *slog.Logger) *http.Server {
	draining, drain := context.WithCancel(ctx)
	ctx = respond.WithDrain(ctx, draining)
	s := &http.Server{
		Handler:           h,
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ConnContext:       clientconn.Context,
		ErrorLog:          logs.Server(logger),
		ReadHeaderTimeout: t.Header,
		IdleTimeout:       t.Idle,
		MaxHeaderBytes:    64 << 10,
		// No ReadTimeout and no WriteTimeout, see package clientconn.

		DisableGeneralOptionsHandler: true, // the limiter evaluates OPTIONS * too, see serverOptions
	}
	s.RegisterOnShutdown(drain)
	if h2c { // for clients that begin with it; they cannot change to it by an Upgrade
		s.Protocols = new(http.Protocols)
		s.Protocols.SetHTTP1(true)
		s.Protocols.SetUnencryptedHTTP2(true)
	}
	return s
}

// forAdministrators returns a server of the administrators' pages.
func forAdministrators(h http.Handler, logger *slog.Logger) *http.Server {
	return &http.Server{
		Handler:           h,
		ErrorLog:          logs.Server(logger),
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      90 * time.Second, // a profile of 30 s and more can be taken
		IdleTimeout:       75 * time.Second,
		MaxHeaderBytes:    16 << 10,
	}
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

// listening is a server with its listener.
type listening struct {
	name   string // with its scheme, as the program prints it before the address
	server server
	net.Listener
	socket handover.Socket // below the Listener
}

// listenAt are the addresses at which the servers of a gateway listen. An empty one means that it does not.
type listenAt struct {
	requests, admin, check, grpc string
	handover                     *handover.Handover // has the sockets of the process before this one; may be nil
}

// listen opens all listeners, or none.
func (g *Gateway) listen(at listenAt) error {
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
		l, err := at.handover.Listen(s.address)
		if err != nil {
			err = fmt.Errorf("%s: %w", s.flag, err)
			if at.handover == nil && errors.Is(err, syscall.EADDRINUSE) {
				err = fmt.Errorf("%w, expected a free one: %s HOST:PORT", err, s.flag)
			}
			for _, l := range g.open {
				err = errors.Join(err, l.Close())
			}
			return err
		}
		if h, ok := s.server.(*http.Server); ok {
			h.Handler = g.leaveConnections(h.Handler)
		}
		under := handover.Socket{Address: s.address, Listener: l.(*net.TCPListener)}
		if s.server == server(g.server) || s.server == server(g.check) {
			l = clientconn.Listener(l, g.timeouts.Write)
			if g.tls != nil { // above the clientConns, because their deadlines cover the handshake too
				l = tls.NewListener(l, g.tls.Config("h2", "http/1.1"))
			}
		}
		g.open = append(g.open, listening{s.name, s.server, l, under})
	}
	g.handover = at.handover
	return nil
}

// openListeners opens the listeners of the flags, with the sockets of an earlier process if there is one.
func (g *Gateway) openListeners(ctx context.Context, signals <-chan os.Signal, f *Flags) error {
	at := listenAt{requests: f.Listen, admin: f.Admin, check: f.Decisions.Check, grpc: f.Decisions.GRPC}
	if f.Handover == "" {
		return g.listen(at)
	}
	h, err := unlessStopped(ctx, signals, func() (*handover.Handover, error) { return handover.TakeOver(f.Handover, g.logger) })
	if errors.Is(err, ErrStopped) {
		return errors.Join(err, os.Remove(handover.BesideOf(f.Handover))) // which TakeOver would do if it did not hang
	}
	if err != nil {
		return err
	}
	at.handover = h
	if err = g.listen(at); err == nil {
		return nil
	}
	h.Close()
	if errors.Is(err, syscall.EADDRINUSE) && h.First() {
		return fmt.Errorf("%w, and no process hands over at %s, expected one that runs with the same --handover", err, f.Handover)
	}
	return err
}

// ErrStopped is the error of a start that a signal stopped.
var ErrStopped = errors.New("stopped")

// unlessStopped opens something. That takes a while if a configuration centre or an earlier process hangs, so
// unlessStopped returns ErrStopped as soon as ctx ends or a signal stops the program.
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
			return nil, ErrStopped
		case s := <-signals:
			if s != syscall.SIGHUP { // the configuration is being read already
				return nil, ErrStopped
			}
		}
	}
}
