// SPDX-License-Identifier: MIT

package dianaecho_test

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"time"

	"github.com/labstack/echo/v5"
	"github.com/labstack/echo/v5/middleware"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/adapters/adaptertest"
	dianaecho "github.com/diana-limiter/diana/adapters/echo"
	"github.com/diana-limiter/diana/config"
)

func TestMiddleware(t *testing.T) {
	adaptertest.Run(t, adaptertest.Framework{
		Start:   start,
		Pattern: "/users/:id",
		Unknown: []string{"charge /panic"},
	})
}

func start(t *testing.T, app *adaptertest.App) string {
	t.Helper()
	options := dianaecho.Options{Route: app.Route}
	if app.Actor {
		options.Actor = func(c *echo.Context) (kind, value string) {
			user, _ := c.Get("user").(string)
			return adaptertest.Actor(user)
		}
	}
	if app.Refuse {
		options.Refuse = func(_ *echo.Context, d *diana.Decision) error {
			return echo.NewHTTPError(http.StatusTooManyRequests, "slow down: "+adaptertest.Refused(d))
		}
	}
	limit := options.Middleware(app.Limiter)
	router := echo.New()
	router.Logger = slog.New(slog.DiscardHandler)
	router.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c *echo.Context) error {
			c.Set("user", c.Request().Header.Get("X-User"))
			return next(c)
		}
	})
	users := []echo.MiddlewareFunc{limit}
	switch {
	case app.Single:
		router.Use(middleware.Recover())
	case app.Inside:
		router.Use(limit, middleware.Recover())
	default:
		router.Use(middleware.Recover(), limit)
	}
	if !app.Single {
		users = nil
	}
	router.GET("/users/:id", func(c *echo.Context) error { return c.String(200, "user "+c.Param("id")) }, users...)
	router.GET("/users/new", func(c *echo.Context) error { return c.String(200, "new") }, users...)
	routes(router, app)
	return adaptertest.Serve(t, router)
}

func routes(router *echo.Echo, app *adaptertest.App) {
	hello := func(c *echo.Context) error {
		app.Calls.Add(1)
		return c.String(200, "hello")
	}
	router.GET("/hello", hello)
	router.HEAD("/hello", hello)
	router.GET("/status/:n", func(c *echo.Context) error {
		n, _ := strconv.Atoi(c.Param("n"))
		return c.String(n, "status")
	})
	router.GET("/silent", func(*echo.Context) error { return nil })
	router.GET("/error", func(*echo.Context) error { return echo.NewHTTPError(http.StatusConflict, "conflict") })
	router.GET("/panic", func(*echo.Context) error { panic("a mistake") })
	router.GET("/wait", func(c *echo.Context) error {
		app.Wait(c.Request().Context())
		return c.String(200, "done")
	})
	router.GET("/stream", func(c *echo.Context) error {
		w := c.Response()
		_, _ = io.WriteString(w, "data: 1\n\n")
		_ = http.NewResponseController(w).Flush()
		app.Wait(c.Request().Context())
		_, err := io.WriteString(w, "data: 2\n\n")
		return err
	})
	router.GET("/endless", func(c *echo.Context) error {
		for c.Request().Context().Err() == nil {
			_, _ = io.WriteString(c.Response(), "data: 1\n\n")
			_ = http.NewResponseController(c.Response()).Flush()
			time.Sleep(time.Millisecond)
		}
		return nil
	})
	router.GET("/big", func(c *echo.Context) error {
		for b := adaptertest.Big; len(b) > 0; b = b[min(10_000, len(b)):] {
			if _, err := c.Response().Write(b[:min(10_000, len(b))]); err != nil {
				return err
			}
		}
		return nil
	})
	router.GET("/trailer", func(c *echo.Context) error {
		c.Response().Header().Set("Trailer", "X-Sum")
		err := c.String(200, "body")
		c.Response().Header().Set("X-Sum", "4")
		return err
	})
	router.POST("/echo", func(c *echo.Context) error {
		body, err := io.ReadAll(c.Request().Body)
		if err != nil {
			return err
		}
		return c.Blob(200, "text/plain", body)
	})
	router.GET("/socket", func(c *echo.Context) error {
		conn, rw, err := http.NewResponseController(c.Response()).Hijack()
		if err != nil {
			return err
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		_, err = io.Copy(conn, rw)
		return err
	})
}

// plain is a ResponseWriter of an earlier middleware that cannot be unwrapped.
type plain struct{ http.ResponseWriter }

// A rule counts the answers of a server whose ResponseWriter cannot be unwrapped, and the handler answers.
func TestPlainWriter(t *testing.T) {
	c, err := config.Parse("a.yaml", []byte("limits: [{url: /, rules: [{rpu: 1, unit: hour, charge: [404]}]}]"))
	if err != nil {
		t.Fatal(err)
	}
	limiter, err := diana.Options{}.New(c)
	if err != nil {
		t.Fatal(err)
	}
	defer limiter.Close()
	router := echo.New()
	router.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c *echo.Context) error {
			c.SetResponse(plain{c.Response()})
			return next(c)
		}
	}, dianaecho.Middleware(limiter))
	router.GET("/", func(c *echo.Context) error { return c.NoContent(http.StatusNotFound) })
	for i, want := range []int{http.StatusNotFound, http.StatusServiceUnavailable} {
		w := httptest.NewRecorder()
		router.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
		if w.Code != want {
			t.Errorf("%d: status %d, want %d", i, w.Code, want)
		}
	}
}
