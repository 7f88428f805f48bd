// SPDX-License-Identifier: MIT

package dianahertz_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/cloudwego/hertz/pkg/app"
	"github.com/cloudwego/hertz/pkg/app/middlewares/server/recovery"
	"github.com/cloudwego/hertz/pkg/app/server"
	"github.com/cloudwego/hertz/pkg/common/hlog"
	"github.com/cloudwego/hertz/pkg/network"
	"github.com/cloudwego/netpoll"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/adapters/adaptertest"
	dianahertz "github.com/diana-limiter/diana/adapters/hertz"
)

func TestMiddleware(t *testing.T) {
	hlog.SetOutput(io.Discard)
	adaptertest.Run(t, adaptertest.Framework{
		Start:       start,
		Pattern:     "/users/:id",
		Unknown:     []string{"charge /error", "charge /panic"},
		NoBandwidth: true,
		NoDivert:    true,
	})
}

func start(t *testing.T, a *adaptertest.App) string {
	t.Helper()
	options := dianahertz.Options{Route: a.Route}
	if a.Actor {
		options.Actor = func(_ context.Context, c *app.RequestContext) (kind, value string) {
			return adaptertest.Actor(c.GetString("user"))
		}
	}
	if a.Refuse {
		options.Refuse = func(_ context.Context, c *app.RequestContext, d *diana.Decision) {
			c.JSON(http.StatusTooManyRequests, map[string]string{"message": "slow down: " + adaptertest.Refused(d)})
		}
	}
	limit := options.Middleware(a.Limiter)
	users := []app.HandlerFunc{limit}
	answers := []app.HandlerFunc{recovery.Recovery(), renderErrors}

	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	converted, err := netpoll.ConvertListener(tcp)
	if err != nil {
		t.Fatal(err)
	}
	listener := closedOnce{converted, tcp}
	h := server.New(server.WithListener(listener), server.WithSenseClientDisconnection(true), server.WithExitWaitTime(0))
	h.Use(func(_ context.Context, c *app.RequestContext) { c.Set("user", string(c.GetHeader("X-User"))) })
	switch {
	case a.Single:
		h.Use(answers...)
	case a.Inside:
		h.Use(append(users, answers...)...)
	default:
		h.Use(append(answers, limit)...)
	}
	if !a.Single {
		users = nil
	}
	h.GET("/users/:id", append(users, func(_ context.Context, c *app.RequestContext) { c.String(200, "user "+c.Param("id")) })...)
	h.GET("/users/new", append(users, func(_ context.Context, c *app.RequestContext) { c.String(200, "new") })...)
	routes(h, a)
	done := make(chan error, 1)
	go func() { done <- h.Run() }()
	t.Cleanup(func() {
		_ = h.Close() // an error is about connections that are open
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return "http://" + listener.Addr().String()
}

// closedOnce is a listener of netpoll that closes each descriptor once. netpoll's own Close closes its copy of the
// descriptor twice. The second time it can close a connection of another test that has the same number by then.
// The garbage collector closes the copy here.
type closedOnce struct {
	netpoll.Listener
	tcp net.Listener
}

func (l closedOnce) Close() error { return l.tcp.Close() }

// renderErrors answers errors that handlers have recorded.
func renderErrors(ctx context.Context, c *app.RequestContext) {
	c.Next(ctx)
	if len(c.Errors) > 0 {
		c.JSON(http.StatusConflict, map[string]string{"error": c.Errors[0].Error()})
	}
}

func routes(h *server.Hertz, a *adaptertest.App) {
	hello := func(_ context.Context, c *app.RequestContext) {
		a.Calls.Add(1)
		c.String(200, "hello")
	}
	h.GET("/hello", hello)
	h.HEAD("/hello", hello)
	h.GET("/status/:n", func(_ context.Context, c *app.RequestContext) {
		n, _ := strconv.Atoi(c.Param("n"))
		c.String(n, "status")
	})
	h.GET("/silent", func(context.Context, *app.RequestContext) {})
	h.GET("/error", func(_ context.Context, c *app.RequestContext) { _ = c.Error(errors.New("conflict")) })
	h.GET("/panic", func(context.Context, *app.RequestContext) { panic("a mistake") })
	h.GET("/wait", func(ctx context.Context, c *app.RequestContext) {
		a.Wait(ctx)
		c.String(200, "done")
	})
	h.GET("/stream", func(ctx context.Context, c *app.RequestContext) {
		r, w := io.Pipe()
		go func() {
			_, _ = io.WriteString(w, "data: 1\n\n")
			a.Wait(ctx)
			_, _ = io.WriteString(w, "data: 2\n\n")
			_ = w.Close()
		}()
		c.Response.ImmediateHeaderFlush = true
		c.SetBodyStream(r, -1)
	})
	h.GET("/endless", func(_ context.Context, c *app.RequestContext) {
		r, w := io.Pipe()
		go func() {
			for {
				if _, err := io.WriteString(w, "data: 1\n\n"); err != nil {
					return
				}
				time.Sleep(time.Millisecond)
			}
		}()
		c.SetBodyStream(r, -1)
	})
	h.GET("/big", func(_ context.Context, c *app.RequestContext) {
		for b := adaptertest.Big; len(b) > 0; b = b[min(10_000, len(b)):] {
			_, _ = c.Write(b[:min(10_000, len(b))])
		}
	})
	h.GET("/trailer", func(_ context.Context, c *app.RequestContext) {
		_ = c.Response.Header.Trailer().Set("X-Sum", "4")
		r, w := io.Pipe()
		go func() {
			_, _ = io.WriteString(w, "body")
			_ = w.Close()
		}()
		c.SetBodyStream(r, -1)
	})
	h.POST("/echo", func(_ context.Context, c *app.RequestContext) { c.Data(200, "text/plain", c.Request.Body()) })
	h.GET("/socket", func(_ context.Context, c *app.RequestContext) {
		c.SetStatusCode(http.StatusSwitchingProtocols)
		c.Header("Connection", "Upgrade")
		c.Header("Upgrade", "echo")
		c.Hijack(func(conn network.Conn) { _, _ = io.Copy(conn, conn) })
	})
}
