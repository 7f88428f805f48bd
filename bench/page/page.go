// SPDX-License-Identifier: MIT

package page

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/diana-limiter/diana/bench/measure"
)

// The published page is docs/performance.md. This program makes its parts between the marks
// "made" and "end" from the report beside it. All other text is written by
// hand in the page. A test compares the page with its report.

// PublishedReport is the report of the page in this repository.
var PublishedReport = filepath.Join("..", "docs", "performance.json")

// Page is what all groups show.
type Page struct {
	Groups []Chapter

	// Unlike reports whether a row of Diana and one of a rival are in the same workload, but do not do the
	// same work. Targets compare some of them.
	Unlike func(ours, theirs *measure.Row) bool
}

// Chapter is what a group shows: a table of the page.
type Chapter struct {
	Name    string           // of the group
	Title   string           // of its table; "" if its rows belong to the table of another group
	Figures []measure.Figure // in the order in which they are printed
	Lines   []Line           // of its table

	// Table makes the table of a group whose figures are not lines. The lines then follow as a list. It
	// may be nil.
	Table func(*measure.Report) string
}

// Write makes the page beside a report.
func (p *Page) Write(file string) error {
	name, text, err := p.Published(file)
	if err != nil {
		return err
	}
	return os.WriteFile(name, text, 0o644)
}

// Published returns the page beside a report.
func (p *Page) Published(file string) (name string, text []byte, err error) {
	r, err := measure.ReadReport(file)
	if err != nil {
		return "", nil, err
	}
	name = strings.TrimSuffix(file, ".json") + ".md"
	if text, err = os.ReadFile(name); err != nil {
		return "", nil, err
	}
	blocks := map[string]string{"run": about(r), "tables": p.tablesBlock(r), "better": p.BetterBlock(r)}
	text = madeBlock.ReplaceAllFunc(text, func(block []byte) []byte {
		m := madeBlock.FindSubmatch(block)
		return slices.Concat(m[1], []byte(blocks[string(m[2])]), m[3])
	})
	return name, text, nil
}

// madeBlock is the text between the marks of a block, with its name.
var madeBlock = regexp.MustCompile(`(?s)(<!-- made: (\w+) -->\n).*?(<!-- end -->)`)

// about says what was measured, when, on what, and how.
func about(r *measure.Report) string {
	var b strings.Builder
	before := ""
	for _, o := range r.Origins {
		m, command := o.Machine, strings.TrimPrefix(o.Command, "bench")
		if command != "" {
			command = " BENCH='" + strings.TrimSpace(command) + "'"
		}
		versions := m.Go
		for _, v := range [][2]string{{", Redis ", m.Redis}, {", wrk ", m.Wrk}, {", ", m.Nginx}} {
			if v[1] != "" {
				versions += v[0] + v[1]
			}
		}
		var groups []string
		for _, g := range o.Groups {
			if g.Noise != "" {
				g.Name += " (" + g.Noise + ")"
			}
			groups = append(groups, g.Name)
		}
		processor := fmt.Sprintf("%d cores, %s, %s", m.Cores, m.CPU, m.OS)
		if before == processor {
			processor = "The same processor"
		} else {
			before = processor
		}
		fmt.Fprintf(&b, "- `make bench%s`, %s, %.1f minutes, %d rounds: %s. %s. Diana %s, %s. Others used %.0f %%.\n", command,
			o.At.UTC().Format(time.DateOnly), o.Took/60, o.Rounds, strings.Join(groups, ", "), processor, o.Revision, versions, m.Others)
	}
	if a := r.Again; a != nil {
		fmt.Fprintf(&b, "- A second run, %s: %d of %d ratios differ by at most 10 %%, and the most by %.0f %%: %s.\n",
			a.At.UTC().Format(time.DateOnly), a.Agreed, a.Ratios, 100*a.Most, a.What)
	}
	fmt.Fprintf(&b, "- The lowest and the highest round differ by at most %.0f %% of the median for half of the figures, %.0f %% for nine in ten.\n",
		100*r.Spread(0.5), 100*r.Spread(0.9))
	return b.String()
}

// Compare says how well a second run repeated the ratios of a first one.
func (p *Page) Compare(first, second *measure.Report) *measure.Again {
	a := &measure.Again{At: second.Origins[0].At}
	for _, g := range p.Groups {
		for _, l := range g.Lines {
			was, _ := l.measure(first)
			is, _ := l.measure(second)
			if was.ratio == 0 || is.ratio == 0 {
				continue
			}
			a.Ratios++
			d := math.Abs(is.ratio/was.ratio - 1)
			if d <= 0.1 {
				a.Agreed++
			}
			if d >= a.Most {
				a.Most, a.What = d, l.what
			}
		}
	}
	return a
}

// lineHead names the columns of a group's table, except the first.
var lineHead = []string{"Diana", "beside", "ratio", "target", ""}

