// SPDX-License-Identifier: MIT

package dianahertz_test

import (
	"context"
	"testing"

	"github.com/cloudwego/hertz/pkg/app"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/adapters/hertz"
	"github.com/diana-limiter/diana/config"
)

// Fields are found by any spelling of their names, if hertz leaves the names as they are.
func TestNamesAsWritten(t *testing.T) {
	t.Parallel()
	serve := serving(t, "header:X-Account-Id", "2")
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

// BenchmarkMiddleware is a request without a socket, under a rule by a field and by an address.
func BenchmarkMiddleware(b *testing.B) {
	for _, actor := range []string{"header:X-Account-Id", "ip"} {
		b.Run(actor, func(b *testing.B) {
			serve := serving(b, actor, "1000000000")
			c := app.NewContext(0)
			for _, field := range []string{"X-Account-Id", "User-Agent", "Accept", "Accept-Encoding", "Host"} {
				c.Request.Header.Set(field, "text")
			}
			c.Request.SetRequestURI("/")
			b.ReportAllocs()
			for b.Loop() {
				c.SetIndex(-1)
				c.Response.Reset()
				serve(context.Background(), c)
			}
		})
	}
}

// serving returns the middleware under one rule.
func serving(t testing.TB, actor, rpu string) app.HandlerFunc {
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
	return dianahertz.Middleware(l)
}
