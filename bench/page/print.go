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
	shown := slices.DeleteFunc(slices.Clone(figures), func(f measure.Figure) bool {
		return !slices.ContainsFunc(rows, func(m *measure.Row) bool { return m.Series(f) != nil })
	})
	head := []string{rows[0].Group + ": " + rows[0].Workload, shown[0].Name, "±"}
	for _, f := range shown[1:] {
		head = append(head, f.Name)
	}
	all := [][]string{head}
	for _, m := range rows {
		cells := []string{m.System}
		for i, f := range shown {
			text, spread := "", ""
			if s := m.Series(f); s != nil {
				text, spread = f.Format(s.Median), fmt.Sprintf("%.0f %%", 100*s.Spread())
			}
			cells = append(cells, text)
			if i == 0 {
				cells = append(cells, spread)
			}
		}
		if m != rows[0] && rows[0].Kind == measure.Diana && shown[0].Better != measure.Neither {
			cells = append(cells, measure.RatioText(measure.TimesBetter(rows[0], m, shown[0])))
		}
		all = append(all, cells)
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
