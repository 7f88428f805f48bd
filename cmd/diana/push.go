// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"io"
	"os"

	"github.com/diana-limiter/diana/config"
)

// pushCommand gives a file to the configuration centre.
type pushCommand struct {
	Config string `placeholder:"FILE" help:"Configuration file that names the centre. Default: diana.yaml."`
	File   string `arg:"" name:"file" help:"What the centre is to hold: entries, or limits alone."`
}

// Help is the end of what --help prints.
func (pushCommand) Help() string {
	return `The file is validated first; one that is not valid is not written. What changes is printed.`
}

// Run validates and writes.
func (c *pushCommand) Run(ctx context.Context, o *output) error {
	if err := named(c.File); err != nil {
		return err
	}
	s := chosen(c.Config)
	if s.builtIn() {
		return usagef("no %s here, expected --config with a file that names a configuration centre", usualFile)
	}
	local, err := s.load()
	if err != nil {
		return o.faults(s, err)
	}
	to, err := openCentre(local)
	if err != nil {
		return o.faults(s, err)
	}
	defer to.close()
	text, err := readDocument(c.File)
	if err != nil {
		return o.faults(settings{c.File}, err)
	}
	next, n, err := to.judge(c.File, text)
	if err != nil {
		return o.faults(settings{c.File}, err)
	}
	for _, w := range next.Warnings {
		o.fault(w, "warning: ")
	}
	held, err := to.get(ctx)
	if err != nil {
		return err
	}
	if err := to.put(ctx, text); err != nil {
		return err
	}
	o.printf("%s: %s, version %s\n", to.where, rules(n), next.Version)
	if before, _, err := to.judge(to.where, held.Text); held.Exists && err == nil {
		o.differences(before, next)
	}
	return nil
}

// readDocument returns the text of a file, or of one that is larger than any document may
// be, no more than it takes to see that.
func readDocument(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, config.MaxSize+1))
}
