// SPDX-License-Identifier: MIT

package main

import (
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// The published page is docs/performance.md. This program makes its parts between the marks
// "made" and "end" from the report beside it, and the picture. All other text is written by
// hand in the page. A test compares the page with its report.

const pageCommand = "page"

// publishedReport is the report of the page in this repository.
var publishedReport = filepath.Join("..", "docs", "performance.json")

// runPage makes the page and the picture beside a report.
func runPage(args []string, out io.Writer) error {
	file := publishedReport
	switch len(args) {
	case 0:
	case 1:
		file = args[0]
	default:
		return usageError{fmt.Errorf("%s: expected one file", pageCommand)}
	}
	files, err := published(file)
	if err != nil {
		return err
	}
	for name, text := range files {
		if err := os.WriteFile(name, text, 0o644); err != nil {
			return err
		}
		if _, err := fmt.Fprintln(out, name); err != nil {
			return err
		}
	}
	return nil
}

// published returns the contents of the files beside a report.
func published(file string) (map[string][]byte, error) {
	r, err := readReport(file)
	if err != nil {
		return nil, err
	}
	base := strings.TrimSuffix(file, ".json")
	page, err := os.ReadFile(base + ".md")
	if err != nil {
		return nil, err
	}
	page, err = fillPage(page, map[string]string{
		"run": about(r), "tables": tablesBlock(r), "better": betterBlock(r),
	})
	if err != nil {
		return nil, fmt.Errorf("%s.md: %w", base, err)
	}
	return map[string][]byte{base + ".md": page, base + ".svg": picture(r)}, nil
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
func about(r *report) string {
	var b strings.Builder
	for _, o := range r.Origins {
		b.WriteString(o.about())
	}
	return b.String() +
		fmt.Sprintf("- Distance between the lowest and the highest round: at most %.0f %% of the median for half of the figures, %.0f %% for nine in ten.\n",
			100*r.spread(0.5), 100*r.spread(0.9))
}

// about says the same of the groups of one run.
func (o *origin) about() string {
	m := o.Machine
	args := strings.TrimSpace(strings.TrimPrefix(o.Command, "bench"))
	command := "make bench"
	if args != "" {
		command += " BENCH='" + args + "'"
	}
	var versions []string
	for _, v := range [][2]string{{"", m.Go}, {"Redis ", m.Redis}, {"Valkey ", m.Valkey}, {"wrk ", m.Wrk}, {"", m.Nginx}} {
		if v[1] != "" {
			versions = append(versions, v[0]+v[1])
		}
	}
	var groups []string
	for _, g := range o.Groups {
		if g.Took > 0 {
			g.Name += fmt.Sprintf(" %.0f s", g.Took)
		}
		groups = append(groups, g.Name)
	}
	return fmt.Sprintf("- `%s` measured on %s, in %.1f minutes, with at most %d interleaved rounds: %s.\n",
		command, o.At.UTC().Format("2006-01-02 15:04 UTC"), o.Took/60, o.Rounds, strings.Join(groups, ", ")) +
		fmt.Sprintf("- Machine: %d cores, %s, %s. Versions: Diana %s, %s.\n", m.Cores, m.CPU, m.OS, o.Revision, strings.Join(versions, ", ")) +
		fmt.Sprintf("- Other load: the load averages before the run were %s. Other programs used %.0f %% of the cores during the run.\n", m.Load, m.Others)
}

// lineHead names the columns of a group's table, except the first.
var lineHead = []string{"Diana", "beside", "ratio", "target", ""}

// tablesBlock returns the number of targets met, and a table for each group.
func tablesBlock(r *report) string {
	var b strings.Builder
	verdicts := map[string]int{}
	for _, g := range allGroups() {
		if g.title == "" {
			continue
		}
		var lines [][]string
		for _, l := range g.lines {
			verdicts[l.verdict(r)]++
		}
		if !slices.ContainsFunc(g.lines, func(l line) bool { _, ok := l.measure(r); return ok || l.target != "" }) {
			continue
		}
		for _, l := range shown(r, g.lines) {
			cells := l.cells(r)
			if last := &cells[len(cells)-1]; *last == "missed" {
				*last = "**missed**"
			}
			lines = append(lines, cells)
		}
		if g.table != nil {
			b.WriteString("\n" + g.table(r) + itemsOf(lines))
			continue
		}
		b.WriteString("\n" + table(append([]string{g.title}, lineHead...), lines))
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
func shown(r *report, lines []line) (some []line) {
	missed := map[string]bool{}
	for _, l := range lines {
		missed[l.target] = missed[l.target] || l.verdict(r) == "missed"
	}
	first := map[string]bool{}
	var same string // what "the same" stands for
	before := false // the line before is shown
	for _, l := range lines {
		show := l.target == "" || !first[l.target]
		if missed[l.target] {
			show = l.target == "" || l.verdict(r) == "missed"
		}
		first[l.target] = true
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

// betterBlock lists every workload in which a rival that does the same work is better than Diana by more
// than a twentieth. A line has the first figure of which that is true, and the names of the others.
func betterBlock(r *report) string {
	var lines [][]string
	figures := figuresOfGroups()
	for _, rows := range r.workloads() {
		var worst []string
		var also []string
		for _, f := range figures[rows[0].Group] {
			if cells := betterThan(r, rows, f); cells != nil && worst == nil {
				worst = append([]string{rows[0].Group + ": " + rows[0].Workload, f.name}, cells...)
			} else if cells != nil {
				also = append(also, f.name)
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
	return table([]string{"workload", "figure", "the best rival", "Diana"}, lines)
}

// unlike reports whether a row of Diana and one of a rival are in the same workload, but do not do the same
// work. Targets compare some of them.
func unlike(ours, theirs *row) bool {
	switch {
	case strings.HasPrefix(ours.System, dianaLimiter):
		return true // it finds the rules of a URL and makes a key, which the rivals are handed
	case ours.Workload == refuseWorkload && ours.System == dianaServe && theirs.System == nginxThree:
		return true // its refusals have no fields
	}
	return false
}

// betterThan compares the rows of a workload in one figure. It returns the best rival and Diana's row that
// is the furthest behind it, or nil.
func betterThan(r *report, rows []*row, f figure) (cells []string) {
	if f.better == neither {
		return nil
	}
	ahead := func(ours, other *row) bool {
		return sameWork(ours, other) && clearlyBetter(other, ours, f)
	}
	var most float64
	for _, ours := range rows {
		if ours.Kind != diana || ours.series(f) == nil {
			continue
		}
		best := r.best(ours, f, ahead)
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
func distance(ours, best *row, f figure) float64 {
	x, y := ours.series(f).Median, best.series(f).Median
	if f.better == less {
		x, y = y, x
	}
	if x == 0 {
		return math.Inf(1)
	}
	return y / x
}

func named(m *row, f figure) string {
	return fmt.Sprintf("%s (%s)", f.format(m.series(f).Median), m.System)
}

// clearlyBetter reports whether a is better than b by more than a twentieth, and not only by
// fractions that nobody sees.
func clearlyBetter(a, b *row, f figure) bool {
	x, y := a.series(f), b.series(f)
	if x == nil || y == nil || f.format(x.Median) == f.format(y.Median) {
		return false
	}
	if f.better == more {
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

// table returns a table in Markdown.
func table(head []string, lines [][]string) string {
	var b strings.Builder
	for _, line := range slices.Concat([][]string{head, slices.Repeat([]string{"---"}, len(head))}, lines) {
		b.WriteString("| " + strings.Join(line, " | ") + " |\n")
	}
	return b.String()
}
