// SPDX-License-Identifier: MIT

package gateway

import "testing"

// --descriptors names files, or one control plane.
func TestXDSFlag(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		paths []string
		want  string // the control plane, or the mistake
	}{
		{[]string{"limits.yaml", "config"}, ""},
		{[]string{"xds://localhost:18000/node"}, "xds://localhost:18000/node"},
		{[]string{"xdss://[::1]:18000/a/b"}, "xdss://[::1]:18000/a/b"},
		{[]string{"xds://localhost/node"}, `"xds://localhost/node", expected xds://HOST:PORT/NODE`},
		{[]string{"xds://localhost:18000/"}, `"xds://localhost:18000/", expected xds://HOST:PORT/NODE`},
		{[]string{"xds://u:p@h:1/n?x=y"}, `"xds://u:p@h:1/n?x=y", expected xds://HOST:PORT/NODE`},
		{[]string{"xds://%zz"}, `"xds://%zz", expected xds://HOST:PORT/NODE`},
		{[]string{"xds://h:1/n", "config"}, "found 2, expected a control plane alone, because its limits replace all others"},
	} {
		x, err := (&DecisionFlags{Descriptors: row.paths}).xds()
		got := ""
		if err != nil {
			got = err.Error()
		} else if x != nil {
			got = x.String()
		}
		if got != row.want || x != nil && (x.TLS != nil) != (row.want[:4] == "xdss") {
			t.Errorf("%q: %s, want %s", row.paths, got, row.want)
		}
	}
}
