// SPDX-License-Identifier: MIT

// Bench measures Diana, its rivals and the floors side by side, interleaved in one run.
//
//	bench [-run groups] [-quick] [-again]
//	bench page
//
// It prints every figure and the targets that Diana meets or misses. After each group it writes docs/performance.json and
// docs/performance.md, so an interruption loses only the group that it interrupts. Other groups keep their older figures,
// each with its date and its machine. It starts the servers that it needs, and exits with 0 whatever the figures are.
//
// With -again it writes only how many ratios differ by at most a tenth from those of the report. With -quick it writes a
// file in results/ instead. The command page makes the page from docs/performance.json.
//
// A group is one file that measures something and one line in allGroups. Files whose names begin with the name of a group
// belong to it. diana.go holds calls to Diana's API.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
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
		middlewareGroup(),
		globalGroup(),
		exactnessGroup(),
		gatewayGroup(),
		reloadGroup(),
		overloadGroup(),
		liveGroup(),
		decisionsGroup(),
	}
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	err := command(ctx, os.Args[1:])
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// command runs a subcommand, or a measurement if there is none.
func command(ctx context.Context, args []string) error {
	switch {
	case len(args) == 4 && args[0] == measure.ServeCommand:
		return serve(ctx, args[1], args[2], args[3])
	case len(args) == 1 && args[0] == "page":
		return thePage().Write(page.PublishedReport)
	}
	r, groups, file, err := newRun(args, os.Stderr)
	if err != nil {
		return err
	}
	return measureAll(ctx, r, groups, os.Stdout, file)
}

// serve is a server that a group starts: one of rivals.Handler, or a library by its name.
func serve(ctx context.Context, address, kind, argument string) error {
	h, err := rivals.Handler(ctx, kind, argument)
	compared := h != nil && kind != "upstream"
	if h == nil && err == nil {
		h, err = exactHandler(ctx, kind, argument)
	}
	if err != nil {
		return err
	}
	return rivals.Serve(ctx, address, h, compared)
}

// newRun parses the arguments. It also returns the groups to measure, and the file for the figures.
func newRun(args []string, notes io.Writer) (r *measure.Run, groups []group, file string, err error) {
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.SetOutput(notes)
	r = &measure.Run{Notes: notes, Rounds: measure.FullRounds}
	every := strings.Join(groupNames(), ",")
	names := f.String("run", strings.Replace(every, ","+liveName, "", 1), "groups to measure, some of "+every)
	f.BoolVar(&r.Quick, "quick", false, "do each thing for a moment: to test the program, not to quote the figures")
	f.BoolVar(&r.Again, "again", false, "write only by how much the ratios differ from those of docs/performance.json")
	if err := f.Parse(args); err != nil {
		return nil, nil, "", err
	}
	wanted := strings.Split(*names, ",")
	groups = slices.DeleteFunc(allGroups(), func(g group) bool { return !slices.Contains(wanted, g.Name) })
	if len(groups) != len(wanted) || f.NArg() > 0 {
		return nil, nil, "", fmt.Errorf("-run is %q with the arguments %q, expected some of %s and no arguments", *names, f.Args(), every)
	}
	file = page.PublishedReport
	now := time.Now()
	if r.Quick {
		r.Rounds, file = 1, filepath.Join("results", now.UTC().Format("20060102-150405")+".json")
	}
	r.Origin = &measure.Origin{
		At: now, Command: strings.Join(append([]string{"bench"}, args...), " "),
		Revision: measure.Revision(), Machine: measure.ThisMachine(), Rounds: r.Rounds, Quick: r.Quick,
	}
	r.Report = &measure.Report{Origins: []*measure.Origin{r.Origin}}
	return r, groups, file, nil
}

func groupNames() (names []string) {
	for _, g := range allGroups() {
		names = append(names, g.Name)
	}
	return names
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
		r.Group, r.Origin.Noise = g.Name, ""
		r.Note("%s", g.Name)
		rows, began := len(r.Report.Rows), time.Now()
		err := g.measure(ctx, r)
		r.Note("  took %.0f s", time.Since(began).Seconds())
		if ctx.Err() != nil {
			err = errInterrupted
		}
		if err != nil {
			r.Report.Rows = r.Report.Rows[:rows]
			failed = append(failed, fmt.Errorf("%s: %w", g.Name, err))
			r.Note("  failed: %v", err)
		}
		if ctx.Err() != nil {
			break
		}
		if err != nil {
			continue
		}
		r.Origin.Groups = append(r.Origin.Groups, measure.MeasuredGroup{Name: g.Name, Took: math.Round(time.Since(began).Seconds()), Noise: r.Origin.Noise})
		r.Origin.Took = math.Round(time.Since(r.Origin.At).Seconds())
		r.Origin.Machine.Others = measure.MachineTime().OthersSince(before)
		all := older.With(r.Report, groupNames())
		if r.Again {
			all, older.Again = older, thePage().Compare(older, r.Report)
		}
		if err = all.Save(file); err == nil && file == page.PublishedReport {
			err = thePage().Write(file)
		}
		if err != nil {
			return err
		}
	}
	if len(r.Origin.Groups) > 0 {
		r.Note("written to %s", file)
		failed = append(failed, thePage().Print(r.Report, out))
	}
	return errors.Join(failed...)
}

var errInterrupted = errors.New("interrupted")
