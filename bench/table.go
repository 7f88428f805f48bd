// SPDX-License-Identifier: MIT

package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// column is how a figure is printed.
type column struct {
	figure string
	format func(float64) string
	more   bool // more is better
	counts bool // is printed where it is 0 in all rows too, and none is better than another
	judges bool // who has a better one is better
}

// columns are in the order in which they are printed. The first one that a workload has
// is what Diana and the others are compared by.
var columns = []column{
	{figure: decisionRate, format: perSecondText, more: true, judges: true},
	{figure: requestRate, format: perSecondText, more: true, judges: true},
	{figure: nsOver, format: nsText, judges: true},
	{figure: requestTime, format: nsText},
	{figure: allocsOver, format: plainText, judges: true},
	{figure: bytesOver, format: plainText, judges: true},
	{figure: nsDecision, format: nsText, judges: true},
	{figure: nsRefusal, format: nsText, judges: true},
	{figure: allocs, format: plainText, judges: true},
	{figure: slowest, format: secondsText, judges: true},
	{figure: bytesKey, format: plainText, judges: true},
	{figure: gcTime, format: secondsText, judges: true},
	{figure: p50, format: secondsText, judges: true},
	{figure: p99, format: secondsText, judges: true},
	{figure: redisTime, format: secondsText, judges: true},
	{figure: serverTime, format: secondsText, judges: true},
	{figure: coreShare, format: percentText, judges: true},
	{figure: requestCalls, format: plainText, judges: true},
	{figure: admitted, format: plainText, counts: true},
	{figure: promised, format: plainText},
	{figure: offered, format: plainText},
	{figure: refusals, format: plainText},
	{figure: refusalCalls, format: plainText, counts: true},
	{figure: failures, format: plainText, judges: true},
}

// print writes the whole report as text.
func (r *report) print(w io.Writer) error {
	var b strings.Builder
	m := r.Machine
	fmt.Fprintf(&b, "%s\n%s: %d cores, %s, %s", r.Command, r.At.UTC().Format("2006-01-02 15:04 UTC"), m.Cores, m.CPU, m.Go)
	if m.Redis != "" {
		fmt.Fprintf(&b, ", Redis %s", m.Redis)
	}
	if m.Load != "" {
		fmt.Fprintf(&b, ", load before %s, %.0f %% of the cores taken by other programs", m.Load, m.Others)
	}
	fmt.Fprintf(&b, "\nmedians of %d interleaved rounds; ±: the rounds' spread; last column: how many times better Diana is\n", r.Rounds)
	if r.Quick {
		b.WriteString("a quick run: to see that all is well, not to be quoted\n")
	}
	for _, rows := range r.workloads() {
		printRows(&b, rows)
	}
	b.WriteString("\ntargets\n")
	for _, v := range r.Targets {
		word := "missed"
		if v.Met {
			word = "met"
		}
		fmt.Fprintf(&b, "  %-3s %-6s  %-68s %s\n", v.ID, word, v.Text, v.Figure)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// workloads returns the rows of each workload: Diana, the rivals, the floors.
func (r *report) workloads() (all [][]*row) {
	at := map[string]int{}
	for _, m := range r.Rows {
		name := m.Group + ": " + m.Workload
		if _, ok := at[name]; !ok {
			at[name] = len(all)
			all = append(all, nil)
		}
		all[at[name]] = append(all[at[name]], m)
	}
	order := []kind{diana, rival, floor}
	for _, rows := range all {
		slices.SortStableFunc(rows, func(a, b *row) int {
			return slices.Index(order, a.Kind) - slices.Index(order, b.Kind)
		})
	}
	return all
}

func printRows(b *strings.Builder, rows []*row) {
	shown := slices.DeleteFunc(slices.Clone(columns), func(c column) bool { return !c.worth(rows) })
	fmt.Fprintf(b, "\n%-50s", rows[0].Group+": "+rows[0].Workload)
	for i, c := range shown {
		fmt.Fprintf(b, " %14s", c.figure)
		if i == 0 {
			b.WriteString("       ±")
		}
	}
	b.WriteByte('\n')
	for _, m := range rows {
		line := fmt.Sprintf("  %-48s", m.System)
		for i, c := range shown {
			s := m.Figures[c.figure]
			if s == nil {
				s = &series{}
				line += fmt.Sprintf(" %14s", "")
			} else {
				line += fmt.Sprintf(" %14s", c.format(s.Median))
			}
			if i == 0 {
				line += fmt.Sprintf(" %5.0f %%", 100*s.spread())
			}
		}
		if m != rows[0] && !paced(m) {
			line += shown[0].comparison(rows[0], m)
		}
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
}

// worth reports whether the column says something about the rows.
func (c *column) worth(rows []*row) bool {
	return slices.ContainsFunc(rows, func(m *row) bool {
		s := m.Figures[c.figure]
		return s != nil && (c.counts || slices.Max(s.Rounds) > 0)
	})
}

// paced reports whether a row is of what is meant to take its time: none is better by being
// sooner, and what keeps a server busy is compared where both do the same work.
func paced(m *row) bool { return m.Figures[coreShare] != nil }

// better returns how many times better than another row Diana's is; 0 if that is not known.
func (c *column) better(ours, other *row) float64 {
	if c.more {
		return ratio(ours, other, c.figure)
	}
	return ratio(other, ours, c.figure)
}

// comparison is better as text.
func (c *column) comparison(ours, other *row) string {
	better := c.better(ours, other)
	if ours.Kind != diana || c.counts || better == 0 {
		return ""
	}
	return fmt.Sprintf(" %9s x", plainText(better))
}

// plainText keeps three digits that mean something.
func plainText(v float64) string {
	switch {
	case v == float64(int64(v)) || v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}

// columnOf returns the column of a figure.
func columnOf(figure string) *column {
	for i := range columns {
		if columns[i].figure == figure {
			return &columns[i]
		}
	}
	return &column{figure: figure, format: plainText}
}

// formatOf returns how a figure is printed.
func formatOf(figure string) func(float64) string { return columnOf(figure).format }

func nsText(v float64) string { return plainText(v) + " ns" }

func perSecondText(v float64) string { return plainText(v/1000) + " k/s" }

func secondsText(v float64) string {
	if v < 0.001 {
		return plainText(v*1e6) + " µs"
	}
	if v < 1 {
		return plainText(v*1e3) + " ms"
	}
	return plainText(v) + " s"
}

func percentText(v float64) string { return plainText(v) + " %" }
