// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"testing"

	"github.com/diana-limiter/diana/bench/rivals"
)

// The group does not measure a middleware that decides otherwise than its name says.
func TestCheckMiddleware(t *testing.T) {
	f := rivals.Frameworks()[0]
	good := oneRule(f, rivals.PerAddress, true)
	opensAs := func(m middleware) middleware {
		wrong := good
		wrong.open = m.open
		return wrong
	}
	fields, three := good, opensAs(oneRule(f, rivals.ForEvery, true))
	fields.fields, three.scope = false, rivals.ThreeRules
	for _, tc := range []struct {
		name string
		m    middleware
		ok   bool
	}{
		{"as it says", good, true},
		{"refuses nothing", opensAs(floorIn(f, "", false, f.Bare)), false},
		{"refuses other clients", opensAs(oneRule(f, rivals.ForEvery, true)), false},
		{"has no fields", opensAs(oneRule(f, rivals.PerAddress, false)), false},
		{"has fields", fields, false},
		{"has one rule of three", three, false},
	} {
		if err := tc.m.check(context.Background()); (err == nil) != tc.ok {
			t.Errorf("%s: %v", tc.name, err)
		}
	}
}
