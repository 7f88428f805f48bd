// SPDX-License-Identifier: MIT

// Bench measures Diana, its rivals and the floors under them side by side, interleaved
// in one run, and judges the targets of each group by what it has measured.
//
//	bench [-run local,huge,middleware,global,gateway,bandwidth,worst,growth] [-quick] [-rounds n] [-json file]
//	bench page [file]
//
// What it prints is a table for reading; the same goes to a file as JSON. It starts the
// Redis and the web servers that it needs by itself. It exits with 0 whatever the figures are, with 1 if
// something could not be measured, and with 2 if it was called in a wrong way.
//
// bench page makes the tables and pictures of docs/performance.md from such a file.
//
// The files: run.go holds what a run consists of, report.go what was measured, table.go
// how it is printed, page.go how it is published, targets.go what Diana must reach. Each
// group has a file that says what is measured (bandwidth.go, gateway.go, global.go, growth.go, local.go,
// middleware.go, worst.go), and files named after it and the one measured (global_ulule.go).
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

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends it at once
	var err error
	switch command, args := subcommand(os.Args[1:]); command {
	case gatewayCommand:
		err = runGateway(ctx, args, os.Stdin, os.Stdout)
	case serverCommand:
		err = runServer(ctx, args)
	case pageCommand:
		err = runPage(args, os.Stdout)
	default:
		err = bench(ctx, os.Args[1:], os.Stdout, os.Stderr)
	}
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

// subcommand returns the first word and the rest, if there is a word.
func subcommand(args []string) (string, []string) {
	if len(args) == 0 {
		return "", nil
	}
	return args[0], args[1:]
}

// usageError is a wrong way to call the program.
type usageError struct{ error }

// bench is the program without the process around it.
func bench(ctx context.Context, args []string, out, notes io.Writer) error {
	r, file, err := newRun(args, notes)
	if err != nil {
		return err
	}
	return r.measure(ctx, out, file)
}

// newRun reads the command line, and returns the name of the JSON file too.
func newRun(args []string, notes io.Writer) (r *run, file string, err error) {
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.SetOutput(notes)
	names := f.String("run", "all", "which groups: "+strings.Join(groupNames(), ", ")+"; several with commas")
	quick := f.Bool("quick", false, "less, in less than a minute: to see that all is well, not to be quoted")
	rounds := f.Int("rounds", 0, "how many rounds; 0 is 5, or 3 with -quick")
	f.StringVar(&file, "json", "", "file to write (default results/TIME.json)")
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
	switch {
	case r.rounds > 0:
	case r.quick:
		r.rounds = 3
	default:
		r.rounds = 5
	}
	if r.groups, err = chooseGroups(*names); err != nil {
		return nil, "", usageError{err}
	}
	now := time.Now()
	if file == "" {
		file = filepath.Join("results", now.UTC().Format("20060102-150405")+".json")
	}
	r.report = &report{At: now, Command: strings.Join(append([]string{"bench"}, args...), " "), Machine: thisMachine(), Rounds: r.rounds, Quick: r.quick}
	return r, file, nil
}

// group is measurements that belong together.
type group struct {
	name    string
	measure func(context.Context, *run) error
	needs   func(*run) error // finds what it takes; nil: nothing that is not sure to be there
}

func allGroups() []group {
	return []group{
		{"local", measureLocal, nil},
		{"huge", measureHuge, nil},
		{"middleware", measureMiddleware, nil},
		{"global", measureGlobal, nil},
		{"gateway", measureGateway, gatewayNeeds},
		{"bandwidth", measureBandwidth, bandwidthNeeds},
		{"worst", measureWorst, nil},
		{"growth", measureGrowth, nil},
	}
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
