// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/alecthomas/kong"
)

// cli is the command line: a command each field, in the order of the help.
type cli struct {
	Serve   serveCommand   `cmd:"" help:"Run a gateway: the limiter in front of an upstream server."`
	Init    initCommand    `cmd:"" help:"Write a configuration file to start from."`
	Check   checkCommand   `cmd:"" help:"Validate configuration files."`
	Diff    diffCommand    `cmd:"" help:"Tell in words how two configurations differ."`
	Explain explainCommand `cmd:"" help:"Show which rules judge a request, and under which keys it is counted."`
	Replay  replayCommand  `cmd:"" help:"Show what rules would have decided on the requests of access logs."`
	Test    testCommand    `cmd:"" help:"Test rules by scripts of requests and expected decisions."`
	Reset   resetCommand   `cmd:"" help:"Forget what a rule has counted of an actor."`
	Schema  schemaCommand  `cmd:"" help:"Print a JSON Schema of configuration files, for editors."`
	Push    pushCommand    `cmd:"" help:"Validate a file and give it to the configuration centre."`
	Version versionCommand `cmd:"" help:"Show the version of this program."`
}

// Exit statuses.
const (
	statusGood  = 0
	statusBad   = 1 // what was asked about is bad, or could not be done
	statusUsage = 2 // the command line is wrong
)

// output is where a command writes: what was asked for to out, what is to be said
// about it to err.
type output struct {
	out, err io.Writer
	failed   error // the first error of writing to out
}

// printf writes what was asked for.
func (o *output) printf(format string, args ...any) {
	if _, err := fmt.Fprintf(o.out, format, args...); err != nil && o.failed == nil {
		o.failed = err
	}
}

// complainf writes what is to be said about it. There is no place to say that this
// has failed.
func (o *output) complainf(format string, args ...any) { _, _ = fmt.Fprintf(o.err, format, args...) }

// usageError is what a command itself finds wrong with its command line.
type usageError struct{ error }

func usagef(format string, args ...any) error {
	return usageError{fmt.Errorf(format, args...)}
}

var (
	// errReported ends a command that has told already what is wrong.
	errReported = errors.New("reported")

	// errHelp ends the reading of a command line that asks for help, which has been
	// given. Rejected: kong's own way, which is to end the process.
	errHelp = errors.New("help given")
)

// run does what the command line asks for, and returns the exit status. A command
// that would go on ends when ctx does.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	o := &output{out: stdout, err: stderr}
	parser, err := kong.New(&cli{},
		kong.Name("diana"),
		kong.Description("Diana limits how much of a service its callers may use."),
		kong.Writers(stdout, stderr),
		kong.Help(help),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, WrapUpperBound: 80}),
		kong.BindTo(ctx, (*context.Context)(nil)),
		kong.Bind(o),
	)
	if err != nil { // the types above are wrong
		panic(err)
	}
	command, err := parser.Parse(args)
	if err != nil {
		var p *kong.ParseError
		if errors.As(err, &p) {
			command = p.Context
		}
		return o.misused(command, err)
	}
	if err = command.Run(); err == nil {
		err = o.failed
	}
	var misuse usageError
	switch {
	case err == nil:
		return statusGood
	case errors.Is(err, errReported):
		return statusBad
	case errors.As(err, &misuse):
		return o.misused(command, err)
	}
	o.complainf("diana: %v\n", err)
	return statusBad
}

// help prints what --help asks for.
func help(options kong.HelpOptions, ctx *kong.Context) error {
	if err := kong.DefaultHelpPrinter(options, ctx); err != nil {
		return err
	}
	return errHelp
}

// misused tells what is wrong with a command line, if not that it asks for help.
func (o *output) misused(ctx *kong.Context, err error) int {
	if errors.Is(err, errHelp) {
		return statusGood
	}
	name := "diana"
	if ctx != nil && ctx.Selected() != nil {
		name += " " + ctx.Selected().Name
	}
	o.complainf("%s: %v\nTry '%s --help'.\n", name, err, name)
	return statusUsage
}
