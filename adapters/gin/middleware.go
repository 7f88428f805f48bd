// SPDX-License-Identifier: MIT

// Package dianagin limits the requests of a gin router with Diana.
//
//	limiter, err := diana.Open("limits.yaml")
//	if err != nil {
//		log.Fatal(err)
//	}
//	router := gin.New()
//	router.Use(dianagin.Middleware(limiter), gin.Recovery())
//
// It uses [diana.Limiter.Serve], so it keeps all promises of [diana.Limiter.Handler]: a request can
// wait, be diverted or have a bandwidth, and it releases its slots when its handlers return or panic.
package dianagin

import (
	"bufio"
	"io"
	"net"
	"net/http"

	"github.com/gin-gonic/gin"

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
	Actor func(c *gin.Context) (kind, value string)

	// Refuse answers a refused request, in place of [diana.Options].Refuse and under the same terms.
	// The fields of the response are already set. Nil means the configured problem.
	Refuse func(c *gin.Context, d *diana.Decision)
}

// Middleware returns a middleware that evaluates the requests that reach it. A refused request reaches no
// later handler. The middleware works for a router, a group and a single route. A request must meet it
// only once: a second middleware of the same limiter charges the request again. Under algo C the request
// then competes with itself for slots.
//
// Middleware that decides about the response belongs behind this one, because a rule with charge counts
// the status that is known when this middleware returns. That status is also known if no handler writes
// a response. There are two exceptions. A request stays charged if a panic passes this middleware. It
// also stays charged if Context.Errors holds an error that an earlier middleware has still to answer.
func Middleware(limiter *diana.Limiter) gin.HandlerFunc { return Options{}.Middleware(limiter) }

// Middleware is like the function of that name, with these options.
func (o Options) Middleware(limiter *diana.Limiter) gin.HandlerFunc {
	return func(c *gin.Context) {
		var q diana.Request
		if o.Route {
			q.Path = c.FullPath()
		}
		r := c.Request
		if o.Actor != nil {
			if kind, value := o.Actor(c); kind != "" {
				r = diana.WithActor(r, kind, value)
			}
		}
		var refuse func(http.ResponseWriter, *http.Request, *diana.Decision)
		if o.Refuse != nil {
			refuse = func(_ http.ResponseWriter, _ *http.Request, d *diana.Decision) { o.Refuse(c, d) }
		}
		l := &later{Context: c} // one allocation, where a closure and what it changes take two
		if limiter.Serve(c.Writer, r, q, l, refuse); !l.called {
			c.Abort()
		}
	}
}

// later are the later handlers of a request.
type later struct {
	*gin.Context
	called bool
}

// ServeHTTP runs the handlers, which write their response through w.
func (l *later) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	l.called = true
	c, original := l.Context, l.Writer
	c.Request = r
	if w == http.ResponseWriter(original) {
		c.Next() // nothing watches the response
		return
	}
	c.Writer = &writer{original, w}
	defer func() { c.Writer = original }()
	c.Next()
	if !original.Written() && len(c.Errors) == 0 {
		w.WriteHeader(original.Status()) // gin has it, and sends it after the last middleware
	}
}

// writer is the writer of a response that Diana watches. Gin's writer keeps the status until the first
// byte is written. Diana then learns of it through watched, which passes all on to gin's writer.
type writer struct {
	gin.ResponseWriter
	watched http.ResponseWriter
}

// WriteHeaderNow sends the header.
func (w *writer) WriteHeaderNow() {
	if !w.Written() {
		w.watched.WriteHeader(w.Status())
		w.ResponseWriter.WriteHeaderNow()
	}
}

func (w *writer) Write(b []byte) (int, error) {
	w.WriteHeaderNow()
	return w.watched.Write(b)
}

func (w *writer) WriteString(s string) (int, error) {
	w.WriteHeaderNow()
	return io.WriteString(w.watched, s)
}

// Flush sends what has been written.
func (w *writer) Flush() {
	w.WriteHeaderNow()
	_ = http.NewResponseController(w.watched).Flush()
}

// Hijack takes over the connection.
func (w *writer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return http.NewResponseController(w.watched).Hijack()
}

// Unwrap is for [http.ResponseController].
func (w *writer) Unwrap() http.ResponseWriter { return w.watched }
