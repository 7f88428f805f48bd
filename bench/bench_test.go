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
	"slices"
	"strings"
	"testing"

	"github.com/diana-limiter/diana/bench/measure"
	"github.com/diana-limiter/diana/bench/page"
)

// The program starts itself for some servers, which here is the test's program.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == measure.ServeCommand {
		main()
		return
	}
	os.Exit(m.Run())
}

// Every group can be measured. The test takes only a moment, so it checks no figure but counts. Groups that wait for
// their servers run side by side. The others set the number of threads of this process, so each runs alone.
func TestGroups(t *testing.T) {
	diana, err := measure.BuildDiana(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	alone := []string{"local", "middleware"}
	for _, g := range allGroups() {
		t.Run(g.Name, func(t *testing.T) {
			if !slices.Contains(alone, g.Name) {
				t.Parallel()
			}
			for group, program := range map[string]string{
				"global": "redis-server", "exactness": "redis-server", "gateway": "wrk", "decisions": "wrk",
			} {
				if _, err := exec.LookPath(program); err != nil && g.Name == group && os.Getenv("CI") == "" {
					t.Skipf("this test needs %s", program)
				}
			}
			file := filepath.Join(t.TempDir(), "figures.json")
			r, _, _, err := newRun([]string{"-run", g.Name, "-quick"}, t.Output())
			if err != nil {
				t.Fatal(err)
			}
			r.Diana = diana
			var out bytes.Buffer
			if err := measureAll(t.Context(), r, []group{g}, &out, file); err != nil {
				t.Fatal(err)
			}
			t.Log("\n" + out.String())
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var saved measure.Report
			if err := json.Unmarshal(text, &saved); err != nil {
				t.Fatal(err)
			}
			verdicts := map[string]int{}
			for _, l := range g.Lines {
				if l.Target == "G5" && l.Verdict(&saved) != "met" {
					t.Errorf("%q", l.Cells(&saved))
				}
				verdicts[l.Verdict(&saved)]++
			}
			targets := slices.ContainsFunc(g.Lines, func(l page.Line) bool { return l.Target != "" })
			if len(saved.Rows) == 0 || targets && verdicts["met"]+verdicts["missed"] == 0 {
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

// A quick run does not change the published report.
func TestUsage(t *testing.T) {
	for args, published := range map[string]bool{"": true, "-again": true, "-run global,live": true, "-quick": false, "-run global -quick": false} {
		_, _, file, err := newRun(strings.Fields(args), t.Output())
		if err != nil || (file == page.PublishedReport) != published {
			t.Errorf("%q writes %s, %v", args, file, err)
		}
	}
	for _, args := range []string{"-run everything", "-rounds 1", "-slow", "global"} {
		if _, _, _, err := newRun(strings.Fields(args), t.Output()); err == nil {
			t.Errorf("%q has no error", args)
		}
	}
}

// An interruption, or a group that fails, leaves what other groups measured, and its own older figures.
func TestSaveEachGroup(t *testing.T) {
	file := filepath.Join(t.TempDir(), "figures.json")
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	value, failure := 1.0, error(nil)
	var groups []group
	for _, name := range []string{"global", "reload", "gateway", "decisions"} {
		groups = append(groups, group{Chapter: page.Chapter{Name: name}, measure: func(_ context.Context, r *measure.Run) error {
			r.Row(r.Group+"'s workload", "system", measure.Diana).Add(p50, value)
			switch name {
			case "reload":
				return failure
			case "gateway":
				if failure != nil {
					interrupt()
				}
			}
			return nil
		}})
	}
	for _, value = range []float64{1, 2} {
		r, _, _, err := newRun(nil, t.Output())
		if err != nil {
			t.Fatal(err)
		}
		if err := measureAll(ctx, r, groups, t.Output(), file); value == 2 && (!errors.Is(err, failure) || !errors.Is(err, errInterrupted)) || value == 1 && err != nil {
			t.Errorf("measure: %v", err)
		}
		failure = errors.New("failed")
	}
	saved, err := measure.ReadReport(file)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, m := range saved.Rows {
		got[m.Group] += m.Series(p50).Median
	}
	if want := map[string]float64{"global": 2, "reload": 1, "gateway": 1, "decisions": 1}; !maps.Equal(got, want) {
		t.Errorf("the figures are %v, want %v", got, want)
	}
	if older, newer := len(saved.Origins[0].Groups), len(saved.Origins[1].Groups); older != 3 || newer != 1 {
		t.Errorf("%d groups are of the first run and %d of the second, want 3 and 1", older, newer)
	}
}

// The page in this repository belongs to the report beside it.
func TestPage(t *testing.T) {
	name, want, err := thePage().Published(page.PublishedReport)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(name); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s does not belong to %s (%v): run make page", name, page.PublishedReport, err)
	}
}
