// SPDX-License-Identifier: MIT

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"
)

// report is the newest figures of each group. It is saved as JSON.
type report struct {
	Origins []*origin `json:"runs"` // each group is in one of them
	Rows    []*row    `json:"rows"`
}

// origin is a run of this program, with all that its figures depend on.
type origin struct {
	At       time.Time       `json:"at"`
	Command  string          `json:"command"`
	Revision string          `json:"revision,omitempty"` // of Diana, as Git describes it
	Took     float64         `json:"took,omitempty"`     // seconds
	Machine  machine         `json:"machine"`
	Rounds   int             `json:"rounds"` // of most groups; some have fewer
	Quick    bool            `json:"quick"`
	Groups   []measuredGroup `json:"groups"`
}

// measuredGroup is a group whose newest figures are of a run.
type measuredGroup struct {
	Name string  `json:"name"`
	Took float64 `json:"took,omitempty"` // seconds
}

// kind says what a row is to Diana.
type kind string

const (
	diana kind = "diana"
	rival kind = "rival"
	floor kind = "floor" // less work than a limiter's
)

// row holds the figures of one system in one workload.
type row struct {
	Group    string             `json:"group"`
	Workload string             `json:"workload"` // unique among all groups
	System   string             `json:"system"`
	Kind     kind               `json:"kind"`
	Work     string             `json:"work,omitempty"` // rows of one workload are alike only if they do the same work
	Figures  map[string]*series `json:"figures"`
}

// series holds the values of one figure, round by round.
type series struct {
	Median float64   `json:"median"`
	Rounds []float64 `json:"rounds"`
}

func (s *series) add(v float64) {
	if v != math.Trunc(v) { // further digits are noise and make the file larger
		v, _ = strconv.ParseFloat(strconv.FormatFloat(v, 'g', 5, 64), 64)
	}
	s.Rounds = append(s.Rounds, v)
	s.Median = median(s.Rounds)
}

// spread returns the distance between the lowest and the highest round, divided by the median.
func (s *series) spread() float64 {
	if s.Median == 0 {
		return 0
	}
	return (slices.Max(s.Rounds) - slices.Min(s.Rounds)) / s.Median
}

func median(values []float64) float64 {
	v := slices.Sorted(slices.Values(values))
	if len(v) == 0 {
		return 0
	}
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}

// add adds the value of one round.
func (m *row) add(f figure, v float64) {
	if m.Figures[f.name] == nil {
		m.Figures[f.name] = &series{}
	}
	m.Figures[f.name].add(v)
}

// series returns the values series a figure, or nil if the row has none. The row may be nil.
func (m *row) series(f figure) *series {
	if m == nil {
		return nil
	}
	return m.Figures[f.name]
}

// find returns a row, or nil.
func (r *report) find(workload, system string) *row {
	for _, m := range r.Rows {
		if m.Workload == workload && m.System == system {
			return m
		}
	}
	return nil
}

// best returns the row with the best figure among those of the same workload that are
// candidates, or nil.
func (r *report) best(ours *row, f figure, candidate func(ours, other *row) bool) (best *row) {
	for _, m := range r.Rows {
		s := m.series(f)
		if m.Workload != ours.Workload || s == nil || !candidate(ours, m) {
			continue
		}
		if best == nil || (f.better == more) == (s.Median > best.series(f).Median) {
			best = m
		}
	}
	return best
}

// workloads returns the rows of each workload: first Diana, then the rivals, then the floors.
func (r *report) workloads() (all [][]*row) {
	at := map[string]int{}
	for _, m := range r.Rows {
		if _, ok := at[m.Workload]; !ok {
			at[m.Workload] = len(all)
			all = append(all, nil)
		}
		all[at[m.Workload]] = append(all[at[m.Workload]], m)
	}
	order := []kind{diana, rival, floor}
	for _, rows := range all {
		slices.SortStableFunc(rows, func(a, b *row) int {
			return slices.Index(order, a.Kind) - slices.Index(order, b.Kind)
		})
	}
	return all
}

// ratio returns a figure of one row divided by that of another: the median over the rounds,
// because a disturbance affects all systems of a round. Rows with unequal numbers of rounds were not
// measured side by side, so their medians are divided. It returns 0 if a figure is missing.
func ratio(a, b *row, f figure) float64 {
	x, y := a.series(f), b.series(f)
	if x == nil || y == nil {
		return 0
	}
	if len(x.Rounds) != len(y.Rounds) {
		x, y = &series{Rounds: []float64{x.Median}}, &series{Rounds: []float64{y.Median}}
	}
	var ratios []float64
	for i := range x.Rounds {
		if y.Rounds[i] != 0 {
			ratios = append(ratios, x.Rounds[i]/y.Rounds[i])
		}
	}
	return median(ratios)
}

// timesBetter returns how many times better one row is than another.
func timesBetter(ours, theirs *row, f figure) float64 {
	if f.better == more {
		return ratio(ours, theirs, f)
	}
	return ratio(theirs, ours, f)
}

// spread returns the spread that the share q of all figures does not exceed.
func (r *report) spread(q float64) float64 {
	spreads := []float64{0}
	for _, m := range r.Rows {
		for _, s := range m.Figures {
			if s.Median != 0 && len(s.Rounds) > 1 {
				spreads = append(spreads, s.spread())
			}
		}
	}
	slices.Sort(spreads)
	return spreads[int(q*float64(len(spreads)-1))]
}

// readReport reads a report. Without a file it returns an empty one.
func readReport(file string) (*report, error) {
	r := &report{}
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	if err == nil {
		err = json.Unmarshal(text, r)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return r, nil
}

// with returns the report with the groups of a newer run instead of its own.
func (r *report) with(newer *report) *report {
	replaced := func(group string) bool {
		return slices.ContainsFunc(newer.Origins, func(o *origin) bool {
			return slices.ContainsFunc(o.Groups, func(g measuredGroup) bool { return g.Name == group })
		})
	}
	all := &report{}
	for _, o := range r.Origins {
		older := *o
		older.Groups = slices.DeleteFunc(slices.Clone(o.Groups), func(g measuredGroup) bool { return replaced(g.Name) })
		if len(older.Groups) > 0 {
			all.Origins = append(all.Origins, &older)
		}
	}
	all.Origins = append(all.Origins, newer.Origins...)
	all.Rows = slices.DeleteFunc(slices.Clone(r.Rows), func(m *row) bool { return replaced(m.Group) })
	all.Rows = append(all.Rows, newer.Rows...)
	order := groupNames()
	slices.SortStableFunc(all.Rows, func(a, b *row) int {
		return slices.Index(order, a.Group) - slices.Index(order, b.Group)
	})
	return all
}

// save writes the report as JSON, one row to a line.
func (r *report) save(file string) error {
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	for _, begin := range []string{`{"at":`, `{"group":`} {
		text = bytes.ReplaceAll(text, []byte(begin), []byte("\n"+begin))
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return os.WriteFile(file, append(text, '\n'), 0o644)
}
