// SPDX-License-Identifier: MIT

package main

import (
	"github.com/diana-limiter/diana/config"

	"github.com/diana-limiter/diana/config/diff"
)

// diffCommand tells how two configurations differ.
type diffCommand struct {
	Old string `arg:"" help:"Configuration file."`
	New string `arg:"" help:"Configuration file that is to take its place."`
}

// Help is the end of what --help prints.
func (diffCommand) Help() string {
	return `Each may be a document of a configuration centre too. Beside a file with settings its rules are compared with those of that file, and the settings stay. The exit status is 1 if one is not valid.`
}

// Run prints a difference a line.
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

// sameSettings gives a configuration that has no settings those of the other.
func (o *output) sameSettings(a, b *config.Config) (*config.Config, *config.Config) {
	switch {
	case b.HasSettings() && !a.HasSettings():
		o.complainf(onlyRules, a.Source)
		a = config.Compose(b, a)
	case a.HasSettings() && !b.HasSettings():
		o.complainf(onlyRules, b.Source)
		b = config.Compose(a, b)
	}
	return a, b
}

// differences prints how two configurations differ.
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

// load returns the configuration in a file, or tells what is wrong with it.
func (o *output) load(file string) (*config.Config, error) {
	c, err := settings{file}.load()
	if err != nil {
		return nil, o.faults(settings{file}, err)
	}
	return c, nil
}
