// SPDX-License-Identifier: MIT

package dianafiber_test

import (
	"net"
	"testing"

	"github.com/gofiber/fiber/v3"
	"github.com/valyala/fasthttp"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/adapters/fiber"
	"github.com/diana-limiter/diana/config"
)

// Fields are found by any spelling of their names, if fiber leaves the names as they are.
func TestNamesAsWritten(t *testing.T) {
	t.Parallel()
	serve, request := serving(t, "header:X-Account-Id", "2")
	for i, name := range []string{"X-Account-Id", "x-account-id", "X-ACCOUNT-ID"} {
		request.Request.Header.Reset()
		request.Request.Header.DisableNormalizing()
		request.Request.Header.Set(name, "ann")
		request.Request.SetRequestURI("/")
		request.Response.Reset()
		serve(request)
		if got, want := request.Response.StatusCode(), []int{204, 204, 503}[i]; got != want {
			t.Errorf("%s: status %d, want %d", name, got, want)
		}
	}
}

// BenchmarkMiddleware is a request without a socket, under a rule by a field and by an address.
func BenchmarkMiddleware(b *testing.B) {
	for _, actor := range []string{"header:X-Account-Id", "ip"} {
		b.Run(actor, func(b *testing.B) {
			serve, request := serving(b, actor, "1000000000")
			h := &request.Request.Header
			h.Set("X-Account-Id", "ann")
			h.Set("User-Agent", "bench")
			h.Set("Accept", "*/*")
			h.Set("Accept-Encoding", "gzip")
			h.SetHost("localhost")
			b.ReportAllocs()
			for b.Loop() {
				request.Response.Reset()
				serve(request)
			}
		})
	}
}

// serving returns the handler of an app with the middleware under one rule, and a request.
func serving(t testing.TB, actor, rpu string) (fasthttp.RequestHandler, *fasthttp.RequestCtx) {
	t.Helper()
	c, err := config.Parse("limits.yaml", []byte("{url: /, rules: [{actor: '"+actor+"', unit: day, rpu: "+rpu+"}]}"))
	if err != nil {
		t.Fatal(err)
	}
	l, err := diana.Options{}.New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	app := fiber.New()
	app.Use(dianafiber.Middleware(l))
	app.Get("/", func(c fiber.Ctx) error { return c.SendStatus(fiber.StatusNoContent) })
	request := &fasthttp.RequestCtx{}
	request.Init(&fasthttp.Request{}, &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 5000}, nil)
	request.Request.SetRequestURI("/")
	return app.Handler(), request
}
