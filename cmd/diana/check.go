// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"fmt"

	"github.com/diana-limiter/diana/cmd/diana/internal/versions"
	"github.com/diana-limiter/diana/config"
	"github.com/diana-limiter/diana/internal/plan"
)

// checkCommand validates configuration files.
type checkCommand struct {
	Remote      bool     `help:"Also validate the document in the configuration centre that a file names."`
	Descriptors []string `sep:"none" placeholder:"PATH" help:"Validate files of envoyproxy/ratelimit instead, all together: a file, or a directory of *.yaml and *.yml. May be repeated."`
	Merge       bool     `name:"descriptors-merge" help:"Join files of --descriptors that have the same domain."`
	Files       []string `arg:"" name:"file" optional:"" help:"Configuration file, or with --descriptors one more path."`
}

// Help is the end of what --help prints.
func (checkCommand) Help() string {
	return `Diana prints every error as FILE:LINE:COLUMN: message. The exit status is 1 if there is an error; warnings do not change it.`
}

// Run checks every file, also after one that is not valid.
func (c *checkCommand) Run(ctx context.Context, o *output) error {
	if err := named(append(c.Descriptors, c.Files...)...); err != nil {
		return err
	}
	switch {
	case len(c.Descriptors) > 0 && c.Remote:
		return usagef("--remote has no meaning with --descriptors")
	case len(c.Descriptors) > 0:
		return checkDescriptors(o, append(c.Descriptors, c.Files...), c.Merge)
	case len(c.Files) == 0:
		return usagef(`expected "<file> ..."`)
	}
	var result error
	for _, file := range c.Files {
		local, err := c.checkFile(o, settings{file: file})
		if err == nil && c.Remote {
			err = c.checkRemote(ctx, o, settings{file: file}, local)
		}
		if err != nil {
			result = err
		}
	}
	return result
}

// checkFile checks a file, and returns its configuration.
func (*checkCommand) checkFile(o *output, s settings) (*config.Config, error) {
	loaded, err := s.read()
	if err != nil {
		err = o.faults(s, err)
		if isDescriptors(s.file) {
			o.complainf("%s is a file of envoyproxy/ratelimit, see diana check --descriptors\n", s)
		}
		return nil, err
	}
	set, err := compile(loaded)
	if err != nil {
		return nil, o.faults(s, err)
	}
	for _, w := range loaded.Warnings {
		o.fault(w, "warning: ")
	}
	o.printf("%s: ok, %s\n", s, rules(len(set.Rules)))
	return loaded, nil
}

// checkRemote checks the document in the configuration centre that a configuration names.
func (*checkCommand) checkRemote(ctx context.Context, o *output, s settings, local *config.Config) error {
	from, err := versions.Open(vocabulary(), local)
	if err != nil {
		return o.faults(s, err)
	}
	defer from.Close()
	d, err := from.Get(ctx)
	if err != nil {
		o.complainf("%v\n", err)
		return errReported
	}
	if !d.Exists {
		o.printf("%s: no document; the local limits apply\n", from.Where)
		return nil
	}
	whole, err := from.Compose(from.Where, d.Text)
	if err != nil {
		return o.faults(settings{file: from.Where}, err)
	}
	set, err := compile(whole)
	if err != nil {
		return o.faults(settings{file: from.Where}, err)
	}
	for _, w := range whole.Warnings {
		if w.File == from.Where {
			o.fault(w, "warning: ")
		}
	}
	o.printf("%s: ok, %s\n", from.Where, rules(len(set.Rules)))
	return nil
}

// compile returns the rules of a configuration, ready to evaluate requests.
func compile(c *config.Config) (*plan.Set, error) {
	return plan.Compile(c.Limits, c.Identity, c.Paths, vocabulary().Actors)
}

func rules(n int) string {
	if n == 1 {
		return "1 rule"
	}
	return fmt.Sprintf("%d rules", n)
}
