// SPDX-License-Identifier: MIT

package dianahertz_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"math"
	"net"
	"net/http"

	"github.com/cloudwego/hertz/pkg/app"
	"github.com/cloudwego/hertz/pkg/app/middlewares/server/recovery"
	"github.com/cloudwego/hertz/pkg/app/server"

	"github.com/diana-limiter/diana"
	dianahertz "github.com/diana-limiter/diana/adapters/hertz"

	"github.com/cloudwego/hertz/pkg/common/hlog"
	"github.com/diana-limiter/diana/adapters/adaptertest"
)

func user(_ context.Context, c *app.RequestContext) { c.String(http.StatusOK, "user "+c.Param("id")) }

func route(h *server.Hertz, limiter *diana.Limiter) {
	h.Use(dianahertz.Middleware(limiter), recovery.Recovery())
	h.GET("/users/:id", user)
}

func Example() {
	limiter, err := diana.Open("limits.yaml")
	if err != nil {
		log.Fatal(err)
	}
	defer limiter.Close()
	listener := listen()
	h := server.New(server.WithListener(listener), server.WithSenseClientDisconnection(true))
	route(h, limiter)

	url := serve(h, listener)
	for _, path := range []string{"/users/1", "/users/2", "/users/3"} {
		adaptertest.Print(url+path, "")
	}
	// Output:
	// 200 user 1
	// 200 user 2
	// 429 application/problem+json
}

func ExampleOptions() {
	limiter, err := diana.Open("limits.yaml")
	if err != nil {
		log.Fatal(err)
	}
	defer limiter.Close()
	listener := listen()
	h := server.New(server.WithListener(listener))
	h.Use(func(_ context.Context, c *app.RequestContext) { c.Set("account", c.Query("session")) }) // a login would check it

	limit := dianahertz.Options{
		Route: true,
		Actor: func(_ context.Context, c *app.RequestContext) (kind, value string) {
			return "account", c.GetString("account")
		},
		Refuse: func(_ context.Context, c *app.RequestContext, d *diana.Decision) {
			text := "too many requests"
			if d.RetryAfter > 0 { // 0: no wait helps
				text = fmt.Sprintf("try again in %.0f s", math.Ceil(d.RetryAfter.Seconds()))
			}
			c.JSON(http.StatusTooManyRequests, map[string]string{"error": text})
		},
	}.Middleware(limiter)
	h.GET("/users/:id", limit, user)

	url := serve(h, listener)
	for _, path := range []string{"/users/1?session=ann", "/users/2?session=ann", "/users/3?session=ann", "/users/3?session=bob"} {
		adaptertest.Print(url+path, "other")
	}
	// Output:
	// 200 user 1
	// 200 user 2
	// 429 application/json; charset=utf-8
	// 200 user 3
}

// The server of README.md listens on a fixed port, so the tests only compile this example.
func Example_server() {
	limiter, err := diana.Open("limits.yaml")
	if err != nil {
		log.Fatal(err)
	}
	defer limiter.Close()
	h := server.New(server.WithHostPorts(":8080"), server.WithSenseClientDisconnection(true))
	route(h, limiter)
	h.Spin()
}

// listen returns a listener on a free port.
func listen() net.Listener {
	hlog.SetOutput(io.Discard)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	return listener
}

// serve starts a server and returns its URL.
func serve(h *server.Hertz, listener net.Listener) (url string) {
	go func() {
		if err := h.Run(); err != nil {
			log.Fatal(err)
		}
	}()
	return "http://" + listener.Addr().String()
}
