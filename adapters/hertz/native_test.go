// SPDX-License-Identifier: MIT

package dianahertz_test

import (
	"context"
	"net/http"
	"testing"

	"github.com/cloudwego/hertz/pkg/app"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/adapters/adaptertest"
	"github.com/diana-limiter/diana/adapters/hertz"
	"github.com/diana-limiter/diana/config"
)

// Fields are found by any spelling of their names, if hertz leaves the names as they are.
func TestNamesAsWritten(t *testing.T) {
	t.Parallel()
	serve := serving(t, "{url: /, rules: [{actor: 'header:X-Account-Id', unit: day, rpu: 2}]}")
	for i, name := range []string{"X-Account-Id", "x-account-id", "X-ACCOUNT-ID"} {
		c := app.NewContext(0)
		c.Request.Header.DisableNormalizing()
		c.Request.Header.Set(name, "ann")
		c.Request.SetRequestURI("/")
		serve(context.Background(), c)
		if got, want := c.Response.StatusCode(), []int{200, 200, 503}[i]; got != want {
			t.Errorf("%s: status %d, want %d", name, got, want)
		}
	}
}

// The handler does not see the key of a client, by any spelling of the field's name. Further limiters know who it is.
func TestCredentialsAreRemoved(t *testing.T) {
	t.Parallel()
	handlers := app.HandlersChain{
		dianahertz.Middleware(adaptertest.Keyed(t)), dianahertz.Middleware(adaptertest.Keyed(t)),
		func(_ context.Context, c *app.RequestContext) {
			seen := http.Header{}
			c.Request.Header.VisitAll(func(name, value []byte) { seen.Add(string(name), string(value)) })
			adaptertest.CheckUpstream(t, seen)
			c.SetStatusCode(http.StatusNoContent)
		},
	}
	for _, name := range []string{adaptertest.Key, "x-api-key"} {
		c := app.NewContext(0)
		c.SetHandlers(handlers)
		c.Request.Header.DisableNormalizing()
		c.Request.SetRequestURI("/")
		c.Request.Header.Set(name, adaptertest.KeyValue)
		c.Request.Header.Set("x-upstream", "of the client")
		if c.Next(context.Background()); c.Response.StatusCode() != http.StatusNoContent {
			t.Errorf("%s: status %d", name, c.Response.StatusCode())
		}
	}
}

// serving returns the middleware under one rule.
func serving(t *testing.T, limits string) app.HandlerFunc {
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
	return dianahertz.Middleware(l)
}
