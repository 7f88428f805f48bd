// SPDX-License-Identifier: MIT

package main

import (
	"github.com/diana-limiter/diana/cmd/diana/internal/command"
	"github.com/diana-limiter/diana/config"
	"github.com/diana-limiter/diana/config/diff"
)

// diffCommand prints the differences between two configurations.
type diffCommand struct {
	Old string `arg:"" help:"Configuration file. - is standard input."`
	New string `arg:"" help:"Configuration file to compare with it. - is standard input."`
}

// Help is the end of what --help prints.
func (diffCommand) Help() string {
	return `Either file may be a document of a configuration centre. If only one of them has settings, Diana compares only the rules. The exit status is 1 if a file is not valid.`
}

// Run prints one difference in each line.
func (c *diffCommand) Run(o *command.Output) error {
	if err := command.Named(c.Old, c.New); err != nil {
		return err
	}
	old, oldErr := command.Settings{File: c.Old}.Load(o)
	now, nowErr := command.Settings{File: c.New}.Load(o)
	if oldErr != nil || nowErr != nil {
		return command.ErrReported
	}
	old, now = sameSettings(o, old, now)
	printDifferences(o, old, now)
	return nil
}

// sameSettings returns both configurations. One without settings gets those of the other, and a
// diagnostic says so.
func sameSettings(o *command.Output, a, b *config.Config) (*config.Config, *config.Config) {
	switch {
	case b.HasSettings() && !a.HasSettings():
		o.Complainf(onlyRules, a.Source)
		a = b.WithRemote(a)
	case a.HasSettings() && !b.HasSettings():
		o.Complainf(onlyRules, b.Source)
		b = a.WithRemote(b)
	}
	return a, b
}

// printDifferences prints the differences between two configurations.
func printDifferences(o *command.Output, old, now *config.Config) {
	changes := diff.Configs(old, now)
	for _, change := range changes {
		o.Printf("%s\n", change)
	}
	if len(changes) == 0 {
		o.Printf("no difference\n")
	}
}

const onlyRules = "diana: %s has no settings, so only rules are compared\n"
