// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"errors"
	"io"
	"reflect"
	"time"

	"github.com/alecthomas/kong"

	"github.com/diana-limiter/diana/cmd/diana/internal/command"
)

// cli is the command line. Each field is a command, in the order of the help.
type cli struct {
	Serve     serveCommand     `cmd:"" help:"Run a gateway: the limiter in front of an upstream server."`
	Init      initCommand      `cmd:"" help:"Write a configuration file to start from."`
	Check     checkCommand     `cmd:"" help:"Validate configuration files."`
	Diff      diffCommand      `cmd:"" help:"Show the differences between two configurations."`
	Explain   explainCommand   `cmd:"" help:"Show which rules evaluate a request, and under which keys they count it."`
	Replay    replayCommand    `cmd:"" help:"Show what rules would have decided on the requests of access logs."`
	Test      testCommand      `cmd:"" help:"Test rules by scripts of requests and expected decisions."`
	Top       topCommand       `cmd:"" help:"Show the most refused actors and the busiest rules of a gateway, each second."`
	Reset     resetCommand     `cmd:"" help:"Forget what a rule has counted of an actor."`
	Key       keyCommand       `cmd:"" help:"Make API keys."`
	Convert   convertCommand   `cmd:"" help:"Print rules for the limits of nginx or of envoyproxy/ratelimit."`
	Schema    schemaCommand    `cmd:"" help:"Print a JSON Schema of configuration files, for editors."`
	Push      pushCommand      `cmd:"" help:"Validate a file and write it to the configuration centre."`
	Exempt    exemptCommand    `cmd:"" help:"Exempt an actor from a rule of the remote configuration for a while."`
	Rollback  rollbackCommand  `cmd:"" help:"Put an earlier version of the remote configuration in force, or list the versions."`
	Ratelimit ratelimitCommand `cmd:"" help:"Serve in place of envoyproxy/ratelimit, by its environment."`
	Version   versionCommand   `cmd:"" help:"Show the version of this program."`

	Completion completionCommand `cmd:"" help:"Print a script that completes command lines in a shell."`
	Complete   completeCommand   `cmd:"" hidden:"" help:"Print the words that can follow on a command line."`
	Man        manCommand        `cmd:"" hidden:"" help:"Write the manual pages."`
}

// run runs a command and returns the exit status. The command ends when ctx ends.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	o := &command.Output{Out: stdout, Err: stderr}
	parser, err := kong.New(&cli{},
		kong.Name("diana"),
		kong.Description("Diana limits how many requests each client may send to a service."),
		kong.Writers(stdout, stderr),
		kong.Help(help),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, WrapUpperBound: 80}),
		kong.BindTo(ctx, (*context.Context)(nil)),
		kong.Bind(o),
		kong.TypeMapper(reflect.TypeFor[time.Duration](), kong.MapperFunc(command.ReadDuration)),
	)
	if err != nil { // a mistake in the types above
		panic(err)
	}
	selected, err := parser.Parse(args)
	if err != nil {
		var p *kong.ParseError
		if errors.As(err, &p) {
			selected = p.Context
		}
		return o.Misused(selected, err)
	}
	if err := command.NoneEmpty(selected); err != nil {
		return o.Misused(selected, err)
	}
	if err = selected.Run(); err == nil {
		err = o.Failed
	}
	var misuse command.UsageError
	switch {
	case err == nil:
		return command.StatusGood
	case errors.Is(err, command.ErrReported):
		return command.StatusBad
	case errors.As(err, &misuse):
		return o.Misused(selected, err)
	}
	o.Complainf("diana: %v\n", err)
	return command.StatusBad
}

// help prints the help of a command.
func help(options kong.HelpOptions, ctx *kong.Context) error {
	if err := kong.DefaultHelpPrinter(options, ctx); err != nil {
		return err
	}
	return command.ErrHelp
}
