// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"reflect"
	"time"

	"github.com/alecthomas/kong"
)

// cli is the command line. Each field is a command, in the order of the help.
type cli struct {
	Serve    serveCommand    `cmd:"" help:"Run a gateway: the limiter in front of an upstream server."`
	Init     initCommand     `cmd:"" help:"Write a configuration file to start from."`
	Check    checkCommand    `cmd:"" help:"Validate configuration files."`
	Diff     diffCommand     `cmd:"" help:"Show the differences between two configurations."`
	Explain  explainCommand  `cmd:"" help:"Show which rules evaluate a request, and under which keys they count it."`
	Replay   replayCommand   `cmd:"" help:"Show what rules would have decided on the requests of access logs."`
	Test     testCommand     `cmd:"" help:"Test rules by scripts of requests and expected decisions."`
	Top      topCommand      `cmd:"" help:"Show the most refused actors and the busiest rules of a gateway, each second."`
	Reset    resetCommand    `cmd:"" help:"Forget what a rule has counted of an actor."`
	Schema   schemaCommand   `cmd:"" help:"Print a JSON Schema of configuration files, for editors."`
	Push     pushCommand     `cmd:"" help:"Validate a file and write it to the configuration centre."`
	Exempt   exemptCommand   `cmd:"" help:"Exempt an actor from a rule of the remote configuration for a while."`
	Rollback rollbackCommand `cmd:"" help:"Put an earlier version of the remote configuration in force, or list the versions."`
	Version  versionCommand  `cmd:"" help:"Show the version of this program."`

	Completion completionCommand `cmd:"" help:"Print a script that completes command lines in a shell."`
	Complete   completeCommand   `cmd:"" hidden:"" help:"Print the words that can follow on a command line."`
	Man        manCommand        `cmd:"" hidden:"" help:"Write the manual pages."`
}

// Exit statuses.
const (
	statusGood  = 0
	statusBad   = 1 // the input is not valid, or the command failed
	statusUsage = 2 // the command line is wrong
)

// usageError is an error in the command line that the command itself found.
type usageError struct{ error }

func usagef(format string, args ...any) error {
	return usageError{fmt.Errorf(format, args...)}
}

var (
	// errReported ends a command that has already printed its error.
	errReported = errors.New("reported")

	// errHelp ends the parsing of a command line with --help, after the help is printed. Rejected:
	// kong's default, which ends the process.
	errHelp = errors.New("help printed")
)

// run runs a command and returns the exit status. The command ends when ctx ends.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	o := &output{out: stdout, err: stderr}
	parser, err := kong.New(&cli{},
		kong.Name("diana"),
		kong.Description("Diana limits how many requests each client may send to a service."),
		kong.Writers(stdout, stderr),
		kong.Help(help),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, WrapUpperBound: 80}),
		kong.BindTo(ctx, (*context.Context)(nil)),
		kong.Bind(o),
		kong.TypeMapper(reflect.TypeFor[time.Duration](), kong.MapperFunc(readDuration)),
	)
	if err != nil { // a mistake in the types above
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
	if err := noneEmpty(command); err != nil {
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

// help prints the help of a command.
func help(options kong.HelpOptions, ctx *kong.Context) error {
	if err := kong.DefaultHelpPrinter(options, ctx); err != nil {
		return err
	}
	return errHelp
}
