// SPDX-License-Identifier: MIT

package dianafiber_test

import (
	"net"
	"net/http"
	"testing"

	"github.com/gofiber/fiber/v3"
	"github.com/valyala/fasthttp"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/adapters/adaptertest"
	"github.com/diana-limiter/diana/adapters/fiber"
	"github.com/diana-limiter/diana/config"
)

// Fields are found by any spelling of their names, if fiber leaves the names as they are.
func TestNamesAsWritten(t *testing.T) {
	t.Parallel()
	serve, request := serving(t, "{url: /, rules: [{actor: 'header:X-Account-Id', unit: day, rpu: 2}]}")
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

// The handler does not see the key of a client, by any spelling of the field's name. Further limiters know who it is.
func TestCredentialsAreRemoved(t *testing.T) {
	t.Parallel()
	app := fiber.New()
	app.Use(dianafiber.Middleware(adaptertest.Keyed(t)), dianafiber.Middleware(adaptertest.Keyed(t)))
	app.Get("/", func(c fiber.Ctx) error {
		seen := http.Header{}
		for name, value := range c.RequestCtx().Request.Header.All() {
			seen.Add(string(name), string(value))
		}
		adaptertest.CheckUpstream(t, seen)
		return c.SendStatus(fiber.StatusNoContent)
	})
	for _, name := range []string{adaptertest.Key, "x-api-key"} {
		request := &fasthttp.RequestCtx{}
		request.Request.Header.DisableNormalizing()
		request.Request.SetRequestURI("/")
		request.Request.Header.Set(name, adaptertest.KeyValue)
		request.Request.Header.Set("x-upstream", "of the client")
		if app.Handler()(request); request.Response.StatusCode() != http.StatusNoContent {
			t.Errorf("%s: status %d", name, request.Response.StatusCode())
		}
	}
}

// serving returns the handler of an app with the middleware under one rule, and a request.
func serving(t *testing.T, limits string) (fasthttp.RequestHandler, *fasthttp.RequestCtx) {
	t.Helper()
	c, err := config.Parse("limits.yaml", []byte(limits))
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
