// SPDX-License-Identifier: MIT

// Package measure measures systems side by side: runs and their rounds, paired slices, loads, the servers that they
// need, and the report of the figures.
package measure

import (
	"context"
	"fmt"
	"io"
	"time"
)

// FullRounds is the number of rounds of a run whose figures may be published.
const FullRounds = 5

// Run is one run of the program.
type Run struct {
	Group  string // the name of the group that is measured
	Rounds int
	Again  bool // only how well the ratios of the published report are repeated is saved
	Quick  bool // nobody quotes the figures: rows keep their names, and the work behind them is small
	Report *Report
	Origin *Origin // of the report, which has no other
	Notes  io.Writer

	Diana string // the program to measure; "" builds one for each group that needs it
}

// AtMost returns a run with at most n rounds, for slow workloads.
func (r *Run) AtMost(n int) *Run {
	some := *r
	some.Rounds = min(r.Rounds, n)
	return &some
}

// Note writes a line of progress.
func (r *Run) Note(format string, args ...any) {
	_, _ = fmt.Fprintf(r.Notes, format+"\n", args...) // progress is optional
}

// Span returns how long to measure.
func (r *Run) Span(full time.Duration) time.Duration {
	if r.Quick {
		return 2 * time.Millisecond
	}
	return full
}

// Count returns how many times to measure.
func (r *Run) Count(full int) int {
	if r.Quick {
		return full/5000 + 1
	}
	return full
}

// Interleave measures each of n systems once a round. Each round begins with another system,
// so that no system always follows the same one.
func (r *Run) Interleave(ctx context.Context, n int, measure func(round, i int) error) error {
	for round := range r.Rounds {
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

// Row returns a row of the report. It adds the row if there is none.
func (r *Run) Row(workload, system string, k Kind) *Row {
	m := r.Report.Find(workload, system)
	if m == nil {
		m = &Row{Group: r.Group, Workload: workload, System: system, Kind: k, Figures: map[string]*Series{}}
		r.Report.Rows = append(r.Report.Rows, m)
	}
	return m
}

// Working returns row with the work that the system does, where not all systems of a workload
// do the same.
func (r *Run) Working(workload, system, work string, k Kind) *Row {
	m := r.Row(workload, system, k)
	m.Work = work
	return m
}
