// SPDX-License-Identifier: MIT

package main

import (
	"encoding/json"
	"fmt"
	"io"
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
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	r := &report{}
	if err := json.Unmarshal(text, r); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
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
	m := r.Machine
	args := strings.TrimSpace(strings.TrimPrefix(r.Command, "bench"))
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
	return fmt.Sprintf("- `%s` measured these figures on %s, in %.1f minutes. They are medians of %d interleaved rounds.\n",
		command, r.At.UTC().Format("2006-01-02 15:04 UTC"), r.Took/60, r.Rounds) +
		fmt.Sprintf("- Distance between the lowest and the highest round: at most %.0f %% of the median for half of the figures, %.0f %% for nine in ten.\n",
			100*r.spread(0.5), 100*r.spread(0.9)) +
		fmt.Sprintf("- Revision of Diana: %s.\n", r.Revision) +
		fmt.Sprintf("- Machine: %d cores, %s, %s. All clients and servers share the cores.\n", m.Cores, m.CPU, m.OS) +
		fmt.Sprintf("- Versions: %s.\n", strings.Join(versions, ", ")) +
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
			cells := l.cells(r)
			verdicts[l.verdict(r)]++
			if last := &cells[len(cells)-1]; *last == "missed" {
				*last = "**missed**"
			}
			lines = append(lines, cells)
		}
		if g.table != nil {
			b.WriteString("\n" + g.table(r) + list(lines))
			continue
		}
		b.WriteString("\n" + table(append([]string{g.title}, lineHead...), lines))
	}
	met, missed := verdicts["met"], verdicts["missed"]
	return fmt.Sprintf("Diana meets %d of the %d targets that this run measured. The run did not measure %d others.\n",
		met, met+missed, verdicts["not measured"]) + b.String()
}

// betterBlock lists every workload and figure in which a rival that does the same work is better
// than Diana by more than a twentieth.
func betterBlock(r *report) string {
	var lines [][]string
	figures := figuresOfGroups()
	for _, rows := range r.workloads() {
		workload := rows[0].Group + ": " + rows[0].Workload
		for _, f := range figures[rows[0].Group] {
			for _, b := range betterThan(r, rows, f) {
				lines = append(lines, []string{workload, f.name, named(b.rival, f), b.diana})
				workload = "" // named once
			}
		}
	}
	if len(lines) == 0 {
		return "None in this run.\n"
	}
	return table([]string{"workload", "figure", "the best rival", "Diana"}, lines)
}

// better is a rival that is the best of a workload in a figure, and the figures of Diana.
type better struct {
	rival *row
	diana string
}

// betterThan compares the rows of a workload in one figure. It returns each rival that is the best
// for one or more rows of Diana.
func betterThan(r *report, rows []*row, f figure) (all []better) {
	if f.better == neither {
		return nil
	}
	for _, ours := range rows {
		if ours.Kind != diana || ours.series(f) == nil {
			continue
		}
		best := r.best(ours, f, alike)
		if !clearlyBetter(best, ours, f) {
			continue
		}
		text := "**" + named(ours, f) + "**"
		if n := betterRivals(rows, ours, f); n > 1 {
			text += fmt.Sprintf(" behind %d rivals", n)
		}
		if n := len(all); n > 0 && all[n-1].rival == best {
			all[n-1].diana += ", " + text
		} else {
			all = append(all, better{best, text})
		}
	}
	return all
}

// betterRivals returns the number of rivals that are clearly better.
func betterRivals(rows []*row, ours *row, f figure) (n int) {
	for _, m := range rows {
		if alike(ours, m) && clearlyBetter(m, ours, f) {
			n++
		}
	}
	return n
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

// list returns the cells of lines as a list.
func list(lines [][]string) string {
	var b strings.Builder
	for _, cells := range lines {
		b.WriteString("- " + strings.Join(slices.DeleteFunc(slices.Clone(cells), func(c string) bool { return c == "" }), "; ") + "\n")
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
