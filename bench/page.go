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

// What is published: docs/performance.md, of which the parts between "made" and "end" are
// made from a report, and the pictures beside it. So no figure there is typed by hand, and
// a test finds a page that says something else than its report.

const pageCommand = "page"

// publishedReport is the report that the page in this repository is made from.
var publishedReport = filepath.Join("..", "docs", "performance.json")

// runPage makes the page and the pictures that stand beside a report.
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
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(name, text, 0o644); err != nil {
			return err
		}
		if _, err := fmt.Fprintln(out, name); err != nil {
			return err
		}
	}
	return nil
}

// published returns what is to be in the files beside a report.
func published(file string) (files map[string][]byte, err error) {
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
	if page, err = fillPage(page, r.blocks()); err != nil {
		return nil, fmt.Errorf("%s.md: %w", base, err)
	}
	files = map[string][]byte{base + ".md": page}
	for _, p := range r.pictures() {
		files[filepath.Join(base, p.name+".svg")] = p.draw()
	}
	return files, nil
}

const (
	blockBegin = "<!-- made: "
	blockEnd   = "<!-- end -->"
)

// fillPage puts each block between its marks.
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
			return nil, fmt.Errorf("nothing is called %q", name)
		}
		if _, rest, ok = strings.Cut(after, blockEnd); !ok {
			return nil, fmt.Errorf("%q has no end", name)
		}
		b.WriteString(blockBegin + name + " -->\n" + text + blockEnd)
	}
}

// blocks returns all that can be in the page, by name.
func (r *report) blocks() map[string]string {
	blocks := map[string]string{
		"run": r.runBlock(), "summary": r.summaryBlock(), "targets": r.targetsBlock(), "slower": r.slowerBlock(),
	}
	for _, g := range allGroups() {
		blocks["tables of "+g.name] = r.tablesBlock(g.name)
	}
	return blocks
}

// runBlock tells what was measured on what, and how.
func (r *report) runBlock() string {
	m := r.Machine
	args := strings.TrimPrefix(r.Command, "bench")
	if at := strings.Index(args, " -json"); at >= 0 {
		args = args[:at]
	}
	command := "make bench"
	if args = strings.TrimSpace(args); args != "" {
		command += " BENCH='" + args + "'"
	}
	busy := ""
	if m.Others >= 5 { // per cent
		busy = "\nThe machine was not quiet: absolute figures are worse than it can do and spreads wider, and\nwhat a target missed by little may owe to that.\n"
	}
	return table([]string{"", ""}, [][]string{
		{"command", "`" + command + "`"},
		{"date", r.At.UTC().Format("2006-01-02 15:04 UTC") + fmt.Sprintf("; it took %.1f minutes", r.Took/60)},
		{"machine", fmt.Sprintf("%d cores, %s, %s; servers, Redis and what asks them share them", m.Cores, m.CPU, m.OS)},
		{"versions", strings.Join(slices.DeleteFunc([]string{m.Go, prefixed("Redis ", m.Redis), prefixed("wrk ", m.Wrk), m.Nginx}, func(s string) bool { return s == "" }), ", ")},
		{"how busy it was", fmt.Sprintf("load averages of %s (1, 5 and 15 minutes) when the run began; programs that are no part of it took %.0f %% of the cores meanwhile", strings.Join(strings.Fields(m.Load), ", "), m.Others)},
		{"figures", fmt.Sprintf("medians of %d rounds in which all take turns; ± is how far the rounds lie apart", r.Rounds)},
	}) + busy
}

func prefixed(prefix, s string) string {
	if s == "" {
		return ""
	}
	return prefix + s
}

// headline is a line of the summary. Without a floor there is none that means something.
type headline struct{ what, workload, ours, figure, floor string }

func headlines() []headline {
	hot, plenty := globalName(hotWorkload, 256), globalName(plentyWorkload, 256)
	many, three := globalName(uniformWorkload, 256), globalName(threeWorkload, 256)
	return []headline{
		{"hot key, all allowed, 1 thread", threadsName(localPlenty, 1), dianaMemory, nsDecision, casFloor},
		{"hot key, all allowed, 2 threads", threadsName(localPlenty, 2), dianaMemory, nsDecision, casFloor},
		{"hot key, nearly all refused, 2 threads", threadsName(localHot, 2), dianaMemory, nsDecision, casFloor},
		{"1 M keys, 1 thread", threadsName(localUniform, 1), dianaMemory, nsDecision, keyFloor},
		{"1 M keys, 2 threads", threadsName(localUniform, 2), dianaMemory, nsDecision, keyFloor},
		{"10 M keys, 2 threads", threadsName(localTen, 2), dianaMemory, nsDecision, ""},
		{"memory for a key at 1 M, in bytes", fillingName(1), dianaMemory, bytesKey, ""},
		{"what 1 M keys add to a garbage collection", fillingName(1), dianaMemory, gcTime, ""},
		{"middleware, one rule, over the bare handler", middlewareWorkload, dianaOneRule, nsOver, fieldsHandler},
		{"Redis, hot key, nearly all refused: decisions/s", hot, dianaStore, decisionRate, evalshaRueidis},
		{"Redis, hot key, all allowed: decisions/s", plenty, dianaStore, decisionRate, evalshaRueidis},
		{"Redis, hot key, all allowed: p99", plenty, dianaStore, p99, evalshaRueidis},
		{"Redis, 1 M keys: decisions/s", many, dianaStore, decisionRate, evalshaRueidis},
		{"Redis, 1 M keys: p99", many, dianaStore, p99, evalshaRueidis},
		{"Redis, 3 rules: decisions/s", three, dianaStore, decisionRate, evalshaRueidis},
		{"Redis, a lone request: p50", aloneWorkload, dianaOne, p50, bareOne},
		{"gateway, passing on: requests/s", passedWorkload, dianaServe, requestRate, plainProxy},
		{"gateway, refusing: requests/s", refusedByServer, dianaServe, requestRate, bare503},
		{"gateway, 1,000 slow answers at once: of a core", slowedWorkload, slowedServe, coreShare, ""},
	}
}

