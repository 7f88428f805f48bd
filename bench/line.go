// SPDX-License-Identifier: MIT

package main

import (
	"fmt"
	"slices"
)

// line is a line of a group's table: a figure of Diana, alone or beside another system, and
// the target for it if there is one.
type line struct {
	what     string
	workload string
	figure   figure
	system   string   // of Diana
	beside   []string // the systems it is compared with; the best one counts
	target   string   // such as "L1"
	bound    bound

	// custom measures what is not one figure of one row. It returns false if the run has not
	// measured it.
	custom func(*report) (measured, bool)
}

// measured is what a run says about a line.
type measured struct {
	diana, beside string

	value float64 // Diana's figure
	ratio float64 // 0 without another system beside it
}

// bound is what a target demands.
type bound struct {
	text string
	met  func(measured) bool
}

// bestRival stands for all rivals that do the same work.
const bestRival = "the best rival"

// compare makes a line that compares a figure of Diana with other systems. A ratio to a rival
// says how many times better Diana is. A ratio to a floor, or to another row of Diana, is
// Diana's figure divided by the other one.
func compare(what, workload string, f figure, system string, beside ...string) line {
	return line{what: what, workload: workload, figure: f, system: system, beside: beside}
}

// custom makes a line that measure measures.
func custom(what string, measure func(*report) (measured, bool)) line {
	return line{what: what, custom: measure}
}

// must adds a target.
func (l line) must(target string, b bound) line {
	l.target, l.bound = target, b
	return l
}

// Bounds of the ratio.

func ratioAtLeast(least float64) bound {
	return bound{fmt.Sprintf("at least %g x", least), func(m measured) bool { return m.ratio >= least }}
}

func ratioAtMost(most float64) bound {
	return bound{fmt.Sprintf("at most %g x", most), func(m measured) bool { return m.ratio <= most }}
}

// atMost is a bound of Diana's figure.
func atMost(f figure, most float64) bound {
	return bound{"at most " + f.format(most), func(m measured) bool { return m.value <= most }}
}

// measure returns what the report says about the line.
func (l *line) measure(r *report) (measured, bool) {
	if l.custom != nil {
		return l.custom(r)
	}
	ours := r.find(l.workload, l.system)
	if ours.series(l.figure) == nil {
		return measured{}, false
	}
	m := measured{value: ours.series(l.figure).Median}
	m.diana = l.figure.format(m.value)
	if len(l.beside) == 0 {
		return m, true
	}
	theirs := r.best(ours, l.figure, l.candidate)
	if theirs == nil {
		return measured{}, false
	}
	m.beside = l.figure.format(theirs.series(l.figure).Median) + ", " + theirs.System
	m.ratio = ratio(ours, theirs, l.figure)
	if theirs.Kind == rival {
		m.ratio = timesBetter(ours, theirs, l.figure)
	}
	return m, true
}

// candidate reports whether Diana's row is compared with another one.
func (l *line) candidate(ours, other *row) bool {
	if slices.Contains(l.beside, bestRival) && alike(ours, other) {
		return true
	}
	return slices.Contains(l.beside, other.System)
}

// alike reports whether a row is of a rival that does the same work.
func alike(ours, other *row) bool { return other.Kind == rival && other.Work == ours.Work }

// sameWork reports whether a row is of a rival that may be called better or worse than ours.
func sameWork(ours, other *row) bool { return alike(ours, other) && !unlike(ours, other) }

// verdict returns "met", "missed" or "not measured", or "" for a line without a target.
func (l *line) verdict(r *report) string {
	if l.target == "" {
		return ""
	}
	switch m, ok := l.measure(r); {
	case !ok:
		return "not measured"
	case l.bound.met(m):
		return "met"
	}
	return "missed"
}

// cells returns the line as cells of a table: what, Diana, beside, ratio, target, verdict.
func (l *line) cells(r *report) []string {
	m, ok := l.measure(r)
	if !ok {
		m.diana = "-"
	}
	target := l.target
	if target != "" {
		target += ": " + l.bound.text
	}
	return []string{l.what, m.diana, m.beside, ratioText(m.ratio), target, l.verdict(r)}
}
