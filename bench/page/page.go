// SPDX-License-Identifier: MIT

package page

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
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

// sameWork reports whether a row is of a rival that may be called better or worse than ours.
func (p *Page) sameWork(ours, other *measure.Row) bool {
	return alike(ours, other) && !p.Unlike(ours, other)
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
	text, err = fillPage(text, map[string]string{"run": about(r), "tables": p.tablesBlock(r), "better": p.BetterBlock(r)})
	if err != nil {
		return "", nil, fmt.Errorf("%s: %w", name, err)
	}
	return name, text, nil
}

const (
	blockBegin = "<!-- made: "
	blockEnd   = "<!-- end -->"
)

// fillPage replaces the text between the marks of each block.
func fillPage(page []byte, blocks map[string]string) ([]byte, error) {
	var b strings.Builder
	rest := string(page)
	for {
		before, after, ok := strings.Cut(rest, blockBegin)
		b.WriteString(before)
		if !ok {
			return []byte(b.String()), nil
		}
		name, after, _ := strings.Cut(after, " -->\n")
		text, ok := blocks[name]
		if !ok {
			return nil, fmt.Errorf("there is no block %q", name)
		}
		if _, rest, ok = strings.Cut(after, blockEnd); !ok {
			return nil, fmt.Errorf("block %q has no end", name)
		}
		b.WriteString(blockBegin + name + " -->\n" + text + blockEnd)
	}
}

// about says what was measured, when, on what, and how.
func about(r *measure.Report) string {
	var b strings.Builder
	processor := ""
	for _, o := range r.Origins {
		text, before := fmt.Sprintf("%d cores, %s, %s", o.Machine.Cores, o.Machine.CPU, o.Machine.OS), processor
		if processor = text; text == before {
			text = "The same processor"
		}
		b.WriteString(aboutOrigin(o, text))
	}
	if a := r.Again; a != nil {
		fmt.Fprintf(&b, "- A second run, %s: %d of %d ratios differ by at most 10 %%, and the most by %.0f %%: %s.\n",
			a.At.UTC().Format(time.DateOnly), a.Agreed, a.Ratios, 100*a.Most, a.What)
	}
	return b.String() +
		fmt.Sprintf("- The lowest and the highest round differ by at most %.0f %% of the median for half of the figures, %.0f %% for nine in ten.\n",
			100*r.Spread(0.5), 100*r.Spread(0.9))
}

// aboutOrigin says the same of the groups of one run.
func aboutOrigin(o *measure.Origin, processor string) string {
	m := o.Machine
	args := strings.TrimSpace(strings.TrimPrefix(o.Command, "bench"))
	command := "make bench"
	if args != "" {
		command += " BENCH='" + args + "'"
	}
	var versions []string
	for _, v := range [][2]string{{"", m.Go}, {"Redis ", m.Redis}, {"wrk ", m.Wrk}, {"", m.Nginx}} {
		if v[1] != "" {
			versions = append(versions, v[0]+v[1])
		}
	}
	var groups []string
	for _, g := range o.Groups {
		text := g.Name
		if g.Noise != "" {
			text += " (" + g.Noise + ")"
		}
		groups = append(groups, text)
	}
	return fmt.Sprintf("- `%s`, %s, %.1f minutes, %d rounds: %s. ",
		command, o.At.UTC().Format(time.DateOnly), o.Took/60, o.Rounds, strings.Join(groups, ", ")) +
		fmt.Sprintf("%s. Diana %s, %s. Others used %.0f %%.\n", processor, o.Revision, strings.Join(versions, ", "), m.Others)
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
		var worst []string
		var also []string
		for _, f := range figures[rows[0].Group] {
			if cells := p.betterThan(r, rows, f); cells != nil && worst == nil {
				worst = append([]string{rows[0].Group + ": " + rows[0].Workload, f.Name}, cells...)
			} else if cells != nil {
				also = append(also, f.Name)
			}
		}
		if worst == nil {
			continue
		}
		if also != nil {
			worst[1] += "; also " + strings.Join(also, ", ")
		}
		lines = append(lines, worst)
	}
	if len(lines) == 0 {
		return "None in this run.\n"
	}
	return Table([]string{"workload", "figure", "the best rival", "Diana"}, lines)
}

// betterThan compares the rows of a workload in one figure. It returns the best rival and Diana's row that
// is the furthest behind it, or nil.
func (p *Page) betterThan(r *measure.Report, rows []*measure.Row, f measure.Figure) (cells []string) {
	if f.Better == measure.Neither {
		return nil
	}
	ahead := func(ours, other *measure.Row) bool {
		return p.sameWork(ours, other) && clearlyBetter(other, ours, f)
	}
	var most float64
	for _, ours := range rows {
		if ours.Kind != measure.Diana || ours.Series(f) == nil {
			continue
		}
		best := r.Best(ours, f, ahead)
		if best == nil {
			continue
		}
		behind := distance(ours, best, f)
		if cells != nil && behind <= most {
			continue
		}
		text := "**" + named(ours, f) + "**"
		n := 0
		for _, m := range rows {
			if ahead(ours, m) {
				n++
			}
		}
		if n > 1 {
			text += fmt.Sprintf(" behind %d rivals", n)
		}
		most, cells = behind, []string{named(best, f), text}
	}
	return cells
}

// distance returns how many times worse one figure is than another.
func distance(ours, best *measure.Row, f measure.Figure) float64 {
	x, y := ours.Series(f).Median, best.Series(f).Median
	if f.Better == measure.Less {
		x, y = y, x
	}
	if x == 0 {
		return math.Inf(1)
	}
	return y / x
}

func named(m *measure.Row, f measure.Figure) string {
	return fmt.Sprintf("%s (%s)", f.Format(m.Series(f).Median), m.System)
}

// clearlyBetter reports whether a is better than b by more than a twentieth, and not only by
// fractions that nobody sees.
func clearlyBetter(a, b *measure.Row, f measure.Figure) bool {
	x, y := a.Series(f), b.Series(f)
	if x == nil || y == nil || f.Format(x.Median) == f.Format(y.Median) {
		return false
	}
	if f.Better == measure.More {
		return x.Median > y.Median+y.Median/20
	}
	return x.Median < y.Median-y.Median/20
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
