// SPDX-License-Identifier: MIT

package main

import (
	"runtime"
	"runtime/debug"
)

// versionCommand prints the version of this program.
type versionCommand struct{}

// Run prints the version that the Go toolchain has written into the program.
func (versionCommand) Run(o *output) error {
	info, _ := debug.ReadBuildInfo() // nil in a program built without modules
	printVersion(o, info)
	return o.failed
}

func printVersion(o *output, info *debug.BuildInfo) {
	version, commit, changed := build(info)
	o.printf("diana   %s\n", version)
	if changed {
		commit += " (modified)"
	}
	o.printf("commit  %s\n", commit)
	o.printf("go      %s %s/%s\n", runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

// build returns the version and the commit of this program, or "unknown", and whether files had
// changed since the commit.
func build(info *debug.BuildInfo) (version, commit string, changed bool) {
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
