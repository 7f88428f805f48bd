// SPDX-License-Identifier: MIT

// Modules keeps the modules of the repository in agreement, so that "go get" works for each of them.
// The first argument is a command, and -C names the repository's folder:
//
//	modules list             prints the paths of the published modules
//	modules check [VERSION]  fails if the go.mod files or go.work disagree, or require another version
//	modules set VERSION      writes VERSION into every go.mod file and into go.work
//	modules tidy [-w]        fails if a go.mod or go.sum file is not tidy; -w tidies it
//	modules proxy DIR        writes the published modules into DIR as a module proxy; prints their version
//	modules api [-w]         fails if a published API changed incompatibly, or prints how many modules agree;
//	                         -w records the API of today
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

var errUsage = errors.New("usage: modules [-C DIR] list | check [VERSION] | set VERSION | tidy [-w] | proxy DIR | api [-w]")

// run runs one command.
func run(args []string) error {
	flags := flag.NewFlagSet("modules", flag.ContinueOnError)
	root := flags.String("C", ".", "the repository's folder")
	if err := flags.Parse(args); err != nil {
		return err
	}
	command, args := flags.Arg(0), flags.Args()[min(1, flags.NArg()):]
	t, err := load(*root)
	if err != nil {
		return err
	}
	write := len(args) == 1 && args[0] == "-w"
	switch {
	case command == "list" && len(args) == 0:
		for _, m := range t.published() {
			fmt.Println(m.path())
		}
	case command == "check" && len(args) == 0:
		version, err := t.version()
		if err != nil {
			return err
		}
		return t.check(version)
	case command == "check" && len(args) == 1:
		return t.check(args[0])
	case command == "set" && len(args) == 1:
		return t.set(args[0])
	case command == "tidy" && (write || len(args) == 0):
		return tidy(t, write)
	case command == "proxy" && len(args) == 1:
		return printProxy(t, args[0])
	case command == "api" && write:
		return recordAPI(t)
	case command == "api" && len(args) == 0:
		return checkAPI(t)
	default:
		return errUsage
	}
	return nil
}
