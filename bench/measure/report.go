// SPDX-License-Identifier: MIT

package measure

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

// Report is the newest figures of each group. It is saved as JSON.
type Report struct {
	Origins []*Origin `json:"runs"` // each group is in one of them
	Rows    []*Row    `json:"rows"`
	Again   *Again    `json:"again,omitempty"` // nil: no run has repeated these figures
}

// Again says how well a second run repeated the ratios of a report.
type Again struct {
	At     time.Time `json:"at"`
	Ratios int       `json:"ratios"` // in both runs
	Agreed int       `json:"agreed"` // differ by at most a tenth
	Most   float64   `json:"most"`   // difference, as a part of the first run's ratio
	What   string    `json:"what"`   // differs most
}

// Origin is a run of this program, with all that its figures depend on.
type Origin struct {
	At       time.Time       `json:"at"`
	Command  string          `json:"command"`
	Revision string          `json:"revision,omitempty"` // of Diana, as Git describes it
	Took     float64         `json:"took,omitempty"`     // seconds
	Machine  Machine         `json:"machine"`
	Rounds   int             `json:"rounds"` // of most groups; some have fewer
	Quick    bool            `json:"quick"`
	Groups   []MeasuredGroup `json:"groups"`
	Noise    string          `json:"-"` // of the group that is measured
}

// MeasuredGroup is a group whose newest figures are of a run.
type MeasuredGroup struct {
	Name string  `json:"name"`
	Took float64 `json:"took,omitempty"` // seconds

	Noise string `json:"noise,omitempty"` // why its figures are less certain
}

// Kind says what a row is to Diana.
type Kind string

// The kinds.
const (
	Diana Kind = "diana"
	Rival Kind = "rival"
	Floor Kind = "floor" // less work than a limiter's
)

// Row holds the figures of one system in one workload.
type Row struct {
	Group    string             `json:"group"`
	Workload string             `json:"workload"` // unique among all groups
	System   string             `json:"system"`
	Kind     Kind               `json:"kind"`
	Work     string             `json:"work,omitempty"` // rows of one workload are alike only if they do the same work
	Figures  map[string]*Series `json:"figures"`
}

// Series holds the values of one figure, round by round.
type Series struct {
	Median float64   `json:"median"`
	Rounds []float64 `json:"rounds"`
}

func (s *Series) add(v float64) {
	if v != math.Trunc(v) { // further digits are noise and make the file larger
		v, _ = strconv.ParseFloat(strconv.FormatFloat(v, 'g', 5, 64), 64)
	}
	s.Rounds = append(s.Rounds, v)
	s.Median = Median(s.Rounds)
}

// Spread returns the distance between the lowest and the highest round, divided by the median.
func (s *Series) Spread() float64 {
	if s.Median == 0 {
		return 0
	}
	return (slices.Max(s.Rounds) - slices.Min(s.Rounds)) / s.Median
}

// Median returns the middle of some values.
func Median(values []float64) float64 {
	v := slices.Sorted(slices.Values(values))
	if len(v) == 0 {
		return 0
	}
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}

// Quantile returns the value that the share q of some values does not exceed. It sorts them.
func Quantile(values []float64, q float64) float64 {
	slices.Sort(values)
	return values[int(q*float64(len(values)-1))]
}

// Add adds the value of one round.
func (m *Row) Add(f Figure, v float64) {
	if m.Figures[f.Name] == nil {
		m.Figures[f.Name] = &Series{}
	}
	m.Figures[f.Name].add(v)
}

// AddLatencies adds the quantiles of one round.
func (m *Row) AddLatencies(p50, p99 Figure, h *Histogram) {
	m.Add(p50, h.Quantile(0.50).Seconds())
	m.Add(p99, h.Quantile(0.99).Seconds())
}

// Series returns the values series a figure, or nil if the row has none. The row may be nil.
func (m *Row) Series(f Figure) *Series {
	if m == nil {
		return nil
	}
	return m.Figures[f.Name]
}

// Find returns a row, or nil.
func (r *Report) Find(workload, system string) *Row {
	for _, m := range r.Rows {
		if m.Workload == workload && m.System == system {
			return m
		}
	}
	return nil
}

