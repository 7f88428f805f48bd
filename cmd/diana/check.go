// SPDX-License-Identifier: MIT

package main

import (
	"fmt"

	"github.com/diana-limiter/diana/config"
	"github.com/diana-limiter/diana/rule"
)

// checkCommand validates configuration files.
type checkCommand struct {
	Files []string `arg:"" name:"file" help:"Configuration file."`
}

// Help is the end of what --help prints.
func (checkCommand) Help() string {
	return `Every error is printed as FILE:LINE:COLUMN: message. The exit status is 1 if there is one; warnings do not change it.`
}

// Run checks every file, also after one that is bad.
func (c *checkCommand) Run(o *output) error {
	var result error
	for _, file := range c.Files {
		if err := o.check(settings{file}); err != nil {
			result = err
		}
	}
	return result
}

func (o *output) check(s settings) error {
	c, err := s.load()
	if err != nil {
		return o.faults(s, err)
	}
	set, err := compile(c)
	if err != nil {
		return o.faults(s, err)
	}
	for _, w := range c.Warnings {
		o.fault(w, "warning: ")
	}
	o.printf("%s: ok, %s\n", s, rules(len(set.Rules)))
	return nil
}

func compile(c *config.Config) (*rule.Set, error) {
	return rule.Compile(c.Limits, c.Identity, vocabulary())
}

func rules(n int) string {
	if n == 1 {
		return "1 rule"
	}
	return fmt.Sprintf("%d rules", n)
}
