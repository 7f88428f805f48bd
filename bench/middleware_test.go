// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"testing"

	dianalib "github.com/diana-limiter/diana"
)

// The group does not measure a middleware that decides otherwise than its name says.
func TestCheckMiddleware(t *testing.T) {
	put := func(l *dianalib.Limiter) client { return httpClient(l.Handler(noContent)) }
	good := dianaIn(middlewareWorkload, perAddress, true, put)
	changed := func(change func(m *middleware)) middleware {
		m := good
		change(&m)
		return m
	}
	for _, tc := range []struct {
		name string
		m    middleware
		ok   bool
	}{
		{"as it says", good, true},
		{"refuses nothing", changed(func(m *middleware) { m.open = bareIn("", httpClient(noContent)).open }), false},
		{"refuses other clients", changed(func(m *middleware) { m.open = dianaIn("", forAll, true, put).open }), false},
		{"has no fields", changed(func(m *middleware) { m.open = dianaIn("", perAddress, false, put).open }), false},
		{"has fields", changed(func(m *middleware) { m.fields = false }), false},
		{"has one rule of three", changed(func(m *middleware) { m.scope, m.open = threeRules, dianaIn("", forAll, true, put).open }), false},
	} {
		if err := tc.m.check(context.Background()); (err == nil) != tc.ok {
			t.Errorf("%s: %v", tc.name, err)
		}
	}
}
