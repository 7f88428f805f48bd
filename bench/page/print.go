// SPDX-License-Identifier: MIT

package page

import (
	"fmt"
	"io"
	"slices"

	"github.com/diana-limiter/diana/bench/measure"
)

// Print writes all rows, and the tables of the page.
func (p *Page) Print(r *measure.Report, out io.Writer) error {
	text := about(r)
	if slices.ContainsFunc(r.Origins, func(o *measure.Origin) bool { return o.Quick }) {
		text += "- This was a quick run: do not quote its figures.\n"
	}
	figures := p.figures()
	for _, rows := range r.Workloads() {
		cells := printedRows(rows, figures[rows[0].Group])
		text += "\n" + Table(cells[0], cells[1:])
	}
	_, err := io.WriteString(out, text+"\n"+p.tablesBlock(r))
	return err
}

// printedRows returns the cells of a workload: a row to a line, a figure to a column. The last
// cell says how many times better the first row is.
func printedRows(rows []*measure.Row, figures []measure.Figure) [][]string {
	all := [][]string{{rows[0].Group + ": " + rows[0].Workload}}
	for _, m := range rows {
		all = append(all, []string{m.System})
	}
	var first *measure.Figure
	for _, f := range figures {
		if !slices.ContainsFunc(rows, func(m *measure.Row) bool { return m.Series(f) != nil }) {
			continue
		}
		all[0] = append(all[0], f.Name)
		for i, m := range rows {
			text := ""
			if s := m.Series(f); s != nil {
				text = f.Format(s.Median)
				if first == nil {
					text += fmt.Sprintf(" ± %.0f %%", 100*s.Spread())
				}
			}
			all[i+1] = append(all[i+1], text)
		}
		if first == nil {
			first = &f
		}
	}
	for i, m := range rows[1:] {
		if rows[0].Kind == measure.Diana && first.Better != measure.Neither {
			all[i+2] = append(all[i+2], measure.RatioText(measure.TimesBetter(rows[0], m, *first)))
		}
	}
	return all
}

// figures returns the figures of each group by its name.
func (p *Page) figures() map[string][]measure.Figure {
	all := map[string][]measure.Figure{}
	for _, g := range p.Groups {
		all[g.Name] = g.Figures
	}
	return all
}
