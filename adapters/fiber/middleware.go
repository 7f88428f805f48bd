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
	"net/http"

	"github.com/gofiber/fiber/v3"
	"github.com/valyala/fasthttp"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/internal/pooled"
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
		of := exchange{c.RequestCtx()}
		ctx := c.Context()
		d, err := limiter.Take(ctx, o.request(ctx, c, of))
		held := false
		defer func() {
			if !held {
				d.Done()
			}
		}()
		if pooled.Reject(of, err) {
			return nil
		}
		pooled.SetFields(of, &d)
		switch {
		case d.Allowed:
		case o.Refuse != nil:
			refused := d // a copy, so that only a request that gets here allocates
			return o.Refuse(c, &refused)
		default:
			pooled.Refuse(of, &d)
			return nil
		}
		if proved, ok := pooled.SetUpstream(ctx, of, &d); ok {
			c.SetContext(proved)
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

// request returns the request to evaluate.
func (o Options) request(ctx context.Context, c fiber.Ctx, of exchange) diana.Request {
	var route, kind, value string
	if o.Route && c.Matched() {
		route = c.FullPath()
	}
	if o.Actor != nil {
		kind, value = o.Actor(c)
	}
	return pooled.Request(ctx, of, route, kind, value)
}

// exchange is a request with its response.
type exchange struct{ *fasthttp.RequestCtx }

// Target returns the path as the client sent it, and the query.
func (x exchange) Target() (path, query []byte) { return x.URI().PathOriginal(), x.URI().QueryString() }

// VisitFields shows v the header.
func (x exchange) VisitFields(v pooled.Visitor) {
	for name, value := range x.Request.Header.All() {
		v.Visit(name, value)
	}
}

// DelField deletes a field of the request, by its name as the client wrote it.
func (x exchange) DelField(name string) { x.Request.Header.Del(name) }

// PutField sets a field of the request.
func (x exchange) PutField(name, value string) { x.Request.Header.Set(name, value) }

// SetField sets a field of the response.
func (x exchange) SetField(name, value string) { x.Response.Header.Set(name, value) }
