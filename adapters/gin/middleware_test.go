// SPDX-License-Identifier: MIT

package dianagin_test

import (
	"errors"
	"io"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/adapters/adaptertest"
	dianagin "github.com/diana-limiter/diana/adapters/gin"
)

func TestMiddleware(t *testing.T) {
	gin.SetMode(gin.ReleaseMode)
	adaptertest.Run(t, adaptertest.Framework{
		Start:   start,
		Pattern: "/users/:id",
		Unknown: []string{"charge /error", "charge /panic"},
	})
}

func start(t *testing.T, app *adaptertest.App) string {
	t.Helper()
	options := dianagin.Options{Route: app.Route}
	if app.Actor {
		options.Actor = func(c *gin.Context) (kind, value string) { return adaptertest.Actor(c.GetString("user")) }
	}
	if app.Refuse {
		options.Refuse = func(c *gin.Context, d *diana.Decision) {
			c.JSON(http.StatusTooManyRequests, gin.H{"message": "slow down: " + adaptertest.Refused(d)})
		}
	}
	limit := options.Middleware(app.Limiter)
	users := []gin.HandlerFunc{limit}
	answers := []gin.HandlerFunc{gin.RecoveryWithWriter(nil), renderErrors}

	router := gin.New()
	router.Use(func(c *gin.Context) { c.Set("user", c.GetHeader("X-User")) })
	switch {
	case app.Single:
		router.Use(answers...)
	case app.Inside:
		router.Use(append(users, answers...)...)
	default:
		router.Use(append(answers, limit)...)
	}
	if !app.Single {
		users = nil
	}
	router.GET("/users/:id", append(users, func(c *gin.Context) { c.String(200, "user "+c.Param("id")) })...)
	router.GET("/users/new", append(users, func(c *gin.Context) { c.String(200, "new") })...)
	routes(router, app)
	return adaptertest.Serve(t, router)
}

// renderErrors answers errors that handlers have recorded.
func renderErrors(c *gin.Context) {
	c.Next()
	if len(c.Errors) > 0 && !c.Writer.Written() {
		c.JSON(http.StatusConflict, gin.H{"error": c.Errors[0].Error()})
	}
}

func routes(router *gin.Engine, app *adaptertest.App) {
	hello := func(c *gin.Context) {
		app.Calls.Add(1)
		c.String(200, "hello")
	}
	router.GET("/hello", hello)
	router.HEAD("/hello", hello)
	router.GET("/status/:n", func(c *gin.Context) {
		n, _ := strconv.Atoi(c.Param("n"))
		c.String(n, "status")
	})
	router.GET("/silent", func(*gin.Context) {})
	router.GET("/error", func(c *gin.Context) { _ = c.Error(errors.New("conflict")) })
	router.GET("/panic", func(*gin.Context) { panic("a mistake") })
	router.GET("/wait", func(c *gin.Context) {
		app.Wait(c.Request.Context())
		c.String(200, "done")
	})
	router.GET("/stream", func(c *gin.Context) {
		c.Header("Content-Type", "text/event-stream")
		_, _ = c.Writer.WriteString("data: 1\n\n")
		c.Writer.Flush()
		app.Wait(c.Request.Context())
		_, _ = c.Writer.WriteString("data: 2\n\n")
	})
	router.GET("/endless", func(c *gin.Context) {
		c.Stream(func(w io.Writer) bool {
			_, err := io.WriteString(w, "data: 1\n\n")
			time.Sleep(time.Millisecond)
			return err == nil
		})
	})
	router.GET("/big", func(c *gin.Context) {
		for b := adaptertest.Big; len(b) > 0; b = b[min(10_000, len(b)):] {
			if _, err := c.Writer.Write(b[:min(10_000, len(b))]); err != nil {
				return
			}
		}
	})
	router.GET("/trailer", func(c *gin.Context) {
		c.Header("Trailer", "X-Sum")
		c.String(200, "body")
		c.Header("X-Sum", "4")
	})
	router.POST("/echo", func(c *gin.Context) {
		body, err := io.ReadAll(c.Request.Body)
		if err != nil {
			c.Status(http.StatusBadRequest)
			return
		}
		c.Data(200, "text/plain", body)
	})
	router.GET("/socket", func(c *gin.Context) {
		conn, rw, err := c.Writer.Hijack()
		if err != nil {
			c.Status(http.StatusInternalServerError)
			return
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		_, _ = io.Copy(conn, rw)
	})
}
