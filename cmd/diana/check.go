// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"errors"
	"io/fs"
	"net"

	"github.com/diana-limiter/diana/cmd/diana/internal/command"
	"github.com/diana-limiter/diana/cmd/diana/internal/versions"
	"github.com/diana-limiter/diana/config"
)

// checkCommand validates configuration files.
type checkCommand struct {
	Remote      bool     `help:"Also validate the document in the configuration centre that a file names."`
	Descriptors []string `sep:"none" placeholder:"PATH" help:"Validate files of envoyproxy/ratelimit instead, all together: a file, or a directory of *.yaml and *.yml. May be repeated."`
	Merge       bool     `name:"descriptors-merge" help:"Join files of --descriptors that have the same domain."`
	Files       []string `arg:"" name:"file" optional:"" help:"Configuration file, or with --descriptors one more path. - is standard input."`
}

// Help is the end of what --help prints.
func (checkCommand) Help() string {
	return `Diana prints every error as FILE:LINE:COLUMN: message. The exit status is 1 if there is an error; warnings do not change it.`
}

// Run checks every file, also after one that is not valid.
func (c *checkCommand) Run(ctx context.Context, o *command.Output) error {
	if err := command.Named(append(c.Descriptors, c.Files...)...); err != nil {
		return err
	}
	switch {
	case len(c.Descriptors) > 0 && c.Remote:
		return command.Usagef("--remote has no meaning with --descriptors")
	case len(c.Descriptors) > 0:
		return checkDescriptors(o, append(c.Descriptors, c.Files...), c.Merge)
	case len(c.Files) == 0:
		return command.Usagef(`expected "<file> ..."`)
	}
	var result error
	for _, file := range c.Files {
		local, err := c.checkFile(o, command.Settings{File: file})
		if err == nil && c.Remote {
			err = c.checkRemote(ctx, o, command.Settings{File: file}, local)
		}
		if err != nil {
			result = err
		}
	}
	return result
}

// checkFile checks a file, and returns its configuration.
func (*checkCommand) checkFile(o *command.Output, s command.Settings) (*config.Config, error) {
	loaded, err := s.Read()
	if err != nil {
		missing := errors.Is(err, fs.ErrNotExist)
		err = o.Faults(s, err)
		if _, _, notAddress := net.SplitHostPort(s.File); missing && notAddress == nil {
			o.Complainf("%s is an address, see diana serve --check\n", s)
		} else if s.File != command.Stdin && isDescriptors(s.File) {
			o.Complainf("%s is a file of envoyproxy/ratelimit, see diana check --descriptors\n", s)
		}
		return nil, err
	}
	set, err := command.Compile(loaded)
	if err != nil {
		return nil, o.Faults(s, err)
	}
	for _, w := range loaded.Warnings {
		o.Fault(w, "warning: ")
	}
	o.Printf("%s: ok, %s\n", s, command.Rules(len(set.Rules)))
	return loaded, nil
}

// checkRemote checks the document in the configuration centre that a configuration names.
func (*checkCommand) checkRemote(ctx context.Context, o *command.Output, s command.Settings, local *config.Config) error {
	from, err := versions.Open(command.Vocabulary(), local)
	if err != nil {
		return o.Faults(s, err)
	}
	defer from.Close()
	d, err := from.Get(ctx)
	if err != nil {
		o.Complainf("%v\n", err)
		return command.ErrReported
	}
	if !d.Exists {
		o.Printf("%s: no document; the local limits apply\n", from.Where)
		return nil
	}
	whole, err := from.Compose(from.Where, d.Text)
	if err != nil {
		return o.Faults(command.Settings{File: from.Where}, err)
	}
	set, err := command.Compile(whole)
	if err != nil {
		return o.Faults(command.Settings{File: from.Where}, err)
	}
	for _, w := range whole.Warnings {
		if w.File == from.Where {
			o.Fault(w, "warning: ")
		}
	}
	o.Printf("%s: ok, %s\n", from.Where, command.Rules(len(set.Rules)))
	return nil
}
