// SPDX-License-Identifier: MIT

// Package dianafiber limits the requests of a fiber app with Diana.
//
//	limiter, err := diana.Open("limits.yaml")
//	if err != nil {
//		log.Fatal(err)
//	}
//	app := fiber.New()
//	app.Use(dianafiber.Middleware(limiter), recover.New())
//
// Fiber has no net/http, so this package uses [diana.Limiter.Take]. It differs from [diana.Limiter.Handler]:
//
//   - The settings bandwidth and divert have no effect: a refused request gets Diana's refusal.
//   - Fiber does not notice that a client has disconnected. The request waits on, and holds its slots,
//     until its context ends, its handler returns or writing its stream fails.
//   - A stream holds its slots until it ends. A body in memory is written after they are released.
package dianafiber

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/gofiber/fiber/v3"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/rule"
)

// Options are what a program decides about a middleware. The zero value is ready to use.
type Options struct {
	// Route has rules see the pattern of the route, such as /users/:id, in place of the path. In a
	// configuration /users/{id} covers that pattern. Fiber routes a request after the middleware of
	// App.Use and Group. There a request keeps its path, and so does a request without a route.
	Route bool

	// Actor returns an actor that an earlier middleware has established, and that is believed over
	// the fields of the request: see [diana.WithActor]. If kind is empty, the fields count. Nil means
	// that they always do.
	Actor func(c fiber.Ctx) (kind, value string)

	// Refuse answers a refused request, under the terms of [diana.Options].Refuse, which itself has
	// no effect in fiber. The fields of the response are already set. An error goes to fiber's
	// ErrorHandler. Nil means the configured problem.
	Refuse func(c fiber.Ctx, d *diana.Decision) error
}

// Middleware returns a middleware that evaluates the requests that reach it. A refused request reaches no
// later handler. The middleware works for an app, a group and a single route. A request must meet it only
// once: a second middleware of the same limiter charges the request again. Under algo C the request then
// competes with itself for slots.
//
// A rule with charge counts the status that the client gets. So the middleware has fiber's ErrorHandler
// answer an error of a later handler, as fiber's logger does. A request stays charged if a panic passes
// this middleware, so recover belongs behind it.
func Middleware(limiter *diana.Limiter) fiber.Handler { return Options{}.Middleware(limiter) }

// Middleware is like the function of that name, with these options.
func (o Options) Middleware(limiter *diana.Limiter) fiber.Handler {
	return func(c fiber.Ctx) error {
		d, err := limiter.Take(c.Context(), o.request(c))
		if strange, ok := errors.AsType[*rule.PathError](err); ok {
			return reject(c, strange)
		}
		held := false
		defer func() {
			if !held {
				d.Done()
			}
		}()
		w := writer{c, http.Header{}}
		d.SetFields(w.header)
		w.WriteHeader(c.Response().StatusCode())
		switch {
		case d.Allowed:
		case o.Refuse != nil:
			refused := d // a copy, so that only a request that gets here allocates
			return o.Refuse(c, &refused)
		default:
			d.Refuse(w, 0)
			return nil
		}
		if err := c.Next(); err != nil && c.App().ErrorHandler(c, err) != nil {
			c.Status(http.StatusInternalServerError) // as fiber does
		}
		d.SetStatus(c.Response().StatusCode())
		if held = c.Response().IsBodyStream() || c.RequestCtx().Hijacked(); held {
			s := &slots{d}
			c.RequestCtx().SetUserValue(s, s)
		}
		return nil
	}
}

// slots are what a request holds until fasthttp closes the values of the request. It does that when the
// stream or the connection has ended.
type slots struct{ d diana.Decision }

// Close releases the slots.
func (s *slots) Close() error {
	s.d.Done()
	return nil
}

// request returns the request to evaluate. Its method and path are copied, because fiber uses its memory again.
func (o Options) request(c fiber.Ctx) diana.Request {
	in := &c.RequestCtx().Request
	q := diana.Request{Method: string(in.Header.Method()), Path: string(in.URI().PathOriginal())}
	if o.Route && c.Matched() {
		q.Path = c.FullPath()
	}
	n := &native{context.Background(), c.RequestCtx(), q.Method, q.Path}
	if o.Actor != nil {
		if kind, value := o.Actor(c); kind != "" {
			n.ctx = diana.WithActor(&http.Request{}, kind, strings.Clone(value)).Context()
		}
	}
	q.Native = n
	return q
}

// reject answers a request with a path that cannot be evaluated.
func reject(c fiber.Ctx, strange *rule.PathError) error {
	c.Set("Cache-Control", "no-store")
	return c.Status(strange.Status()).JSON(fiber.Map{
		"type": "about:blank", "title": http.StatusText(strange.Status()), "status": strange.Status(),
		"detail": "This request was refused because " + strange.Error() + ".",
	}, "application/problem+json")
}

// writer is fiber's response as an http.ResponseWriter.
type writer struct {
	c      fiber.Ctx
	header http.Header
}

func (w writer) Header() http.Header { return w.header }

func (w writer) WriteHeader(status int) {
	w.c.Status(status)
	for name, values := range w.header {
		w.c.Set(name, values[0]) // Diana sets one value for each
	}
}

func (w writer) Write(b []byte) (int, error) { return w.c.Write(b) }
