// SPDX-License-Identifier: MIT

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// The program starts itself for some servers, which here is the test's program.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && (os.Args[1] == gatewayCommand || os.Args[1] == exactCommand || os.Args[1] == serverCommand) {
		main()
		return
	}
	os.Exit(m.Run())
}

// Every group can be measured. The test takes only a moment, so it checks no figure but counts.
func TestGroups(t *testing.T) {
	for _, g := range allGroups() {
		t.Run(g.name, func(t *testing.T) {
			for group, program := range map[string]string{
				"global": "redis-server", "exactness": "redis-server", "growth": "redis-server", "gateway": "wrk",
				"decisions": "wrk",
				"valkey":    valkeyProgram,
			} {
				if _, err := exec.LookPath(program); err != nil && g.name == group && (os.Getenv("CI") == "" || program == valkeyProgram) {
					t.Skipf("this test needs %s", program)
				}
			}
			file := filepath.Join(t.TempDir(), "figures.json")
			r, _, err := newRun([]string{"-run", g.name, "-quick", "-rounds", "1"}, t.Output())
			if err != nil {
				t.Fatal(err)
			}
			r.tiny = true
			var out bytes.Buffer
			if err := r.measure(context.Background(), &out, file); err != nil {
				t.Fatal(err)
			}
			t.Log("\n" + out.String())
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var saved report
			if err := json.Unmarshal(text, &saved); err != nil {
				t.Fatal(err)
			}
			if g.name == "huge" { // a quick run omits it
				return
			}
			verdicts := map[string]int{}
			for _, l := range g.lines {
				if l.target == "G5" && l.verdict(&saved) != "met" {
					t.Errorf("%q", l.cells(&saved))
				}
				verdicts[l.verdict(&saved)]++
			}
			noTargets := g.name == "valkey" || g.name == "answers" || g.name == "growth" || g.name == "bandwidth" // the last two have them in a complete run
			if len(saved.Rows) == 0 || verdicts["met"]+verdicts["missed"] == 0 && !noTargets {
				t.Errorf("%d rows were saved, with the verdicts %v", len(saved.Rows), verdicts)
			}
			for _, m := range saved.Rows {
				if !strings.Contains(out.String(), m.System) {
					t.Errorf("%s is not in the table", m.System)
				}
			}
		})
	}
}

func TestUsage(t *testing.T) {
	for _, args := range [][]string{{"-run", "everything"}, {"-rounds", "-1"}, {"-rounds", "x"}, {"-slow"}, {"global"}} {
		var wrong usageError
		if err := bench(context.Background(), args, t.Output(), t.Output()); !errors.As(err, &wrong) {
			t.Errorf("%q: %v, want a usage error", args, err)
		}
	}
}

func TestHistogram(t *testing.T) {
	var h histogram
	for us := range 100_000 {
		h.add(time.Duration(us) * time.Microsecond)
	}
	for _, tc := range []struct {
		q    float64
		want time.Duration
	}{{0, 0}, {0.5, 50 * time.Millisecond}, {0.99, 99 * time.Millisecond}, {1, 99_999 * time.Microsecond}} {
		if got := h.quantile(tc.q); got < tc.want || float64(got) > 1.04*float64(tc.want) {
			t.Errorf("quantile %v: %v, want %v or 3 %% more", tc.q, got, tc.want)
		}
	}
	for d := time.Duration(1); d < time.Hour; d += d/7 + 1 {
		if b := bucketOf(d); upper(b) < d || b > 0 && upper(b-1) >= d {
			t.Fatalf("%v is in bucket %d, which holds %v to %v", d, b, upper(b-1)+1, upper(b))
		}
	}
}

// A ratio compares round by round, so a disturbance of a whole round does not change it.
func TestRatio(t *testing.T) {
	row := func(values ...float64) *row {
		m := &row{Figures: map[string]*series{}}
		for _, v := range values {
			m.add(p50, v)
		}
		return m
	}
	if got := ratio(row(10, 40, 10), row(5, 20, 1), p50); got != 2 {
		t.Errorf("ratio %v, want 2", got)
	}
	if got := ratio(row(10, 20, 30), row(10), p50); got != 2 {
		t.Errorf("ratio to another run's median %v, want 2", got)
	}
	if got := ratio(row(1), row(), p50); got != 0 {
		t.Errorf("ratio to nothing %v, want 0", got)
	}
}

// An interruption, or a group that fails, leaves what other groups measured, and its own older figures.
func TestSaveEachGroup(t *testing.T) {
	file := filepath.Join(t.TempDir(), "figures.json")
	ctx, interrupt := context.WithCancel(context.Background())
	value, failure := 1.0, error(nil)
	measure := func(after func() error) func(context.Context, *run) error {
		return func(_ context.Context, r *run) error {
			r.row(r.group+"'s workload", "system", diana).add(p50, value)
			return after()
		}
	}
	groups := []group{
		{name: "global", measure: measure(func() error { return nil })},
		{name: "valkey", measure: measure(func() error { return failure })},
		{name: "gateway", measure: measure(func() error { return nil })},
		{name: "growth", measure: measure(func() error {
			if failure != nil {
				interrupt()
			}
			return nil
		})},
		{name: "reload", measure: measure(func() error { return nil })},
	}
	for _, value = range []float64{1, 2} {
		r, _, err := newRun([]string{"-rounds", "1"}, t.Output())
		if err != nil {
			t.Fatal(err)
		}
		r.groups = groups
		if err := r.measure(ctx, t.Output(), file); value == 2 && (!errors.Is(err, failure) || !errors.Is(err, errInterrupted)) || value == 1 && err != nil {
			t.Errorf("measure: %v", err)
		}
		failure = errors.New("failed")
	}
	saved, err := readReport(file)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, m := range saved.Rows {
		got[m.Group] += m.series(p50).Median
	}
	if want := map[string]float64{"global": 2, "valkey": 1, "gateway": 2, "growth": 1, "reload": 1}; !maps.Equal(got, want) {
		t.Errorf("the figures are %v, want %v", got, want)
	}
	for i, want := range []string{"valkey growth reload", "global gateway"} {
		var names []string
		for _, g := range saved.Origins[i].Groups {
			names = append(names, g.Name)
		}
		if got := strings.Join(names, " "); got != want {
			t.Errorf("run %d measured %s, want %s", i, got, want)
		}
	}
}

// A quick run, and one of few rounds, does not change the published report.
func TestFile(t *testing.T) {
	for _, tc := range []struct {
		args      []string
		published bool
	}{
		{nil, true},
		{[]string{"-run", "all", "-rounds", "7"}, true},
		{[]string{"-rounds", "3"}, false},
		{[]string{"-quick"}, false},
		{[]string{"-run", "global"}, true},
		{[]string{"-run", "global", "-quick"}, false},
		{[]string{"-json", "figures.json"}, false},
	} {
		_, file, err := newRun(tc.args, t.Output())
		if err != nil || (file == publishedReport) != tc.published {
			t.Errorf("%q writes %s, %v", tc.args, file, err)
		}
	}
}
