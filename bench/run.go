// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

// fullRounds is the number of rounds of a run whose figures may be published.
const fullRounds = 5

// run is one run of the program.
type run struct {
	groups []group
	group  string // the name of the group that is measured
	rounds int
	quick  bool
	tiny   bool // a test, which ignores the figures
	report *report
	origin *origin // of the report, which has no other
	notes  io.Writer
}

// publishable reports whether the figures may be published.
func (r *run) publishable() bool { return !r.quick && r.rounds >= fullRounds }

// atMost returns a run with at most n rounds, for slow workloads.
func (r *run) atMost(n int) *run {
	some := *r
	some.rounds = min(r.rounds, n)
	return &some
}

// measure measures all groups and prints the report. It saves the figures of a group as soon as it has
// them, and continues after a group that fails. An interrupted or failed group keeps its older figures.
func (r *run) measure(ctx context.Context, out io.Writer, file string) error {
	for _, g := range r.groups {
		if g.needs != nil {
			if err := g.needs(r); err != nil {
				return fmt.Errorf("%s: %w", g.name, err)
			}
		}
	}
	older, err := readReport(file)
	if err != nil {
		return err
	}
	before := machineTime()
	var failed []error
	for _, g := range r.groups {
		r.group = g.name
		r.note("%s", g.name)
		rows, took := len(r.report.Rows), stopwatch()
		err := g.measure(ctx, r)
		r.note("  took %.0f s", took().Seconds())
		if ctx.Err() != nil {
			err = errInterrupted
		}
		if err != nil {
			r.report.Rows = r.report.Rows[:rows]
			failed = append(failed, fmt.Errorf("%s: %w", g.name, err))
			r.note("  failed: %v", err)
			if ctx.Err() != nil {
				break
			}
			continue
		}
		r.origin.Groups = append(r.origin.Groups, measuredGroup{g.name, round(took())})
		r.origin.Took = round(time.Since(r.origin.At))
		r.origin.Machine.Others = machineTime().othersSince(before)
		if err := save(older.with(r.report), file); err != nil {
			return err
		}
	}
	if len(r.origin.Groups) > 0 {
		r.note("written to %s", file)
		failed = append(failed, printReport(r.report, out))
	}
	return errors.Join(failed...)
}

var errInterrupted = errors.New("interrupted")

// save writes a report, and the page if the report has one.
func save(r *report, file string) error {
	if err := r.save(file); err != nil || file != publishedReport {
		return err
	}
	return runPage(nil, io.Discard)
}

// round returns whole seconds.
func round(d time.Duration) float64 { return d.Round(time.Second).Seconds() }

// note writes a line of progress.
func (r *run) note(format string, args ...any) {
	_, _ = fmt.Fprintf(r.notes, format+"\n", args...) // progress is optional
}

// span returns how long to measure.
func (r *run) span(full, quick time.Duration) time.Duration {
	switch {
	case r.tiny:
		return 2 * time.Millisecond
	case r.quick:
		return quick
	}
	return full
}

// count returns how many times to measure.
func (r *run) count(full, quick int) int {
	switch {
	case r.tiny:
		return quick/500 + 1
	case r.quick:
		return quick
	}
	return full
}

// interleave measures each of n systems once a round. Each round begins with another system,
// so that no system always follows the same one.
func (r *run) interleave(ctx context.Context, n int, measure func(round, i int) error) error {
	for round := range r.rounds {
		for k := range n {
			if err := ctx.Err(); err != nil {
				return err
			}
			if err := measure(round, (round+k)%n); err != nil {
				return err
			}
		}
	}
	return nil
}

// row returns a row of the report. It adds the row if there is none.
func (r *run) row(workload, system string, k kind) *row {
	m := r.report.find(workload, system)
	if m == nil {
		m = &row{Group: r.group, Workload: workload, System: system, Kind: k, Figures: map[string]*series{}}
		r.report.Rows = append(r.report.Rows, m)
	}
	return m
}

// working returns row with the work that the system does, where not all systems of a workload
// do the same.
func (r *run) working(workload, system, work string, k kind) *row {
	m := r.row(workload, system, k)
	m.Work = work
	return m
}

// stopwatch returns a function that returns the time since.
func stopwatch() func() time.Duration {
	begin := time.Now()
	return func() time.Duration { return time.Since(begin) }
}
