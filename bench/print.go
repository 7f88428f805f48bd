// SPDX-License-Identifier: MIT

package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
)

// print writes all rows, and the lines of each group, as text.
func printReport(r *report, out io.Writer) error {
	var b strings.Builder
	b.WriteString(about(r))
	if slices.ContainsFunc(r.Origins, func(o *origin) bool { return o.Quick }) {
		b.WriteString("- This was a quick run: do not quote its figures.\n")
	}
	figures := figuresOfGroups()
	for _, rows := range r.workloads() {
		b.WriteByte('\n')
		for _, cells := range printedRows(rows, figures[rows[0].Group]) {
			b.WriteString(strings.Join(cells, "\t") + "\n")
		}
	}
	for _, g := range allGroups() {
		if g.title == "" || !slices.ContainsFunc(r.Rows, func(m *row) bool { return m.Group == g.name }) {
			continue
		}
		if g.table != nil {
			b.WriteString("\n" + g.table(r))
		}
		b.WriteString("\n" + g.title + "\t" + strings.Join(lineHead, "\t") + "\n")
		for _, l := range g.lines {
			b.WriteString(strings.Join(l.cells(r), "\t") + "\n")
		}
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	if _, err := io.WriteString(w, b.String()); err != nil {
		return err
	}
	return w.Flush()
}

// printedRows returns the cells of a workload: a row to a line, a figure to a column. The last
// cell says how many times better the first row is.
func printedRows(rows []*row, figures []figure) [][]string {
	shown := slices.DeleteFunc(slices.Clone(figures), func(f figure) bool {
		return !slices.ContainsFunc(rows, func(m *row) bool { return m.series(f) != nil })
	})
	head := []string{rows[0].Group + ": " + rows[0].Workload, shown[0].name, "±"}
	for _, f := range shown[1:] {
		head = append(head, f.name)
	}
	all := [][]string{head}
	for _, m := range rows {
		cells := []string{"  " + m.System}
		for i, f := range shown {
			text, spread := "", ""
			if s := m.series(f); s != nil {
				text, spread = f.format(s.Median), fmt.Sprintf("%.0f %%", 100*s.spread())
			}
			cells = append(cells, text)
			if i == 0 {
				cells = append(cells, spread)
			}
		}
		if m != rows[0] && rows[0].Kind == diana && shown[0].better != neither {
			cells = append(cells, ratioText(timesBetter(rows[0], m, shown[0])))
		}
		all = append(all, cells)
	}
	return all
}

// figuresOfGroups returns the figures of each group by its name.
func figuresOfGroups() map[string][]figure {
	all := map[string][]figure{}
	for _, g := range allGroups() {
		all[g.name] = g.figures
	}
	return all
}
