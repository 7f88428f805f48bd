// SPDX-License-Identifier: MIT

// Bench measures Diana, its rivals and the floors side by side, interleaved in one run.
//
//	bench [-run groups] [-quick] [-rounds n] [-json file]
//	bench page [file]
//
// It prints every figure and the targets that Diana meets or misses. After each group it writes
// docs/performance.json, docs/performance.md and docs/performance.svg, so an interruption loses
// only the group that it interrupts. Other groups keep their older figures, each with its date and
// its machine. With -quick or fewer than 5 rounds it writes a file in results/ instead. The command
// page makes the page and its picture from an existing file.
//
// The program starts the Redis and the web servers that it needs. It exits with 0 whatever
// the figures are, with 1 if it was interrupted or could not measure something, and with 2 if its
// arguments are wrong.
//
// A group is one file that measures something and one line in allGroups. Files whose names
// begin with the name of a group belong to it. diana.go holds the calls to Diana's API.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// group is a set of measurements, and a table of the page.
type group struct {
	name    string   // as -run takes it
	title   string   // of its table; "" if its rows belong to the table of another group
	figures []figure // in the order in which they are printed
	lines   []line   // of its table
	measure func(context.Context, *run) error
	needs   func(*run) error // returns an error if a program is missing; may be nil

	// table makes the table of a group whose figures are not lines. The lines then follow as a list. It
	// may be nil.
	table func(*report) string
}

func allGroups() []group {
	return []group{
		localGroup(),
		hugeGroup(),
		middlewareGroup(),
		globalGroup(),
		valkeyGroup(),
		exactnessGroup(),
		gatewayGroup(),
		consoleGroup(),
		bandwidthGroup(),
		worstGroup(),
		growthGroup(),
		reloadGroup(),
		decisionsGroup(),
		answersGroup(),
	}
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	err := command(ctx, os.Args[1:])
	stop()
	var wrong usageError
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
	case errors.As(err, &wrong):
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(2)
	default:
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// command runs a subcommand, or a measurement if there is none.
func command(ctx context.Context, args []string) error {
	if len(args) > 0 {
		switch args[0] {
		case gatewayCommand:
			return runGateway(ctx, args[1:], os.Stdin, os.Stdout)
		case exactCommand:
			return runExact(ctx, args[1:])
		case serverCommand:
			return runServer(ctx, args[1:])
		case pageCommand:
			return runPage(args[1:], os.Stdout)
		}
	}
	return bench(ctx, args, os.Stdout, os.Stderr)
}

// usageError is a mistake in the arguments.
type usageError struct{ error }

// bench measures what the arguments ask for.
func bench(ctx context.Context, args []string, out, notes io.Writer) error {
	r, file, err := newRun(args, notes)
	if err != nil {
		return err
	}
	return r.measure(ctx, out, file)
}

// newRun parses the arguments. It also returns the name of the file for the figures.
func newRun(args []string, notes io.Writer) (r *run, file string, err error) {
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.SetOutput(notes)
	names := f.String("run", "all", "groups to measure, separated by commas: "+strings.Join(groupNames(), ", "))
	quick := f.Bool("quick", false, "measure less, within a minute: to test the program, not to quote the figures")
	rounds := f.Int("rounds", 0, "number of rounds; 0 means 5, or 1 with -quick")
	f.StringVar(&file, "json", "", "`file` for the figures (default docs/performance.json, or results/TIME.json with -quick or less than 5 rounds)")
	switch err := f.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return nil, "", err
	case err != nil:
		return nil, "", usageError{err}
	case f.NArg() > 0:
		return nil, "", usageError{fmt.Errorf("unexpected %q", f.Arg(0))}
	case *rounds < 0:
		return nil, "", usageError{fmt.Errorf("-rounds is %d, expected 1 or more", *rounds)}
	}
	r = &run{quick: *quick, rounds: *rounds, notes: notes}
	if r.rounds == 0 {
		r.rounds = fullRounds
		if r.quick {
			r.rounds = 1
		}
	}
	if r.groups, err = chooseGroups(*names); err != nil {
		return nil, "", usageError{err}
	}
	r.origin = &origin{
		At: time.Now(), Command: strings.Join(append([]string{"bench"}, args...), " "),
		Revision: revision(), Machine: thisMachine(), Rounds: r.rounds, Quick: r.quick,
	}
	r.report = &report{Origins: []*origin{r.origin}}
	if file == "" && r.publishable() {
		file = publishedReport
	}
	if file == "" {
		file = filepath.Join("results", r.origin.At.UTC().Format("20060102-150405")+".json")
	}
	return r, file, nil
}

func groupNames() (names []string) {
	for _, g := range allGroups() {
		names = append(names, g.name)
	}
	return names
}

func chooseGroups(names string) ([]group, error) {
	groups := allGroups()
	if names == "all" {
		return groups, nil
	}
	wanted := strings.Split(names, ",")
	for _, name := range wanted {
		if !slices.Contains(groupNames(), name) {
			return nil, fmt.Errorf("-run: unknown group %q, expected %s", name, strings.Join(groupNames(), ", "))
		}
	}
	return slices.DeleteFunc(groups, func(g group) bool { return !slices.Contains(wanted, g.name) }), nil
}
