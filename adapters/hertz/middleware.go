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
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	"github.com/cloudwego/hertz/pkg/app"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/rule"
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
		d, err := limiter.Take(ctx, o.request(ctx, c))
		if strange, ok := errors.AsType[*rule.PathError](err); ok {
			reject(c, strange)
			return
		}
		held := false
		defer func() {
			if !held {
				d.Done()
			}
		}()
		w := writer{c, http.Header{}}
		d.SetFields(w.header)
		w.WriteHeader(c.Response.StatusCode())
		if !d.Allowed {
			c.Abort()
			if o.Refuse != nil {
				o.Refuse(ctx, c, &d)
			} else {
				d.Refuse(w, 0)
			}
			return
		}
		c.Next(ctx)
		if !pending(c) {
			d.SetStatus(c.Response.StatusCode())
		}
		if held = (c.Response.IsBodyStream() || c.Hijacked()) && !c.IsExiled(); held {
			go func(finished <-chan struct{}) {
				<-finished
				d.Done()
			}(c.Finished())
		}
	}
}

// pending reports whether an earlier middleware has still to answer an error.
func pending(c *app.RequestContext) bool {
	return len(c.Errors) > 0 && !c.Response.HasBodyBytes() && !c.Response.IsBodyStream() && c.Response.StatusCode() == http.StatusOK
}

// request returns the request to evaluate. Its method and path are copied, because hertz uses its memory again.
func (o Options) request(ctx context.Context, c *app.RequestContext) diana.Request {
	in := &c.Request
	q := diana.Request{Method: string(in.Header.Method()), Path: string(in.URI().PathOriginal())}
	if pattern := c.FullPath(); o.Route && pattern != "" {
		q.Path = pattern
	}
	n := &native{context.Background(), c, q.Method, q.Path}
	if o.Actor != nil {
		if kind, value := o.Actor(ctx, c); kind != "" {
			n.ctx = diana.WithActor(&http.Request{}, kind, strings.Clone(value)).Context()
		}
	}
	q.Native = n
	return q
}

// reject answers a request with a path that cannot be evaluated.
func reject(c *app.RequestContext, strange *rule.PathError) {
	c.Abort()
	c.Header("Cache-Control", "no-store")
	text, _ := json.Marshal(map[string]any{ // which cannot fail
		"type": "about:blank", "title": http.StatusText(strange.Status()), "status": strange.Status(),
		"detail": "This request was refused because " + strange.Error() + ".",
	})
	c.Data(strange.Status(), "application/problem+json", text)
}

// writer is hertz's response as an http.ResponseWriter.
type writer struct {
	c      *app.RequestContext
	header http.Header
}

func (w writer) Header() http.Header { return w.header }

func (w writer) WriteHeader(status int) {
	w.c.SetStatusCode(status)
	for name, values := range w.header {
		w.c.Header(name, values[0]) // Diana sets one value for each
	}
}

func (w writer) Write(b []byte) (int, error) { return w.c.Write(b) }
