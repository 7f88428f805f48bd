// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/diana-limiter/diana/cmd/diana/internal/command"
	"github.com/diana-limiter/diana/cmd/diana/internal/versions"
)

// rollbackCommand puts an earlier version of the remote configuration in force.
type rollbackCommand struct {
	Config  string `placeholder:"FILE" help:"Configuration file that names the configuration centre. Default: diana.yaml."`
	Comment string `placeholder:"TEXT" help:"Why, for the list of versions."`
	List    bool   `help:"Print the versions and change nothing."`
	Yes     bool   `help:"Do not ask before rules vanish, stop refusing, or allow ten times as much."`
	Number  string `arg:"" optional:"" help:"Number of the version. Default: the one before the version in force."`
}

// Help is the end of what --help prints.
func (rollbackCommand) Help() string {
	return `The configuration centre keeps the last 20 versions under the key of the document and .versions. A rollback is a push of an old text, so it has a new number. Diana validates the text, and prints the differences.

Diana asks on the terminal as diana push does, see there. Without a terminal it does not ask, because a rollback may be urgent.`
}

// Run lists the versions, or pushes an old one.
func (c *rollbackCommand) Run(ctx context.Context, o *command.Output) error {
	if c.List && c.Number != "" {
		return command.Usagef("--list prints all versions, expected no number")
	}
	to, err := openVersions(o, c.Config)
	if err != nil {
		return err
	}
	defer to.Close()
	list, err := to.List(ctx)
	if err != nil {
		return err
	}
	if c.List {
		listVersions(o, list)
		return nil
	}
	number, err := c.number(list)
	if err != nil {
		return err
	}
	_, text, err := to.Find(ctx, number)
	if err != nil {
		return err
	}
	if c.Comment == "" {
		c.Comment = "rollback to version " + number
	}
	p, err := prepare(ctx, o, to, "version "+number, versions.Change{Text: text, Comment: c.Comment, By: operator()})
	if err != nil {
		return err
	}
	p.print(o)
	if !c.Yes {
		if err := confirm(ctx, p.risks()); err != nil && !errors.Is(err, command.ErrNoTerminal) {
			return err
		}
	}
	return p.write(ctx, o)
}

// number returns the number of the version that must be put in force.
func (c *rollbackCommand) number(list []versions.Version) (string, error) {
	if c.Number != "" {
		return c.Number, nil
	}
	for i, v := range list {
		if v.Active && i+1 < len(list) {
			return strconv.Itoa(list[i+1].Number), nil
		}
	}
	return "", command.Usagef("no version before the one in force is known, expected a number of --list. Without a document, the limits of the file apply")
}

// listVersions prints versions, one in each line.
func listVersions(o *command.Output, list []versions.Version) {
	for _, v := range list {
		active := " "
		if v.Active {
			active = "*"
		}
		o.Printf("%s %4d  %s  %s  %7d bytes  %s", active, v.Number, v.Version, v.At.Format(time.RFC3339), v.Bytes, command.Legible(v.By))
		if v.Comment != "" {
			o.Printf("  %s", command.Legible(v.Comment))
		}
		o.Printf("\n")
	}
	if len(list) == 0 {
		o.Printf("no version is kept\n")
	}
}
