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
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/diana-limiter/diana/bench/measure"
	"github.com/diana-limiter/diana/bench/page"
	"github.com/diana-limiter/diana/bench/rivals"
)

// group is a set of measurements, and a table of the page. -run takes its name.
type group struct {
	page.Chapter
	measure func(context.Context, *measure.Run) error
}

// thePage is the page of all groups.
func thePage() *page.Page {
	p := &page.Page{Unlike: func(ours, theirs *measure.Row) bool {
		// A Limiter finds the rules of a URL and makes a key, which the rivals are handed. nginx's refusals have no
		// fields.
		return strings.HasPrefix(ours.System, dianaLimiter) ||
			ours.Workload == refuseWorkload && ours.System == dianaServe && theirs.System == nginxThree
	}}
	for _, g := range allGroups() {
		p.Groups = append(p.Groups, g.Chapter)
	}
	return p
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
		overloadGroup(),
		decisionsGroup(),
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
		case measure.ServeCommand:
			return serve(ctx, args[1:])
		case "page": // and the picture, beside a report
			if len(args) > 2 {
				return usageError{errors.New("page: expected one file")}
			}
			return thePage().Write(append(args, page.PublishedReport)[1], os.Stdout)
		}
	}
	return bench(ctx, args, os.Stdout, os.Stderr)
}

// The servers that only this package can make. The others are those of rivals.Handler, and libraries by their names.
const (
	handlerKind = "handler" // Diana's Handler before bytes; the argument is a configuration file
	crowdKind   = "crowd"   // many callers of one limit; the argument is the URL of Redis
)

// serve is a server that a group starts: ADDRESS KIND ARGUMENT.
func serve(ctx context.Context, args []string) (err error) {
	if len(args) != 3 {
		return usageError{fmt.Errorf("%s: expected an address, a kind of server, and its argument", measure.ServeCommand)}
	}
	address, kind, argument := args[0], args[1], args[2]
	var h http.Handler
	switch kind {
	case handlerKind:
		var text []byte
		if text, err = os.ReadFile(argument); err == nil {
			h, _, err = openHandler(ctx, string(text), http.HandlerFunc(rivals.SendBytes))
		}
	case crowdKind:
		h, err = crowdHandler(ctx, argument)
	default:
		var library *exactLibrary
		if h, err = rivals.Handler(ctx, kind, argument); h != nil || err != nil {
			break
		}
		if library, err = openLibrary(ctx, kind, argument); library == nil {
			return errors.Join(err, usageError{fmt.Errorf("%s: unknown %q", measure.ServeCommand, kind)})
		}
		h = library.handler()
	}
	if err != nil {
		return err
	}
	return rivals.Serve(ctx, address, h, slices.Contains([]string{"proxy", "200", "503", "copy", "grpc"}, kind))
}

// usageError is a mistake in the arguments.
type usageError struct{ error }

// bench measures what the arguments ask for.
func bench(ctx context.Context, args []string, out, notes io.Writer) error {
	r, groups, file, err := newRun(args, notes)
	if err != nil {
		return err
	}
	return measureAll(ctx, r, groups, out, file)
}

// newRun parses the arguments. It also returns the groups to measure, and the file for the figures.
func newRun(args []string, notes io.Writer) (r *measure.Run, groups []group, file string, err error) {
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.SetOutput(notes)
	names := f.String("run", "all", "groups to measure, separated by commas: "+strings.Join(groupNames(), ", "))
	quick := f.Bool("quick", false, "measure less, within a minute: to test the program, not to quote the figures")
	rounds := f.Int("rounds", 0, "number of rounds; 0 means 5, or 1 with -quick")
	f.StringVar(&file, "json", "", "`file` for the figures (default docs/performance.json, or results/TIME.json with -quick or less than 5 rounds)")
	switch err := f.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return nil, nil, "", err
	case err != nil:
		return nil, nil, "", usageError{err}
	case f.NArg() > 0:
		return nil, nil, "", usageError{fmt.Errorf("unexpected %q", f.Arg(0))}
	case *rounds < 0:
		return nil, nil, "", usageError{fmt.Errorf("-rounds is %d, expected 1 or more", *rounds)}
	}
	r = &measure.Run{Quick: *quick, Rounds: *rounds, Notes: notes}
	if r.Rounds == 0 {
		r.Rounds = measure.FullRounds
		if r.Quick {
			r.Rounds = 1
		}
	}
	if groups, err = chooseGroups(*names); err != nil {
		return nil, nil, "", usageError{err}
	}
	r.Origin = &measure.Origin{
		At: time.Now(), Command: strings.Join(append([]string{"bench"}, args...), " "),
		Revision: measure.Revision(), Machine: measure.ThisMachine(), Rounds: r.Rounds, Quick: r.Quick,
	}
	r.Report = &measure.Report{Origins: []*measure.Origin{r.Origin}}
	if file == "" && r.Publishable() {
		file = page.PublishedReport
	}
	if file == "" {
		file = filepath.Join("results", r.Origin.At.UTC().Format("20060102-150405")+".json")
	}
	return r, groups, file, nil
}

func groupNames() (names []string) {
	for _, g := range allGroups() {
		names = append(names, g.Name)
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
	return slices.DeleteFunc(groups, func(g group) bool { return !slices.Contains(wanted, g.Name) }), nil
}

// measureAll measures all groups and prints the report. It saves the figures of a group as soon as it has
// them, and continues after a group that fails. An interrupted or failed group keeps its older figures.
func measureAll(ctx context.Context, r *measure.Run, groups []group, out io.Writer, file string) error {
	older, err := measure.ReadReport(file)
	if err != nil {
		return err
	}
	before := measure.MachineTime()
	var failed []error
	for _, g := range groups {
		r.Group = g.Name
		r.Note("%s", g.Name)
		rows, took := len(r.Report.Rows), measure.Stopwatch()
		err := g.measure(ctx, r)
		r.Note("  took %.0f s", took().Seconds())
		if ctx.Err() != nil {
			err = errInterrupted
		}
		if err != nil {
			r.Report.Rows = r.Report.Rows[:rows]
			failed = append(failed, fmt.Errorf("%s: %w", g.Name, err))
			r.Note("  failed: %v", err)
			if ctx.Err() != nil {
				break
			}
			continue
		}
		r.Origin.Groups = append(r.Origin.Groups, measure.MeasuredGroup{Name: g.Name, Took: round(took())})
		r.Origin.Took = round(time.Since(r.Origin.At))
		r.Origin.Machine.Others = measure.MachineTime().OthersSince(before)
		if err := older.With(r.Report, groupNames()).Save(file); err != nil {
			return err
		}
		if file == page.PublishedReport {
			if err := thePage().Write(file, io.Discard); err != nil {
				return err
			}
		}
	}
	if len(r.Origin.Groups) > 0 {
		r.Note("written to %s", file)
		failed = append(failed, thePage().Print(r.Report, out))
	}
	return errors.Join(failed...)
}

var errInterrupted = errors.New("interrupted")

// round returns whole seconds.
func round(d time.Duration) float64 { return d.Round(time.Second).Seconds() }
