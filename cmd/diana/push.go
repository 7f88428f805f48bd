// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"errors"
	"io"
	"os"
	"os/user"

	"github.com/diana-limiter/diana/cmd/diana/internal/command"
	"github.com/diana-limiter/diana/cmd/diana/internal/versions"
	"github.com/diana-limiter/diana/internal/bounds"
)

// pushCommand writes a file to the configuration centre.
type pushCommand struct {
	Config  string `placeholder:"FILE" help:"Configuration file that names the configuration centre. Default: diana.yaml."`
	Comment string `placeholder:"TEXT" help:"Why, for the list of versions, see diana rollback --list."`
	Expect  string `placeholder:"VERSION" help:"Write only if the document has this version, as /status and diana rollback --list show it."`
	File    string `arg:"" name:"file" help:"New document of the configuration centre: entries, or limits alone."`
}

// Help is the end of what --help prints.
func (pushCommand) Help() string {
	return `Diana does not write a file that is not valid. It prints the differences from the previous document. If another writer changes the document at the same time, Diana writes nothing and the exit status is 1.

The configuration centre keeps the last 20 versions, see diana rollback.`
}

// Run validates the file and writes it.
func (c *pushCommand) Run(ctx context.Context, o *command.Output) error {
	if err := command.Named(c.File); err != nil {
		return err
	}
	to, err := openVersions(o, c.Config)
	if err != nil {
		return err
	}
	defer to.Close()
	text, err := readDocument(c.File)
	if err != nil {
		return o.Faults(command.Settings{File: c.File}, err)
	}
	change := versions.Change{Text: text, Comment: c.Comment, By: operator()}
	if c.Expect != "" {
		change.Expect = &c.Expect
	}
	return push(ctx, o, to, c.File, change)
}

// openVersions returns the configuration centre that a configuration names.
func openVersions(o *command.Output, file string) (*versions.Remote, error) {
	s := command.Chosen(file)
	if s.BuiltIn() {
		return nil, command.Usagef("no %s here, expected --config with a file that names a configuration centre", command.UsualFile)
	}
	local, err := s.Load(o)
	if err != nil {
		return nil, err
	}
	to, err := versions.Open(command.Vocabulary(), local)
	if err != nil {
		return nil, o.Faults(s, err)
	}
	return to, nil
}

// push validates a text, which errors call by name, and writes it to the configuration centre.
func push(ctx context.Context, o *command.Output, to *versions.Remote, name string, c versions.Change) error {
	next, err := to.Compose(name, c.Text)
	if err != nil {
		return o.Faults(command.Settings{File: name}, err)
	}
	set, err := command.Compile(next)
	if err != nil {
		return o.Faults(command.Settings{File: name}, err)
	}
	for _, w := range next.Warnings {
		o.Fault(w, "warning: ")
	}
	held, err := to.Get(ctx)
	if err != nil {
		return err
	}
	_, err = to.Push(ctx, c)
	if errors.Is(err, errors.ErrUnsupported) && c.Expect == nil {
		o.Complainf("diana: warning: no version is kept: %v\n", err)
		err = to.Overwrite(ctx, c.Text)
	}
	if err != nil {
		return err
	}
	o.Printf("%s: %s, version %s\n", to.Where, command.Rules(len(set.Rules)), next.Version)
	if before, err := to.Compose(to.Where, held.Text); held.Exists && err == nil {
		printDifferences(o, before, next)
	}
	return nil
}

// operator returns the name of the user who runs the program; empty if it is unknown.
func operator() string {
	u, err := user.Current()
	if err != nil {
		return ""
	}
	return u.Username
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
