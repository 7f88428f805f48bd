// SPDX-License-Identifier: MIT

// Package page makes the published page of the figures, and the text that a run prints.
package page

import (
	"fmt"
	"slices"

	"github.com/diana-limiter/diana/bench/measure"
)

// Line is a line of a group's table: a figure of Diana, alone or beside another system, and
// the target for it if there is one.
type Line struct {
	what     string
	workload string
	figure   measure.Figure
	system   string   // of Diana
	beside   []string // the systems it is compared with; the best one counts
	Target   string   // such as "L1"
	bound    Bound

	// custom measures what is not one figure of one row. It returns false if the run has not
	// measured it.
	custom func(*measure.Report) (Measured, bool)
}

// Measured is what a run says about a line.
type Measured struct {
	Diana, beside string

	Value float64 // Diana's figure
	ratio float64 // 0 without another system beside it
}

// Bound is what a target demands.
type Bound struct {
	Text string
	Met  func(Measured) bool
}

// BestRival stands for all rivals that do the same work.
const BestRival = "the best rival"

// Compare makes a line that compares a figure of Diana with other systems. A ratio to a rival
// says how many times better Diana is. A ratio to a floor, or to another row of Diana, is
// Diana's figure divided by the other one.
func Compare(what, workload string, f measure.Figure, system string, beside ...string) Line {
	return Line{what: what, workload: workload, figure: f, system: system, beside: beside}
}

// Custom makes a line that measure measures.
func Custom(what string, measure func(*measure.Report) (Measured, bool)) Line {
	return Line{what: what, custom: measure}
}

// Must adds a target.
func (l Line) Must(target string, b Bound) Line {
	l.Target, l.bound = target, b
	return l
}

// RatioAtLeast is a bound of the ratio.
func RatioAtLeast(least float64) Bound {
	return Bound{fmt.Sprintf("≥ %g x", least), func(m Measured) bool { return m.ratio >= least }}
}

// RatioAtMost is a bound of the ratio.
func RatioAtMost(most float64) Bound {
	return Bound{fmt.Sprintf("≤ %g x", most), func(m Measured) bool { return m.ratio <= most }}
}

// AtMost is a bound of Diana's figure.
func AtMost(f measure.Figure, most float64) Bound {
	return Bound{"≤ " + f.Format(most), func(m Measured) bool { return m.Value <= most }}
}

// measure returns what the report says about the line.
func (l *Line) measure(r *measure.Report) (Measured, bool) {
	if l.custom != nil {
		return l.custom(r)
	}
	ours := r.Find(l.workload, l.system)
	if ours.Series(l.figure) == nil {
		return Measured{}, false
	}
	m := Measured{Value: ours.Series(l.figure).Median}
	m.Diana = l.figure.Format(m.Value)
	if len(l.beside) == 0 {
		return m, true
	}
	theirs := r.Best(ours, l.figure, l.candidate)
	if theirs == nil {
		return Measured{}, false
	}
	m.beside = l.figure.Format(theirs.Series(l.figure).Median) + ", " + theirs.System
	m.ratio = measure.Ratio(ours, theirs, l.figure)
	if theirs.Kind == measure.Rival {
		m.ratio = measure.TimesBetter(ours, theirs, l.figure)
	}
	return m, true
}

// candidate reports whether Diana's row is compared with another one.
func (l *Line) candidate(ours, other *measure.Row) bool {
	if slices.Contains(l.beside, BestRival) && alike(ours, other) {
		return true
	}
	return slices.Contains(l.beside, other.System)
}

// alike reports whether a row is of a rival that does the same work.
func alike(ours, other *measure.Row) bool {
	return other.Kind == measure.Rival && other.Work == ours.Work
}

// Verdict returns "met", "missed" or "not measured", or "" for a line without a target.
func (l *Line) Verdict(r *measure.Report) string {
	if l.Target == "" {
		return ""
	}
	switch m, ok := l.measure(r); {
	case !ok:
		return "not measured"
	case l.bound.Met(m):
		return "met"
	}
	return "missed"
}

// Cells returns the line as cells of a table: what, Diana, beside, ratio, target, verdict.
func (l *Line) Cells(r *measure.Report) []string {
	m, ok := l.measure(r)
	if !ok {
		m.Diana = "-"
	}
	target := l.Target
	if target != "" {
		target += ": " + l.bound.Text
	}
	return []string{l.what, m.Diana, m.beside, measure.RatioText(m.ratio), target, l.Verdict(r)}
}
