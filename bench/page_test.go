// SPDX-License-Identifier: MIT

package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The page and the pictures are what the program makes of the report beside them.
func TestPage(t *testing.T) {
	files, err := published(publishedReport)
	if err != nil {
		t.Fatal(err)
	}
	base := strings.TrimSuffix(publishedReport, ".json")
	page := string(files[base+".md"])
	for name, want := range files {
		if got, err := os.ReadFile(name); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s is not made of %s (%v): go run . page", name, publishedReport, err)
		}
		if filepath.Ext(name) != ".svg" {
			continue
		}
		if err := wellFormed(want); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if !strings.Contains(page, "](performance/"+filepath.Base(name)+")") {
			t.Errorf("%s is not on the page", name)
		}
	}
	there, err := filepath.Glob(filepath.Join(base, "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range there {
		if files[name] == nil {
			t.Errorf("nobody makes %s", name)
		}
	}
}

func wellFormed(text []byte) error {
	for d := xml.NewDecoder(bytes.NewReader(text)); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

func TestFillPage(t *testing.T) {
	blocks := map[string]string{"a": "new\n"}
	for _, tc := range []struct{ page, want string }{
		{"no mark", "no mark"},
		{"x\n<!-- made: a -->\nold\n<!-- end -->\ny", "x\n<!-- made: a -->\nnew\n<!-- end -->\ny"},
		{"<!-- made: a -->\n<!-- end --><!-- made: a -->\n<!-- end -->", "<!-- made: a -->\nnew\n<!-- end --><!-- made: a -->\nnew\n<!-- end -->"},
		{"<!-- made: b -->\n<!-- end -->", ""},
		{"<!-- made: a -->\nold", ""},
	} {
		got, err := fillPage([]byte(tc.page), blocks)
		if string(got) != tc.want || (err != nil) != (tc.want == "") {
			t.Errorf("%q: %q, %v, want %q", tc.page, got, err, tc.want)
		}
	}
}

// A rival that is better is said to be, and one that is not is not.
func TestSlowerBlock(t *testing.T) {
	r := &run{report: &report{}, group: "local"}
	for name, ns := range map[string]float64{dianaMemory: 30, "slow": 40, "fast": 20, "as fast": 29.5} {
		k := rival
		if name == dianaMemory {
			k = diana
		}
		r.row("hot", name, k).add(nsDecision, ns)
	}
	got := r.report.slowerBlock()
	if !strings.Contains(got, "| fast: 20 ns |") {
		t.Errorf("%q does not name who is faster, or others too", got)
	}
}

// What is sent slowly is not better for being there too soon.
func TestPacedIsNotSlower(t *testing.T) {
	r := &run{report: &report{}, group: "bandwidth"}
	for name, figures := range map[string][2]float64{slowedServe: {10, 20}, "soon": {8, 30}, "light": {10, 15}} {
		k := rival
		if name == slowedServe {
			k = diana
		}
		m := r.row(slowedWorkload, name, k)
		m.add(p50, figures[0])
		m.add(coreShare, figures[1])
	}
	if got := r.report.slowerBlock(); strings.Contains(got, "soon") || !strings.Contains(got, "| light: 15 % |") {
		t.Errorf("%q names who is too soon, or does not name who takes less of a core", got)
	}
	if got := r.report.tablesBlock("bandwidth"); strings.Contains(got, "times better") {
		t.Errorf("%q compares", got)
	}
}
