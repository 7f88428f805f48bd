// SPDX-License-Identifier: MIT

package main

import (
	"github.com/diana-limiter/diana/config"
	"github.com/diana-limiter/diana/config/diff"
)

// diffCommand prints the differences between two configurations.
type diffCommand struct {
	Old string `arg:"" help:"Configuration file."`
	New string `arg:"" help:"Configuration file to compare with it."`
}

// Help is the end of what --help prints.
func (diffCommand) Help() string {
	return `Either file may be a document of a configuration centre. If only one of them has settings, Diana compares only the rules. The exit status is 1 if a file is not valid.`
}

// Run prints one difference in each line.
func (c *diffCommand) Run(o *output) error {
	if err := named(c.Old, c.New); err != nil {
		return err
	}
	old, oldErr := settings{file: c.Old}.load(o)
	now, nowErr := settings{file: c.New}.load(o)
	if oldErr != nil || nowErr != nil {
		return errReported
	}
	old, now = sameSettings(o, old, now)
	printDifferences(o, old, now)
	return nil
}

// sameSettings returns both configurations. One without settings gets those of the other, and a
// diagnostic says so.
func sameSettings(o *output, a, b *config.Config) (*config.Config, *config.Config) {
	switch {
	case b.HasSettings() && !a.HasSettings():
		o.complainf(onlyRules, a.Source)
		a = b.WithRemote(a)
	case a.HasSettings() && !b.HasSettings():
		o.complainf(onlyRules, b.Source)
		b = a.WithRemote(b)
	}
	return a, b
}

// printDifferences prints the differences between two configurations.
func printDifferences(o *output, old, now *config.Config) {
	changes := diff.Configs(old, now)
	for _, change := range changes {
		o.printf("%s\n", change)
	}
	if len(changes) == 0 {
		o.printf("no difference\n")
	}
}

const onlyRules = "diana: %s has no settings, so only rules are compared\n"
