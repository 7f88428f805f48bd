// SPDX-License-Identifier: MIT

package plan

import (
	"strings"
	"testing"

	"github.com/diana-limiter/diana/internal/actors"
	"github.com/diana-limiter/diana/internal/bounds"
	"github.com/diana-limiter/diana/rule"
)

// FuzzField is a field of two lines, which are a value, a cost or a host.
func FuzzField(f *testing.F) {
	find := actors.Kinds()[0].Find // of a header
	f.Fuzz(func(t *testing.T, a, b string) {
		r := sent("", "X-Key", a, "X-Key", b).HTTP
		if got := find(r, "X-Key"); got != rule.Unclear && (a != b || got != strings.Trim(a, " \t")) {
			t.Errorf("%q and %q are %q", a, b, got)
		}
		s := Set{}
		costly := Rule{Rule: &rule.Rule{Cost: rule.Cost{Header: "X-Key", Client: true}}}
		cost := s.CostOf(&costly, &rule.Request{HTTP: r})
		for _, line := range []string{a, b} {
			r.Header["X-Key"] = []string{line}
			if alone := s.CostOf(&costly, &rule.Request{HTTP: r}); alone > cost || alone < 1 || cost > bounds.MaxCost {
				t.Errorf("%q costs %d, and %q with %q %d", line, alone, a, b, cost)
			}
		}
		host := actors.Host(a)
		if isASCII(a) && actors.Host(strings.ToUpper(a)) != host {
			t.Errorf("%q is the host %q, and %q in upper case", a, host, actors.Host(strings.ToUpper(a)))
		}
		if !strings.ContainsAny(a, ":]") && (actors.Host(a+":080") != host || actors.Host(a+":") != host || !strings.HasSuffix(a, ".") && actors.Host(a+".:443") != host) {
			t.Errorf("%q is the host %q, and another with a port", a, host)
		}
	})
}

func isASCII(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool { return r > '~' }) < 0
}
