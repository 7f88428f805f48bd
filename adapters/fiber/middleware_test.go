// SPDX-License-Identifier: MIT

package dianafiber_test

import (
	"bufio"
	"io"
	"net"
	"strconv"
	"testing"
	"time"

	"github.com/gofiber/fiber/v3"
	"github.com/gofiber/fiber/v3/middleware/recover"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/adapters/adaptertest"
	dianafiber "github.com/diana-limiter/diana/adapters/fiber"
)

func TestMiddleware(t *testing.T) {
	adaptertest.Run(t, adaptertest.Framework{
		Start:        start,
		Pattern:      "/users/:id",
		Unknown:      []string{"charge /panic"},
		NoBandwidth:  true,
		NoDivert:     true,
		NoDisconnect: true,
		RoutesLater:  true,
	})
}

func start(t *testing.T, app *adaptertest.App) string {
	t.Helper()
	options := dianafiber.Options{Route: app.Route}
	if app.Actor {
		options.Actor = func(c fiber.Ctx) (kind, value string) {
			user, _ := c.Locals("user").(string)
			return adaptertest.Actor(user)
		}
	}
	if app.Refuse {
		options.Refuse = func(_ fiber.Ctx, d *diana.Decision) error {
			return fiber.NewError(fiber.StatusTooManyRequests, "slow down: "+adaptertest.Refused(d))
		}
	}
	limit := options.Middleware(app.Limiter)
	router := fiber.New(fiber.Config{ReadBufferSize: 16 << 10})
	router.Use(func(c fiber.Ctx) error {
		c.Locals("user", c.Get("X-User")) // which fiber uses again
		return c.Next()
	})
	switch {
	case app.Single:
		router.Use(recover.New())
	case app.Inside:
		router.Use(limit, recover.New())
	default:
		router.Use(recover.New(), limit)
	}
	user := func(c fiber.Ctx) error { return c.SendString("user " + c.Params("id")) }
	other := func(c fiber.Ctx) error { return c.SendString("new") }
	if app.Single {
		router.Get("/users/new", limit, other)
		router.Get("/users/:id", limit, user)
	} else {
		router.Get("/users/new", other)
		router.Get("/users/:id", user)
	}
	routes(router, app)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- router.Listener(listener, fiber.ListenConfig{DisableStartupMessage: true}) }()
	t.Cleanup(func() {
		if err := router.ShutdownWithTimeout(time.Second); err != nil {
			t.Log(err)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return "http://" + listener.Addr().String()
}

func routes(router *fiber.App, app *adaptertest.App) {
	hello := func(c fiber.Ctx) error {
		app.Calls.Add(1)
		return c.SendString("hello")
	}
	router.Get("/hello", hello)
	router.Head("/hello", hello)
	router.Get("/status/:n", func(c fiber.Ctx) error {
		n, err := strconv.Atoi(c.Params("n"))
		if err != nil {
			return err
		}
		return c.Status(n).SendString("status")
	})
	router.Get("/silent", func(fiber.Ctx) error { return nil })
	router.Get("/error", func(fiber.Ctx) error { return fiber.NewError(fiber.StatusConflict, "conflict") })
	router.Get("/panic", func(fiber.Ctx) error { panic("a mistake") })
	router.Get("/wait", func(c fiber.Ctx) error {
		app.Wait(c.Context())
		return c.SendString("done")
	})
	router.Get("/stream", func(c fiber.Ctx) error {
		ctx := c.Context()
		return c.SendStreamWriter(func(w *bufio.Writer) {
			_, _ = w.WriteString("data: 1\n\n")
			_ = w.Flush()
			app.Wait(ctx)
			_, _ = w.WriteString("data: 2\n\n")
		})
	})
	router.Get("/endless", func(c fiber.Ctx) error {
		return c.SendStreamWriter(func(w *bufio.Writer) {
			for {
				_, _ = w.WriteString("data: 1\n\n")
				if w.Flush() != nil {
					return
				}
				time.Sleep(time.Millisecond)
			}
		})
	})
	router.Get("/big", func(c fiber.Ctx) error {
		for b := adaptertest.Big; len(b) > 0; b = b[min(10_000, len(b)):] {
			if _, err := c.Write(b[:min(10_000, len(b))]); err != nil {
				return err
			}
		}
		return nil
	})
	router.Get("/trailer", func(c fiber.Ctx) error {
		if err := c.Response().Header.AddTrailer("X-Sum"); err != nil {
			return err
		}
		c.Set("X-Sum", "4")
		return c.SendStreamWriter(func(w *bufio.Writer) { _, _ = w.WriteString("body") })
	})
	router.Post("/echo", func(c fiber.Ctx) error { return c.Send(c.Body()) })
	router.Get("/socket", func(c fiber.Ctx) error {
		c.Status(fiber.StatusSwitchingProtocols)
		c.Set("Connection", "Upgrade")
		c.Set("Upgrade", "echo")
		c.RequestCtx().Hijack(func(conn net.Conn) { _, _ = io.Copy(conn, conn) })
		return nil
	})
}
