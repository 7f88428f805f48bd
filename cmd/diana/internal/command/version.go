// SPDX-License-Identifier: MIT

package command

import "runtime/debug"

// Build returns the version and the commit of this program, or "unknown", and whether files had
// changed since the commit.
func Build(info *debug.BuildInfo) (version, commit string, changed bool) {
	version, commit = "unknown", "unknown"
	if info == nil {
		return version, commit, false
	}
	if info.Main.Version != "" {
		version = info.Main.Version
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			commit = s.Value
		case "vcs.modified":
			changed = s.Value == "true"
		}
	}
	return version, commit, changed
}
