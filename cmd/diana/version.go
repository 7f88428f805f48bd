// SPDX-License-Identifier: MIT

package main

import (
	"runtime"
	"runtime/debug"
)

// versionCommand tells which program this is.
type versionCommand struct{}

// Run prints what the Go toolchain has written into the program.
func (versionCommand) Run(o *output) error {
	info, _ := debug.ReadBuildInfo() // nil in a program built without modules
	o.printVersion(info)
	return o.failed
}

func (o *output) printVersion(info *debug.BuildInfo) {
	version, commit := "unknown", "unknown"
	changed := ""
	if info != nil {
		if info.Main.Version != "" {
			version = info.Main.Version
		}
		for _, s := range info.Settings {
			switch {
			case s.Key == "vcs.revision":
				commit = s.Value
			case s.Key == "vcs.modified" && s.Value == "true":
				changed = " (modified)"
			}
		}
	}
	o.printf("diana   %s\n", version)
	o.printf("commit  %s%s\n", commit, changed)
	o.printf("go      %s %s/%s\n", runtime.Version(), runtime.GOOS, runtime.GOARCH)
}
