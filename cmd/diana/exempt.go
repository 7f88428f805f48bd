// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"time"

	"github.com/diana-limiter/diana/cmd/diana/internal/command"
	"github.com/diana-limiter/diana/cmd/diana/internal/versions"
)

// exemptCommand exempts an actor from a rule of the remote configuration for a while.
type exemptCommand struct {
	Config  string        `placeholder:"FILE" help:"Configuration file that names the configuration centre. Default: diana.yaml."`
	Rule    string        `required:"" placeholder:"NAME" help:"Name of the rule."`
	Actors  []string      `name:"actor" required:"" sep:"none" placeholder:"VALUE" help:"The actor, such as ann, or an address. May be repeated."`
	For     time.Duration `required:"" placeholder:"TIME" help:"How long, from 1s to 8784h."`
	Comment string        `placeholder:"TEXT" help:"Why, for the list of versions."`
}

// Help is the end of what --help prints.
func (exemptCommand) Help() string {
	return `Diana adds an override with exempt: true and until: to the rule in the remote configuration, and leaves all else as it is. Every gateway applies it within a second, and it ends by itself. If the rule exempts the actor already, the end is replaced.

The actor is named as for diana reset. A rule that counts addresses, several actors or all can exempt an address alone. diana rollback ends an exemption early.`
}

// Run adds the exemption and pushes the document.
func (c *exemptCommand) Run(ctx context.Context, o *command.Output) error {
	if c.For < time.Second || c.For > versions.LongestExemption {
		return command.Usagef("--for: %v, expected 1s to %v", c.For, versions.LongestExemption)
	}
	to, err := openVersions(o, c.Config)
	if err != nil {
		return err
	}
	defer to.Close()
	d, err := to.Get(ctx)
	if err != nil {
		return err
	}
	e := versions.Exemption{Rule: c.Rule, Actor: c.Actors, Until: time.Now().Add(c.For)}
	text, who, err := to.Exempt(d.Text, e)
	if err != nil {
		return err
	}
	if c.Comment == "" {
		c.Comment = versions.Comment(c.Rule, who, e.Until)
	}
	version := versions.VersionOf(d)
	return push(ctx, o, to, to.Where, versions.Change{Text: text, Expect: &version, Comment: c.Comment, By: operator()})
}
