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
	return `Either file may be a document of a configuration centre. If only one of them has settings, the rules alone are compared. The exit status is 1 if one is not valid.`
}

// Run prints one difference in each line.
func (c *diffCommand) Run(o *output) error {
	if err := named(c.Old, c.New); err != nil {
		return err
	}
	old, oldErr := o.load(c.Old)
	now, nowErr := o.load(c.New)
	if oldErr != nil || nowErr != nil {
		return errReported
	}
	o.differences(o.sameSettings(old, now))
	return nil
}

// sameSettings returns both configurations. One without settings gets those of the other.
func (o *output) sameSettings(a, b *config.Config) (*config.Config, *config.Config) {
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

// differences prints the differences between two configurations.
func (o *output) differences(old, now *config.Config) {
	changes := diff.Configs(old, now)
	for _, change := range changes {
		o.printf("%s\n", change)
	}
	if len(changes) == 0 {
		o.printf("no difference\n")
	}
}

const onlyRules = "diana: %s has no settings, so only rules are compared\n"

// load returns the configuration in a file. It prints the errors of one that is not valid.
func (o *output) load(file string) (*config.Config, error) {
	c, err := settings{file}.load()
	if err != nil {
		return nil, o.faults(settings{file}, err)
	}
	return c, nil
}
