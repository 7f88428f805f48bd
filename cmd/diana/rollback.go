// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/diana-limiter/diana/cmd/diana/internal/versions"
)

// rollbackCommand puts an earlier version of the remote configuration in force.
type rollbackCommand struct {
	Config  string `placeholder:"FILE" help:"Configuration file that names the configuration centre. Default: diana.yaml."`
	Comment string `placeholder:"TEXT" help:"Why, for the list of versions."`
	List    bool   `help:"Print the versions and change nothing."`
	Number  int    `arg:"" optional:"" help:"Number of the version. Default: the one before the version in force."`
}

// Help is the end of what --help prints.
func (rollbackCommand) Help() string {
	return `The configuration centre keeps the last 20 versions under the key of the document and .versions. A rollback is a push of an old text, so it has a new number. Diana validates the text, and prints the differences.`
}

// Run lists the versions, or pushes an old one.
func (c *rollbackCommand) Run(ctx context.Context, o *output) error {
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
		c.Comment = fmt.Sprintf("rollback to version %d", number)
	}
	name := fmt.Sprintf("version %d", number)
	return push(ctx, o, to, name, versions.Change{Text: text, Comment: c.Comment, By: operator()})
}

// number returns the number of the version that must be put in force.
func (c *rollbackCommand) number(list []versions.Version) (int, error) {
	if c.Number != 0 {
		return c.Number, nil
	}
	for i, v := range list {
		if v.Active && i+1 < len(list) {
			return list[i+1].Number, nil
		}
	}
	return 0, usagef("no version before the one in force is known, expected a number of --list")
}

// listVersions prints versions, one in each line.
func listVersions(o *output, list []versions.Version) {
	for _, v := range list {
		active := " "
		if v.Active {
			active = "*"
		}
		o.printf("%s %4d  %s  %s  %7d bytes  %s", active, v.Number, v.Version, v.At.Format(time.RFC3339), v.Bytes, legible(v.By))
		if v.Comment != "" {
			o.printf("  %s", legible(v.Comment))
		}
		o.printf("\n")
	}
	if len(list) == 0 {
		o.printf("no version is kept\n")
	}
}
