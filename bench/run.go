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
	notes  io.Writer
}

// complete reports whether the figures may be published.
func (r *run) complete() bool {
	return len(r.groups) == len(allGroups()) && !r.quick && r.rounds >= fullRounds
}

// once returns a run with a single round, for slow workloads.
func (r *run) once() *run {
	once := *r
	once.rounds = 1
	return &once
}

// measure measures all groups, prints the report and writes it to a file.
func (r *run) measure(ctx context.Context, out io.Writer, file string) error {
	for _, g := range r.groups {
		if g.needs != nil {
			if err := g.needs(r); err != nil {
				return fmt.Errorf("%s: %w", g.name, err)
			}
		}
	}
	before := machineTime()
	for _, g := range r.groups {
		r.group = g.name
		r.note("%s", g.name)
		took := stopwatch()
		err := g.measure(ctx, r)
		r.note("  took %.0f s", took().Seconds())
		if ctx.Err() != nil {
			return errors.New("interrupted")
		}
		if err != nil {
			return fmt.Errorf("%s: %w", g.name, err)
		}
	}
	r.report.Took = time.Since(r.report.At).Round(time.Second).Seconds()
	r.report.Machine.Others = machineTime().othersSince(before)
	if err := printReport(r.report, out); err != nil {
		return err
	}
	if err := r.report.save(file); err != nil {
		return err
	}
	r.note("written to %s", file)
	return nil
}

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
