// SPDX-License-Identifier: MIT

package main

import (
	"runtime"
	"runtime/debug"

	"github.com/diana-limiter/diana/cmd/diana/internal/command"
)

// versionCommand prints the version of this program.
type versionCommand struct{}

// Run prints the version that the Go toolchain has written into the program.
func (versionCommand) Run(o *command.Output) error {
	info, _ := debug.ReadBuildInfo() // nil in a program built without modules
	printVersion(o, info)
	return o.Failed
}

func printVersion(o *command.Output, info *debug.BuildInfo) {
	version, commit, changed := command.Build(info)
	o.Printf("diana   %s\n", version)
	if changed {
		commit += " (modified)"
	}
	o.Printf("commit  %s\n", commit)
	o.Printf("go      %s %s/%s\n", runtime.Version(), runtime.GOOS, runtime.GOARCH)
}
