// SPDX-License-Identifier: MIT

package config

import (
	"strings"
	"testing"

	"github.com/diana-limiter/diana/rule"
)

// A program names its stores, and rules use them as scopes.
func TestScopes(t *testing.T) {
	t.Parallel()
	v := words()
	v.Scopes = []string{"region"}
	for scope, want := range map[string]string{
		"local":                     "",
		"region":                    "",
		"regional":                  "x:1:34: scope: found \"regional\" (did you mean region?), expected local, global or region",
		"region, on_error: open":    "",
		"local, on_error: open":     "on_error has no meaning for scope local; it is for scope global, region",
		"global, on_error: open":    "",
		"Region":                    "expected local, global or region",
		"[region]":                  "expected local, global or region, found a list",
		"region, redis: localhost":  "unknown key",
		"region, wait: 1s, mode: x": "mode: expected",
	} {
		c, err := v.Parse("x", []byte("{url: /, rules: [{rpu: 1, scope: "+scope+"}]}"))
		switch {
		case want == "" && err != nil, want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: %v, want %q", scope, err, want)
		case err == nil && !strings.HasPrefix(scope, c.Limits[0].Rules[0].Scope.String()):
			t.Errorf("%s: %v", scope, c.Limits[0].Rules[0].Scope)
		}
	}
	if schema := string(v.Schema()); !strings.Contains(schema, `"region"`) {
		t.Error("the schema does not list the scope of the program")
	}
	if _, err := words().Parse("x", []byte("{url: /, rules: [{rpu: 1, scope: region}]}")); err == nil {
		t.Error("a program without the scope accepts it")
	}
}

// A program that brings the store for "global" needs no redis, so nothing warns of a missing one.
func TestGlobalScopeOfProgram(t *testing.T) {
	t.Parallel()
	v := words()
	for _, want := range []int{1, 0} {
		c, err := v.Parse("x", []byte("{url: /, rules: [{rpu: 1, scope: global}]}"))
		if err != nil || len(c.Warnings) != want || c.Limits[0].Rules[0].Scope != rule.Global {
			t.Errorf("%v, %v, want %d warnings", c.Warnings, err, want)
		}
		v.Scopes = []string{"global"}
	}
}

// Filled keeps what is given, also an empty list of sources.
func TestFilled(t *testing.T) {
	t.Parallel()
	v := words()
	c := (&Config{MaxKeys: 5, Response: Response{Status: 429}, Identity: rule.Identity{Account: []rule.Actor{}}, Redis: &Redis{Prefix: "p"}}).Filled(v)
	if c.MaxKeys != 5 || c.Response.Status != 429 || len(c.Identity.Account) != 0 || len(c.Identity.Device) != 1 ||
		c.Redis.Prefix != "p" || c.Redis.Timeout != timeoutForm.otherwise {
		t.Errorf("%+v %+v", c, c.Redis)
	}
	if c = new(Config).Filled(v); c.MaxKeys != 1_000_000 || c.Response.Status != 503 || c.Redis != nil {
		t.Errorf("%+v", c)
	}
}
