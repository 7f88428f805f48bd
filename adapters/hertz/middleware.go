// SPDX-License-Identifier: MIT

// Package dianahertz limits the requests of a hertz server with Diana.
//
//	limiter, err := diana.Open("limits.yaml")
//	if err != nil {
//		log.Fatal(err)
//	}
//	h := server.New()
//	h.Use(dianahertz.Middleware(limiter), recovery.Recovery())
//
// Hertz has no net/http, so this package uses [diana.Limiter.Take]. It differs from [diana.Limiter.Handler]:
//
//   - The settings bandwidth and divert have no effect: a refused request gets Diana's refusal.
//   - Hertz notices that a client has disconnected only if server.WithSenseClientDisconnection is set.
//   - A stream holds its slots until it ends. A body in memory is written after they are released.
package dianahertz

import (
	"context"
	"net/http"

	"github.com/cloudwego/hertz/pkg/app"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/internal/pooled"
)

// Options are what a program decides about a middleware. The zero value is ready to use.
type Options struct {
	// Route has rules see the pattern of the route, such as /users/:id, in place of the path. A
	// request without a route keeps its path. In a configuration /users/{id} covers that pattern.
	Route bool

	// Actor returns an actor that an earlier middleware has established, and that is believed over
	// the fields of the request: see [diana.WithActor]. If kind is empty, the fields count. Nil means
	// that they always do.
	Actor func(ctx context.Context, c *app.RequestContext) (kind, value string)

	// Refuse answers a refused request, under the terms of [diana.Options].Refuse, which itself has
	// no effect in hertz. The fields of the response are already set. Nil means the configured problem.
	Refuse func(ctx context.Context, c *app.RequestContext, d *diana.Decision)
}

// Middleware returns a middleware that evaluates the requests that reach it. A refused request reaches no
// later handler. The middleware works for a server, a group and a single route. A request must meet it
// only once: a second middleware of the same limiter charges the request again. Under algo C the request
// then competes with itself for slots.
//
// A rule with charge counts the status that is known when this middleware returns. A request stays
// charged if a panic passes this middleware, or if an earlier middleware has still to answer an error
// of RequestContext.Errors. So recovery and such middleware belong behind this one.
func Middleware(limiter *diana.Limiter) app.HandlerFunc { return Options{}.Middleware(limiter) }

// Middleware is like the function of that name, with these options.
func (o Options) Middleware(limiter *diana.Limiter) app.HandlerFunc {
	return func(ctx context.Context, c *app.RequestContext) {
		of := exchange{c}
		d, err := limiter.Take(ctx, o.request(ctx, of))
		held := false
		defer func() {
			if !held {
				d.Done()
			}
		}()
		if pooled.Reject(of, err) {
			c.Abort()
			return
		}
		pooled.SetFields(of, &d)
		if !d.Allowed {
			c.Abort()
			if o.Refuse != nil {
				refused := d // a copy, so that only a request that gets here allocates
				o.Refuse(ctx, c, &refused)
			} else {
				pooled.Refuse(of, &d)
			}
			return
		}
		ctx, _ = pooled.SetUpstream(ctx, of, &d)
		c.Next(ctx)
		if !pending(c) {
			d.SetStatus(c.Response.StatusCode())
		}
		if held = (c.Response.IsBodyStream() || c.Hijacked()) && !c.IsExiled(); held {
			stream := d // a copy, so that only a request that gets here allocates
			go func(finished <-chan struct{}) {
				<-finished
				stream.Done()
			}(c.Finished())
		}
	}
}

// pending reports whether an earlier middleware has still to answer an error.
func pending(c *app.RequestContext) bool {
	return len(c.Errors) > 0 && !c.Response.HasBodyBytes() && !c.Response.IsBodyStream() && c.Response.StatusCode() == http.StatusOK
}

// request returns the request to evaluate.
func (o Options) request(ctx context.Context, of exchange) diana.Request {
	var route, kind, value string
	if o.Route {
		route = of.FullPath()
	}
	if o.Actor != nil {
		kind, value = o.Actor(ctx, of.RequestContext)
	}
	return pooled.Request(ctx, of, route, kind, value)
}

// exchange is a request with its response.
type exchange struct{ *app.RequestContext }

// Target returns the path as the client sent it, and the query.
func (x exchange) Target() (path, query []byte) { return x.URI().PathOriginal(), x.URI().QueryString() }

// VisitFields shows v the header.
func (x exchange) VisitFields(v pooled.Visitor) { x.Request.Header.VisitAll(v.Visit) }

// DelField deletes a field of the request, by its name as the client wrote it.
func (x exchange) DelField(name string) { x.Request.Header.Del(name) }

// PutField sets a field of the request.
func (x exchange) PutField(name, value string) { x.Request.Header.Set(name, value) }

// SetField sets a field of the response.
func (x exchange) SetField(name, value string) { x.Header(name, value) }
