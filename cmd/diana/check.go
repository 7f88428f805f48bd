// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"fmt"

	"github.com/diana-limiter/diana/config"
	"github.com/diana-limiter/diana/internal/plan"
)

// checkCommand validates configuration files.
type checkCommand struct {
	Remote bool     `help:"Also validate the document in the configuration centre that a file names."`
	Files  []string `arg:"" name:"file" help:"Configuration file."`
}

// Help is the end of what --help prints.
func (checkCommand) Help() string {
	return `Every error is printed as FILE:LINE:COLUMN: message. The exit status is 1 if there is an error; warnings do not change it.`
}

// Run checks every file, also after one that is not valid.
func (c *checkCommand) Run(ctx context.Context, o *output) error {
	if err := named(c.Files...); err != nil {
		return err
	}
	var result error
	for _, file := range c.Files {
		local, err := o.check(settings{file})
		if err == nil && c.Remote {
			err = o.checkRemote(ctx, settings{file}, local)
		}
		if err != nil {
			result = err
		}
	}
	return result
}

func (o *output) check(s settings) (*config.Config, error) {
	c, err := s.load()
	if err != nil {
		return nil, o.faults(s, err)
	}
	set, err := compile(c)
	if err != nil {
		return nil, o.faults(s, err)
	}
	for _, w := range c.Warnings {
		o.fault(w, "warning: ")
	}
	o.printf("%s: ok, %s\n", s, rules(len(set.Rules)))
	return c, nil
}

// checkRemote checks the document in the configuration centre that a configuration names.
func (o *output) checkRemote(ctx context.Context, s settings, local *config.Config) error {
	c, err := openRemote(local)
	if err != nil {
		return o.faults(s, err)
	}
	defer c.close()
	d, err := c.get(ctx)
	if err != nil {
		o.complainf("%v\n", err)
		return errReported
	}
	if !d.Exists {
		o.printf("%s: no document; the local limits apply\n", c.where)
		return nil
	}
	whole, n, err := c.compose(c.where, d.Text)
	if err != nil {
		return o.faults(settings{c.where}, err)
	}
	for _, w := range whole.Warnings {
		if w.File == c.where {
			o.fault(w, "warning: ")
		}
	}
	o.printf("%s: ok, %s\n", c.where, rules(n))
	return nil
}

func compile(c *config.Config) (*plan.Set, error) {
	return plan.Compile(c.Limits, c.Identity, c.Paths, vocabulary().Actors)
}

func rules(n int) string {
	if n == 1 {
		return "1 rule"
	}
	return fmt.Sprintf("%d rules", n)
}
