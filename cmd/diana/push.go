// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"errors"
	"fmt"
	"os/user"
	"strings"

	"github.com/diana-limiter/diana/cmd/diana/internal/command"
	"github.com/diana-limiter/diana/cmd/diana/internal/versions"
	"github.com/diana-limiter/diana/config"
	"github.com/diana-limiter/diana/config/diff"
)

// pushCommand writes a file to the configuration centre.
type pushCommand struct {
	Config  string `placeholder:"FILE" help:"Configuration file that names the configuration centre. Default: diana.yaml."`
	Comment string `placeholder:"TEXT" help:"Why, for the list of versions, see diana rollback --list."`
	Expect  string `placeholder:"VERSION" help:"Write only if the document has this version, as /status and diana rollback --list show it. Default: the version that push has compared."`
	Against string `placeholder:"FILE" help:"Compare with this file, in place of the document in the configuration centre, or without one the limits of --config."`
	Yes     bool   `help:"Do not ask before rules vanish, stop refusing, or allow ten times as much."`
	File    string `arg:"" name:"file" help:"New document of the configuration centre: entries, or limits alone. - is standard input."`
}

// Help is the end of what --help prints.
func (pushCommand) Help() string {
	return `Diana does not write a file that is not valid. It prints the differences from the previous document, and then writes. If another writer changes the document meanwhile, Diana writes nothing and the exit status is 1.

Diana asks on the terminal before it writes a document that removes or renames a rule, puts one in shadow mode, or raises a limit to ten times or more. Without a terminal it needs --yes.

The configuration centre keeps the last 20 versions, see diana rollback.`
}

// Run validates the file, compares it and writes it.
func (c *pushCommand) Run(ctx context.Context, o *command.Output) error {
	if err := command.Named(c.File); err != nil {
		return err
	}
	to, err := openVersions(o, c.Config)
	if err != nil {
		return err
	}
	defer to.Close()
	text, err := command.ReadText(c.File)
	if err != nil {
		return o.Faults(command.Settings{File: c.File}, err)
	}
	change := versions.Change{Text: text, Comment: c.Comment, By: operator()}
	if c.Expect != "" {
		change.Expect = &c.Expect
	}
	p, err := prepare(ctx, o, to, command.NameOf(c.File), change)
	if err != nil {
		return err
	}
	if c.Against != "" {
		against, err := command.Settings{File: c.Against}.Load(o)
		if err != nil {
			return err
		}
		p.before = p.next.WithRemote(against)
	}
	p.print(o)
	risks := p.risks()
	if c.Yes {
		risks = nil
	}
	if err := confirm(ctx, risks); errors.Is(err, command.ErrNoTerminal) {
		return fmt.Errorf("nothing was written: %s. There is no terminal to ask on, expected --yes", strings.Join(risks, "; "))
	} else if err != nil {
		return err
	}
	return p.write(ctx, o)
}

// confirm asks on the terminal whether risks are wanted, if there are some. Its error says that nothing was written, or is
// command.ErrNoTerminal.
func confirm(ctx context.Context, risks diff.Changes) error {
	if len(risks) == 0 {
		return nil
	}
	question := strings.Join(risks, "\n") + "\nWrite this? [y/N] "
	answer, err := command.Ask(ctx, question)
	switch {
	case errors.Is(err, command.ErrNoTerminal):
		return err
	case err != nil:
		return fmt.Errorf("nothing was written: %w", err)
	case !strings.EqualFold(answer, "y") && !strings.EqualFold(answer, "yes"):
		return errors.New("nothing was written")
	}
	return nil
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

// prepared is a valid document that can be written.
type prepared struct {
	to           *versions.Remote
	change       versions.Change
	next, before *config.Config // before is nil if the document cannot be read
	rules        int
	mustCompare  bool // otherwise a source that cannot compare is overwritten
}

// push writes a text without a question.
func push(ctx context.Context, o *command.Output, to *versions.Remote, name string, c versions.Change) error {
	p, err := prepare(ctx, o, to, name, c)
	if err != nil {
		return err
	}
	p.print(o)
	return p.write(ctx, o)
}

// prepare validates a text, which errors call by name, and reads the document that it replaces.
func prepare(ctx context.Context, o *command.Output, to *versions.Remote, name string, c versions.Change) (*prepared, error) {
	next, err := to.Compose(name, c.Text)
	if err != nil {
		return nil, o.Faults(command.Settings{File: name}, err)
	}
	set, err := command.Compile(next)
	if err != nil {
		return nil, o.Faults(command.Settings{File: name}, err)
	}
	for _, w := range next.Warnings {
		o.Fault(w, "warning: ")
	}
	held, err := to.Get(ctx)
	if err != nil {
		return nil, err
	}
	p := &prepared{to: to, change: c, next: next, before: to.Local(), rules: len(set.Rules), mustCompare: c.Expect != nil}
	found := versions.VersionOf(held)
	if p.mustCompare && *c.Expect != found {
		return nil, versions.Conflict{Found: found}
	}
	p.change.Expect = &found
	if held.Exists {
		if p.before, err = to.Compose(to.Where, held.Text); err != nil {
			o.Complainf("diana: warning: the document of %s is not valid, so nothing is compared\n", to.Where)
			p.before = nil
		}
	}
	return p, nil
}

// risks returns the differences that an operator must want.
func (p *prepared) risks() diff.Changes {
	if p.before == nil {
		return nil
	}
	return diff.Risks(p.before, p.next)
}

// print prints the differences.
func (p *prepared) print(o *command.Output) {
	if p.before != nil {
		printDifferences(o, p.before, p.next)
	}
}

// write writes the document if it is still the one that was read.
func (p *prepared) write(ctx context.Context, o *command.Output) error {
	_, err := p.to.Push(ctx, p.change)
	if errors.Is(err, errors.ErrUnsupported) && !p.mustCompare {
		o.Complainf("diana: warning: no version is kept: %v\n", err)
		err = p.to.Overwrite(ctx, p.change.Text)
	}
	if err != nil {
		return err
	}
	o.Printf("%s: %s, version %s\n", p.to.Where, command.Rules(p.rules), p.next.Version)
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
