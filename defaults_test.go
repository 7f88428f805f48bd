// SPDX-License-Identifier: MIT

package diana_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/config"
	"github.com/diana-limiter/diana/limit"
	"github.com/diana-limiter/diana/rule"
)

// A program can build a configuration itself. Its zero values are the defaults of a file.
func TestHandBuiltConfiguration(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := &config.Config{Limits: []rule.Entry{{
			URL:   rule.Pattern{Path: "/"},
			Rules: []rule.Rule{{Actor: []rule.Actor{{Kind: "account"}}, Limit: limit.Limit{N: 1, Unit: time.Hour}}},
		}}}
		l, err := diana.Options{}.New(c)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		h := l.Handler(http.NotFoundHandler())
		ask := func(account string) *httptest.ResponseRecorder {
			w, r := httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil)
			r.Header.Set("X-Account-Id", account)
			h.ServeHTTP(w, r)
			return w
		}
		if w := ask("ann"); w.Code != http.StatusNotFound || w.Header().Get("RateLimit") == "" {
			t.Errorf("the first request: %d, %v", w.Code, w.Header())
		}
		if w := ask("ann"); w.Code != http.StatusServiceUnavailable {
			t.Errorf("over the limit: %d", w.Code)
		}
		if w := ask("bob"); w.Code != http.StatusNotFound {
			t.Errorf("another account: %d", w.Code)
		}
		if got := l.Config(); got.MaxKeys != 1_000_000 || got.Limits[0].Rules[0].Algorithm.Name() != "TB" {
			t.Errorf("%+v", got)
		}
		if c.MaxKeys != 0 || c.Limits[0].Rules[0].Algorithm.New != nil {
			t.Errorf("New changed the program's configuration: %+v", c)
		}
	})
}

// A configuration that cannot be compiled is an error that names the rule.
func TestHandBuiltMistakes(t *testing.T) {
	t.Parallel()
	for want, r := range map[string]rule.Rule{
		`rule "no unit": limit: unit is 0s`:      {Name: "no unit", Limit: limit.Limit{N: 1}},
		`rule "/ all W 1/0s": limit: unit is 0s`: {Algorithm: limit.FixedWindow(), Limit: limit.Limit{N: 1}},
		`rule "x": unknown actor "ghost"`:        {Name: "x", Limit: limit.Limit{N: 1, Unit: time.Second}, Actor: []rule.Actor{{Kind: "ghost"}}},
	} {
		c := &config.Config{Limits: []rule.Entry{{URL: rule.Pattern{Path: "/"}, Rules: []rule.Rule{r}}}}
		if _, err := (diana.Options{}).New(c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// An empty configuration limits nothing.
func TestHandBuiltEmptyLimitsNothing(t *testing.T) {
	t.Parallel()
	l, err := diana.Options{}.New(&config.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if d, err := l.Take(context.Background(), diana.Request{Path: "/"}); err != nil || !d.Allowed {
		t.Errorf("%+v, %v", d, err)
	}
}
