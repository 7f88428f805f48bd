// SPDX-License-Identifier: MIT

package dianaotel

import (
	"runtime/debug"
	"testing"
)

// The scope has the version of this module, and neither that of the program nor that of Diana.
func TestVersion(t *testing.T) {
	t.Parallel()
	deps := func(path string) *debug.BuildInfo {
		return &debug.BuildInfo{
			Main: debug.Module{Path: "example.com/program", Version: "v3.0.0"},
			Deps: []*debug.Module{{Path: "github.com/diana-limiter/diana", Version: "v2.0.0"}, {Path: path, Version: "v1.2.3-rc.1"}},
		}
	}
	for _, row := range []struct {
		info *debug.BuildInfo
		want string
	}{
		{deps(scope), "1.2.3-rc.1"},
		{deps(scope + "/other"), ""},
		{nil, ""},
	} {
		if got := versionIn(row.info); got != row.want {
			t.Errorf("%q, want %q", got, row.want)
		}
	}
}