// tablesBlock returns the number of targets met, and a table for each group.
func (p *Page) tablesBlock(r *measure.Report) string {
	var b strings.Builder
	verdicts := map[string]int{}
	for _, g := range p.Groups {
		if g.Title == "" || !slices.ContainsFunc(r.Rows, func(m *measure.Row) bool { return m.Group == g.Name }) {
			continue
		}
		var lines [][]string
		for _, l := range g.Lines {
			verdicts[l.Verdict(r)]++
		}
		for _, l := range shown(r, g.Lines) {
			cells := l.Cells(r)
			if last := &cells[len(cells)-1]; *last == "missed" {
				*last = "**missed**"
			}
			lines = append(lines, cells)
		}
		if g.Table != nil {
			b.WriteString("\n" + g.Table(r) + itemsOf(lines))
			continue
		}
		b.WriteString("\n" + Table(append([]string{g.Title}, lineHead...), lines))
	}
	met, missed := verdicts["met"], verdicts["missed"]
	summary := fmt.Sprintf("Diana meets %d of the %d targets that were measured.", met, met+missed)
	if others := verdicts["not measured"]; others > 0 {
		summary += fmt.Sprintf(" Not measured: %d.", others)
	}
	return summary + "\n" + b.String()
}

// shown returns the lines that the page shows. A target with several lines shows those that are missed, and
// its first line if none is.
func shown(r *measure.Report, lines []Line) (some []Line) {
	missed := map[string]bool{}
	for _, l := range lines {
		missed[l.Target] = missed[l.Target] || l.Verdict(r) == "missed"
	}
	first := map[string]bool{}
	var same string // what "the same" stands for
	before := false // the line before is shown
	for _, l := range lines {
		show := l.Target == "" || !first[l.Target]
		if missed[l.Target] {
			show = l.Target == "" || l.Verdict(r) == "missed"
		}
		first[l.Target] = true
		rest, isSame := strings.CutPrefix(l.what, "the same")
		if !isSame {
			same = l.what
		} else if !before {
			l.what = same + rest
			if strings.HasPrefix(rest, ":") {
				begin, _, _ := strings.Cut(same, ":")
				l.what = begin + rest
			}
		}
		if before = show; show {
			some = append(some, l)
		}
	}
	return some
}

// BetterBlock lists every workload in which a rival that does the same work is better than Diana by more
// than a twentieth. A line has the first figure of which that is true, and the names of the others.
func (p *Page) BetterBlock(r *measure.Report) string {
	var lines [][]string
	figures := p.figures()
	for _, rows := range r.Workloads() {
		var line, also []string
		for _, f := range figures[rows[0].Group] {
			if cells := p.betterThan(rows, f); cells != nil && line == nil {
				line = append([]string{rows[0].Group + ": " + rows[0].Workload, f.Name}, cells...)
			} else if cells != nil {
				also = append(also, f.Name)
			}
		}
		if also != nil {
			line[1] += "; also " + strings.Join(also, ", ")
		}
		if line != nil {
			lines = append(lines, line)
		}
	}
	if len(lines) == 0 {
		return "None in this run.\n"
	}
	return Table([]string{"workload", "figure", "the best rival", "Diana"}, lines)
}

// betterThan compares the rows of a workload in one figure. It returns the best rival and Diana's row that
// is the furthest behind it, or nil.
func (p *Page) betterThan(rows []*measure.Row, f measure.Figure) (cells []string) {
	named := func(m *measure.Row) string { return fmt.Sprintf("%s (%s)", f.Format(m.Series(f).Median), m.System) }
	most := 0.0
	for _, ours := range rows {
		if ours.Kind != measure.Diana || ours.Series(f) == nil || f.Better == measure.Neither {
			continue
		}
		var best *measure.Row
		n, behind := 0, 0.0
		for _, m := range rows {
			if !alike(ours, m) || p.Unlike(ours, m) || m.Series(f) == nil || f.Format(m.Series(f).Median) == f.Format(ours.Series(f).Median) {
				continue // nobody sees a smaller difference
			}
			x, y := ours.Series(f).Median, m.Series(f).Median
			times := y / x
			if f.Better == measure.Less {
				times = x / y // infinite beside 0
			}
			if f.Better == measure.More && y <= x+x/20 || f.Better == measure.Less && y >= x-x/20 {
				continue
			}
			if n++; times >= behind {
				best, behind = m, times
			}
		}
		if best == nil || cells != nil && behind <= most {
			continue
		}
		text := "**" + named(ours) + "**"
		if n > 1 {
			text += fmt.Sprintf(" behind %d rivals", n)
		}
		most, cells = behind, []string{named(best), text}
	}
	return cells
}

// itemsOf returns lines without another system as a list.
func itemsOf(lines [][]string) string {
	var b strings.Builder
	for _, cells := range lines {
		fmt.Fprintf(&b, "- %s: %s (%s, %s).\n", cells[0], cells[1], cells[4], cells[5])
	}
	return b.String()
}

// Table returns a table in Markdown.
func Table(head []string, lines [][]string) string {
	var b strings.Builder
	for _, line := range slices.Concat([][]string{head, slices.Repeat([]string{"---"}, len(head))}, lines) {
		b.WriteString("| " + strings.Join(line, " | ") + " |\n")
	}
	return b.String()
}