// summaryBlock sets Diana beside the best rival and a floor.
func (r *report) summaryBlock() string {
	var lines [][]string
	for _, h := range headlines() {
		ours, c := r.find(h.workload, h.ours), columnOf(h.figure)
		if ours == nil || ours.Figures[h.figure] == nil {
			continue
		}
		line := []string{h.what, c.format(ours.Figures[h.figure].Median)}
		for _, other := range []*row{r.best(h.workload, rival, c), r.find(h.workload, h.floor)} {
			if other == nil {
				line = append(line, "", "")
				continue
			}
			line = append(line, c.format(other.Figures[h.figure].Median)+", "+other.System, c.times(ours, other))
		}
		lines = append(lines, line)
	}
	return table([]string{"", "Diana", "best rival", "Diana is better by", "floor", "Diana is better by"}, lines)
}

// best returns the best of a kind by a figure, nil if there is none.
func (r *report) best(workload string, k kind, c *column) (best *row) {
	for _, m := range r.Rows {
		s := m.Figures[c.figure]
		if m.Workload != workload || m.Kind != k || s == nil {
			continue
		}
		if best == nil || c.more == (s.Median > best.Figures[c.figure].Median) {
			best = m
		}
	}
	return best
}

// times tells how many times better than another row Diana's is.
func (c *column) times(ours, other *row) string {
	better := c.better(ours, other)
	if better == 0 {
		return ""
	}
	return plainText(better) + " x"
}

func (r *report) targetsBlock() string {
	var lines [][]string
	met := 0
	for _, v := range r.Targets {
		word := "**missed**"
		if v.Met {
			word = "met"
			met++
		}
		lines = append(lines, []string{v.ID, v.Text, v.Figure, word})
	}
	return fmt.Sprintf("%d of %d met.\n\n", met, len(lines)) + table([]string{"", "target", "measured", ""}, lines)
}

// slowerBlock lists all in which a rival is better.
func (r *report) slowerBlock() string {
	var lines [][]string
	for _, rows := range r.workloads() {
		for _, ours := range rows {
			if ours.Kind != diana {
				continue
			}
			for i := range columns {
				c := &columns[i]
				if who := c.betterThan(ours, rows); len(who) > 0 {
					lines = append(lines, []string{
						ours.Group + ": " + ours.Workload, c.figure,
						ours.System + ": " + c.format(ours.Figures[c.figure].Median), strings.Join(who, "; "),
					})
				}
			}
		}
	}
	if len(lines) == 0 {
		return "Nothing in this run.\n"
	}
	return table([]string{"workload", "figure", "Diana", "better"}, lines)
}

// betterThan returns who of the rivals is better by more than a twentieth.
func (c *column) betterThan(ours *row, rows []*row) (who []string) {
	s := ours.Figures[c.figure]
	if s == nil || !c.judges || paced(ours) && c.figure != coreShare {
		return nil
	}
	for _, m := range rows {
		t := m.Figures[c.figure]
		if m.Kind != rival || m.Size != ours.Size || t == nil || c.format(s.Median) == c.format(t.Median) {
			continue
		}
		if c.figure == allocs && s.Median < 0.01 { // which is the run's own, see judgeAllocs
			continue
		}
		worse := t.Median < s.Median-s.Median/20
		if c.more {
			worse = t.Median > s.Median+s.Median/20
		}
		if worse {
			who = append(who, m.System+": "+c.format(t.Median))
		}
	}
	return who
}

// tablesBlock is all that a group has measured.
func (r *report) tablesBlock(group string) string {
	var b strings.Builder
	for _, rows := range r.workloads() {
		if rows[0].Group == group {
			fmt.Fprintf(&b, "**%s**\n\n%s\n", rows[0].Workload, rowsTable(rows))
		}
	}
	return b.String()
}

func rowsTable(rows []*row) string {
	shown := slices.DeleteFunc(slices.Clone(columns), func(c column) bool { return !c.worth(rows) })
	head := []string{""}
	for i, c := range shown {
		head = append(head, c.figure)
		if i == 0 {
			head = append(head, "±")
		}
	}
	compared := rows[0].Kind == diana && !shown[0].counts && rows[0].Line == "" && !paced(rows[0])
	if compared {
		head = append(head, "times better: "+rows[0].System)
	}
	var lines [][]string
	for _, m := range rows {
		line := []string{m.System}
		for i, c := range shown {
			s, text, spread := m.Figures[c.figure], "", ""
			if s != nil {
				text, spread = c.format(s.Median), fmt.Sprintf("%.0f %%", 100*s.spread())
			}
			line = append(line, text)
			if i == 0 {
				line = append(line, spread)
			}
		}
		if compared {
			text := ""
			if m != rows[0] {
				text = shown[0].times(rows[0], m)
			}
			line = append(line, text)
		}
		if m.Kind == diana {
			line[0] = "**" + line[0] + "**"
		}
		lines = append(lines, line)
	}
	return table(head, lines)
}

// table is one of Markdown.
func table(head []string, lines [][]string) string {
	var b strings.Builder
	b.WriteString("| " + strings.Join(head, " | ") + " |\n|" + strings.Repeat(" --- |", len(head)) + "\n")
	for _, line := range lines {
		b.WriteString("| " + strings.Join(line, " | ") + " |\n")
	}
	return b.String()
}
