// SPDX-License-Identifier: MIT

package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

// report is all that a run has measured.
type report struct {
	At      time.Time `json:"at"`
	Command string    `json:"command"`
	Took    float64   `json:"took,omitempty"` // seconds
	Machine machine   `json:"machine"`
	Rounds  int       `json:"rounds"`
	Quick   bool      `json:"quick"`
	Rows    []*row    `json:"rows"`
	Targets []verdict `json:"targets"`
}

// machine is what the figures depend on.
type machine struct {
	CPU   string `json:"cpu"`
	Cores int    `json:"cores"`
	OS    string `json:"os"`
	Go    string `json:"go"`
	Redis string `json:"redis,omitempty"`
	Wrk   string `json:"wrk,omitempty"`
	Nginx string `json:"nginx,omitempty"`
	Load  string `json:"load,omitempty"` // of the last 1, 5 and 15 minutes when the run began

	// Others is which part of the cores programs have had that are no part of the run, in
	// per cent. 0 if that is not known.
	Others float64 `json:"others,omitempty"`
}

// kind says what a row is to Diana.
type kind string

const (
	diana kind = "diana"
	rival kind = "rival"
	floor kind = "floor" // what the machine, or Redis, takes at least
)

// row is what one system did in one workload.
type row struct {
	Group    string             `json:"group"`
	Workload string             `json:"workload"` // no two groups have the same
	System   string             `json:"system"`
	Kind     kind               `json:"kind"`
	Line     string             `json:"line,omitempty"` // of a picture, if something grows
	Size     int                `json:"size,omitempty"` // of what grows
	Figures  map[string]*series `json:"figures"`
}

// series is one figure of a row, round by round.
type series struct {
	Median float64   `json:"median"`
	Rounds []float64 `json:"rounds"`
}

func (s *series) add(v float64) {
	if v != math.Trunc(v) { // more digits mean nothing, and are written to a file
		v, _ = strconv.ParseFloat(strconv.FormatFloat(v, 'g', 5, 64), 64)
	}
	s.Rounds = append(s.Rounds, v)
	s.Median = median(s.Rounds)
}

// spread returns how far the rounds lie apart, as a part of the median.
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

// find returns a row, nil if there is none.
func (r *report) find(workload, system string) *row {
	for _, m := range r.Rows {
		if m.Workload == workload && m.System == system {
			return m
		}
	}
	return nil
}

// add notes a figure of one round.
func (m *row) add(figure string, v float64) {
	if m.Figures[figure] == nil {
		m.Figures[figure] = &series{}
	}
	m.Figures[figure].add(v)
}

// ratio returns a figure of one row divided by that of another: the median over the
// rounds, as what disturbs the machine disturbs all who are measured in a round. It is
// 0 if one of them is missing.
func ratio(a, b *row, figure string) float64 {
	if a == nil || b == nil || a.Figures[figure] == nil || b.Figures[figure] == nil {
		return 0
	}
	x, y := a.Figures[figure].Rounds, b.Figures[figure].Rounds
	var ratios []float64
	for i := range min(len(x), len(y)) {
		if y[i] != 0 {
			ratios = append(ratios, x[i]/y[i])
		}
	}
	return median(ratios)
}

// save writes the report as JSON, a row or a target in a line.
func (r *report) save(file string) error {
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	for _, begin := range []string{`{"group":`, `{"id":`} {
		text = bytes.ReplaceAll(text, []byte(begin), []byte("\n"+begin))
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return os.WriteFile(file, append(text, '\n'), 0o644)
}

// thisMachine tells what it can find out.
func thisMachine() machine {
	m := machine{CPU: runtime.GOARCH, Cores: runtime.NumCPU(), OS: runtime.GOOS, Go: runtime.Version()}
	if f, err := os.Open("/proc/cpuinfo"); err == nil {
		defer f.Close()
		for lines := bufio.NewScanner(f); lines.Scan(); {
			if name, ok := strings.CutPrefix(lines.Text(), "model name"); ok {
				m.CPU = strings.TrimLeft(name, "\t :")
				break
			}
		}
	}
	if load, err := os.ReadFile("/proc/loadavg"); err == nil {
		m.Load = strings.Join(strings.Fields(string(load))[:3], " ")
	}
	return m
}
