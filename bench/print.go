// SPDX-License-Identifier: MIT

package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// print writes all rows and the lines of each group as text.
func (r *report) print(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprint(w, r.about())
	if r.Quick {
		fmt.Fprintln(w, "a quick run: do not quote its figures")
	}
	figures := r.figures()
	for _, rows := range r.workloads() {
		printRows(w, rows, figures[rows[0].Group])
	}
	for _, g := range r.measuredGroups() {
		fmt.Fprintf(w, "\n%s\n", strings.Join(append([]string{g.title}, lineHead...), "\t"))
		for _, l := range g.lines {
			fmt.Fprintln(w, strings.Join(l.cells(r), "\t"))
		}
	}
	return w.Flush()
}

// printRows writes a workload: a row to a line, a figure to a column. The last column says how
// many times better the first row is than each of the others.
func printRows(w io.Writer, rows []*row, figures []figure) {
	var shown []figure
	for _, f := range figures {
		for _, m := range rows {
			if m.of(f) != nil {
				shown = append(shown, f)
				break
			}
		}
	}
	fmt.Fprintf(w, "\n%s: %s", rows[0].Group, rows[0].Workload)
	for i, f := range shown {
		fmt.Fprintf(w, "\t%s", f.name)
		if i == 0 {
			fmt.Fprint(w, "\t±")
		}
	}
	fmt.Fprintln(w)
	for _, m := range rows {
		line := "  " + m.System
		for i, f := range shown {
			s, text, spread := m.of(f), "", ""
			if s != nil {
				text, spread = f.format(s.Median), fmt.Sprintf("%.0f %%", 100*s.spread())
			}
			line += "\t" + text
			if i == 0 {
				line += "\t" + spread
			}
		}
		if m != rows[0] && rows[0].Kind == diana && shown[0].better != neither {
			line += "\t" + ratioText(timesBetter(rows[0], m, shown[0]))
		}
		fmt.Fprintln(w, line)
	}
}

// figures returns the figures of each group, by its name.
func (r *report) figures() map[string][]figure {
	all := map[string][]figure{}
	for _, g := range allGroups() {
		all[g.name] = g.figures
	}
	return all
}

// measuredGroups returns the groups with a table of which the report has rows.
func (r *report) measuredGroups() (measured []group) {
	for _, g := range allGroups() {
		for _, m := range r.Rows {
			if m.Group == g.name && g.title != "" {
				measured = append(measured, g)
				break
			}
		}
	}
	return measured
}
