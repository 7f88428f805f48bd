// SPDX-License-Identifier: MIT

package simulate

import (
	"testing"

	"github.com/diana-limiter/diana/cmd/diana/internal/weblog"
)

// A difference names the actors that the entries name, not the address that a rule falls back to.
func TestDifferenceNamesActors(t *testing.T) {
	t.Parallel()
	const one, two = "limits: [{url: /, rules: [{name: a, actor: account, unit: day, rpu: 1}]}]", "limits: [{url: /, rules: [{name: a, actor: account, unit: day, rpu: 2}]}]"
	c := NewComparison(&weblog.Names{}, newCount(t, two), newCount(t, one))
	for range 2 {
		if _, err := c.Play(&weblog.Entry{Start: 1e15, Method: "GET", Target: "/", Account: "ann"}); err != nil {
			t.Fatal(err)
		}
	}
	only := c.Report([]weblog.File{{Name: "log"}}).OnlyAgainst
	if only == nil || only.Requests != 1 || len(only.Rules) != 1 || len(only.Rules[0].Most) != 1 || only.Rules[0].Most[0].Actor != "header:X-Account-Id=3:ann;" {
		t.Errorf("%+v", only)
	}
}
