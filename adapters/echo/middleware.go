// SPDX-License-Identifier: MIT

// Package dianaecho limits the requests of an echo router with Diana.
//
//	limiter, err := diana.Open("limits.yaml")
//	if err != nil {
//		log.Fatal(err)
//	}
//	router := echo.New()
//	router.Use(dianaecho.Middleware(limiter), middleware.Recover())
//
// It uses [diana.Limiter.Serve], so it keeps all promises of [diana.Limiter.Handler]: a request can
// wait, be diverted or have a bandwidth, and it releases its slots when its handler returns or panics.
package dianaecho

import (
	"net/http"

	"github.com/labstack/echo/v5"

	"github.com/diana-limiter/diana"
)

// Options are what a program decides about a middleware. The zero value is ready to use.
type Options struct {
	// Route has rules see the pattern of the route, such as /users/:id, in place of the path. A
	// request without a route keeps its path. In a configuration /users/{id} covers that pattern.
	Route bool

	// Actor returns an actor that an earlier middleware has established, and that is believed over
	// the fields of the request: see [diana.WithActor]. If kind is empty, the fields count. Nil means
	// that they always do.
	Actor func(c *echo.Context) (kind, value string)

	// Refuse answers a refused request, in place of [diana.Options].Refuse and under the same terms.
	// The fields of the response are already set. An error goes to echo's HTTPErrorHandler. Nil means
	// the configured problem.
	Refuse func(c *echo.Context, d *diana.Decision) error
}

// Middleware returns a middleware that evaluates the requests that reach it. A refused request reaches no
// later handler. The middleware works for a router, a group and a single route. A request must meet it
// only once: a second middleware of the same limiter charges the request again. Under algo C the request
// then competes with itself for slots.
//
// A rule with charge counts the status that the client gets. So the middleware has echo's
// HTTPErrorHandler answer an error of a later handler, as echo's RequestLogger does with HandleError. It
// also returns the error, but an earlier middleware can no longer change the response. A request stays
// charged if a panic passes this middleware, so Recover belongs behind it.
func Middleware(limiter *diana.Limiter) echo.MiddlewareFunc { return Options{}.Middleware(limiter) }

// Middleware is like the function of that name, with these options.
func (o Options) Middleware(limiter *diana.Limiter) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c *echo.Context) error {
			var q diana.Request
			if o.Route {
				q.Path = c.Path()
			}
			r := c.Request()
			if o.Actor != nil {
				if kind, value := o.Actor(c); kind != "" {
					r = diana.WithActor(r, kind, value)
				}
			}
			l := &later{Context: c, next: next}
			var refuse func(http.ResponseWriter, *http.Request, *diana.Decision)
			if o.Refuse != nil {
				refuse = func(_ http.ResponseWriter, _ *http.Request, d *diana.Decision) { l.err = o.Refuse(c, d) }
			}
			limiter.Serve(c.Response(), r, q, l, refuse)
			return l.err
		}
	}
}

// later is the next handler of a request, and the error that the middleware returns.
type later struct {
	*echo.Context
	next echo.HandlerFunc
	err  error
}

// ServeHTTP has the handler answer the request through w.
func (l *later) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c, original := l.Context, l.Response()
	c.SetRequest(r)
	watched := w != original
	if watched {
		c.SetResponse(w)
		defer c.SetResponse(original)
	}
	if l.err = l.next(c); l.err != nil {
		c.Echo().HTTPErrorHandler(c, l.err)
	}
	if !watched {
		return
	}
	// net/http sends 200 if nobody writes, but when Diana no longer watches. After an upgrade it is too late.
	if r, err := echo.UnwrapResponse(w); err == nil && !r.Committed && c.Request().Header.Get("Upgrade") == "" {
		w.WriteHeader(http.StatusOK)
	}
}
