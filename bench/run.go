// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

// run is one run of the program.
type run struct {
	groups []group
	group  string // that is being measured
	rounds int
	quick  bool
	tiny   bool // a test, which needs no figures
	report *report
	notes  io.Writer
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
		err := g.measure(ctx, r)
		if ctx.Err() != nil {
			return errors.New("interrupted")
		}
		if err != nil {
			return fmt.Errorf("%s: %w", g.name, err)
		}
	}
	r.report.Took = time.Since(r.report.At).Round(time.Second).Seconds()
	r.report.Machine.Others = machineTime().othersSince(before)
	r.report.Targets = judge(r.report)
	if err := r.report.print(out); err != nil {
		return err
	}
	if err := r.report.save(file); err != nil {
		return err
	}
	r.note("written to %s", file)
	return nil
}

// note tells whoever waits what is going on.
func (r *run) note(format string, args ...any) {
	_, _ = fmt.Fprintf(r.notes, format+"\n", args...) // nothing depends on it
}

// span returns for how long something is measured.
func (r *run) span(full, quick time.Duration) time.Duration {
	switch {
	case r.tiny:
		return 2 * time.Millisecond
	case r.quick:
		return quick
	}
	return full
}

// count returns how often something is measured.
func (r *run) count(full, quick int) int {
	switch {
	case r.tiny:
		return quick/500 + 1
	case r.quick:
		return quick
	}
	return full
}

// interleave has every one of n measured once in each round. Each round begins with
// another, so that none is always measured after the same one.
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

// row returns a row of the report, which is made if there is none.
func (r *run) row(workload, system string, k kind) *row {
	m := r.report.find(workload, system)
	if m == nil {
		m = &row{Group: r.group, Workload: workload, System: system, Kind: k, Figures: map[string]*series{}}
		r.report.Rows = append(r.report.Rows, m)
	}
	return m
}

// stopwatch notes how long something takes.
func stopwatch() func() time.Duration {
	begin := time.Now()
	return func() time.Duration { return time.Since(begin) }
}
