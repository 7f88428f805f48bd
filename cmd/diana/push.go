// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"io"
	"os"

	"github.com/diana-limiter/diana/internal/bounds"
)

// pushCommand writes a file to the configuration centre.
type pushCommand struct {
	Config string `placeholder:"FILE" help:"Configuration file that names the configuration centre. Default: diana.yaml."`
	File   string `arg:"" name:"file" help:"New document of the configuration centre: entries, or limits alone."`
}

// Help is the end of what --help prints.
func (pushCommand) Help() string {
	return `Diana does not write a file that is not valid. It prints the differences from the previous document.`
}

// Run validates the file and writes it.
func (c *pushCommand) Run(ctx context.Context, o *output) error {
	if err := named(c.File); err != nil {
		return err
	}
	s := chosen(c.Config)
	if s.builtIn() {
		return usagef("no %s here, expected --config with a file that names a configuration centre", usualFile)
	}
	local, err := s.load(o)
	if err != nil {
		return err
	}
	to, err := openRemote(local)
	if err != nil {
		return o.faults(s, err)
	}
	defer to.close()
	text, err := readDocument(c.File)
	if err != nil {
		return o.faults(settings{file: c.File}, err)
	}
	next, n, err := to.compose(c.File, text)
	if err != nil {
		return o.faults(settings{file: c.File}, err)
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
	if before, _, err := to.compose(to.where, held.Text); held.Exists && err == nil {
		printDifferences(o, before, next)
	}
	return nil
}

// readDocument returns the text of a file. Of a file that is too large it returns enough for the
// parser to see that.
func readDocument(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, bounds.MaxConfig+1))
}