// Best returns the row with the best figure among those of the same workload that are
// candidates, or nil.
func (r *Report) Best(ours *Row, f Figure, candidate func(ours, other *Row) bool) (best *Row) {
	for _, m := range r.Rows {
		s := m.Series(f)
		if m.Workload != ours.Workload || s == nil || !candidate(ours, m) {
			continue
		}
		if best == nil || (f.Better == More) == (s.Median > best.Series(f).Median) {
			best = m
		}
	}
	return best
}

// Workloads returns the rows of each workload: first Diana, then the rivals, then the floors.
func (r *Report) Workloads() (all [][]*Row) {
	at := map[string]int{}
	for _, m := range r.Rows {
		if _, ok := at[m.Workload]; !ok {
			at[m.Workload] = len(all)
			all = append(all, nil)
		}
		all[at[m.Workload]] = append(all[at[m.Workload]], m)
	}
	order := []Kind{Diana, Rival, Floor}
	for _, rows := range all {
		slices.SortStableFunc(rows, func(a, b *Row) int {
			return slices.Index(order, a.Kind) - slices.Index(order, b.Kind)
		})
	}
	return all
}

// Ratio returns a figure of one row divided by that of another. It returns 0 if a figure is missing.
func Ratio(a, b *Row, f Figure) float64 {
	x, y := a.Series(f), b.Series(f)
	if x == nil || y == nil {
		return 0
	}
	return MedianRatio(x.Rounds, y.Rounds)
}

// MedianRatio divides the values of rounds: the median over the rounds, because a disturbance affects all systems of a
// round. Unequal numbers of rounds were not measured side by side, so their medians are divided.
func MedianRatio(x, y []float64) float64 {
	if len(x) != len(y) {
		x, y = []float64{Median(x)}, []float64{Median(y)}
	}
	var ratios []float64
	for i := range x {
		if y[i] != 0 {
			ratios = append(ratios, x[i]/y[i])
		}
	}
	return Median(ratios)
}

// TimesBetter returns how many times better one row is than another.
func TimesBetter(ours, theirs *Row, f Figure) float64 {
	if f.Better == More {
		return Ratio(ours, theirs, f)
	}
	return Ratio(theirs, ours, f)
}

// Spread returns the spread that the share q of all figures does not exceed.
func (r *Report) Spread(q float64) float64 {
	spreads := []float64{0}
	for _, m := range r.Rows {
		for _, s := range m.Figures {
			if s.Median != 0 && len(s.Rounds) > 1 {
				spreads = append(spreads, s.Spread())
			}
		}
	}
	return Quantile(spreads, q)
}

// ReadReport reads a report. Without a file it returns an empty one.
func ReadReport(file string) (*Report, error) {
	r := &Report{}
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

// With returns the report with the groups of a newer run instead of its own. Its rows are in the order of
// the groups.
func (r *Report) With(newer *Report, order []string) *Report {
	replaced := func(group string) bool {
		return slices.ContainsFunc(newer.Origins, func(o *Origin) bool {
			return slices.ContainsFunc(o.Groups, func(g MeasuredGroup) bool { return g.Name == group })
		})
	}
	all := &Report{}
	for _, o := range r.Origins {
		older := *o
		older.Groups = slices.DeleteFunc(slices.Clone(o.Groups), func(g MeasuredGroup) bool { return replaced(g.Name) })
		if len(older.Groups) > 0 {
			all.Origins = append(all.Origins, &older)
		}
	}
	all.Origins = append(all.Origins, newer.Origins...)
	all.Rows = slices.DeleteFunc(slices.Clone(r.Rows), func(m *Row) bool { return replaced(m.Group) })
	all.Rows = append(all.Rows, newer.Rows...)
	slices.SortStableFunc(all.Rows, func(a, b *Row) int {
		return slices.Index(order, a.Group) - slices.Index(order, b.Group)
	})
	return all
}

// Save writes the report as JSON, one row to a line.
func (r *Report) Save(file string) error {
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
