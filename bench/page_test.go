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

// The page and the picture in this repository belong to the report beside them.
func TestPage(t *testing.T) {
	files, err := published(publishedReport)
	if err != nil {
		t.Fatal(err)
	}
	page := string(files[strings.TrimSuffix(publishedReport, ".json")+".md"])
	for name, want := range files {
		if got, err := os.ReadFile(name); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s does not belong to %s (%v): run make page", name, publishedReport, err)
		}
		if filepath.Ext(name) != ".svg" {
			continue
		}
		if err := wellFormed(want); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if !strings.Contains(page, "]("+filepath.Base(name)+")") {
			t.Errorf("%s is not on the page", name)
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

// The page names a rival that is better, and no other.
func TestBetterBlock(t *testing.T) {
	r := &run{report: &report{}, group: "local"}
	for name, ns := range map[string]float64{dianaMemory: 30, "slow": 40, "fast": 20, "as fast": 29.5} {
		k := rival
		if name == dianaMemory {
			k = diana
		}
		r.row("hot", name, k).add(nsDecision, ns)
	}
	r.working("hot", "less work", "none", rival).add(nsDecision, 10)
	got := betterBlock(r.report)
	if !strings.Contains(got, "| ns | 20 ns (fast) | **30 ns (Diana memstore)** |") {
		t.Errorf("%q does not name the faster rival, or names others too", got)
	}
}

// The page does not say that a rival is better at other work.
func TestUnlike(t *testing.T) {
	r := &run{report: &report{}, group: "local"}
	r.row("hot", dianaLimiter, diana).add(nsDecision, 100)
	r.row("hot", "counter", rival).add(nsDecision, 20)
	r.row(refuseWorkload, dianaServe, diana).add(nsDecision, 100)
	r.row(refuseWorkload, nginxThree, rival).add(nsDecision, 20)
	if got := betterBlock(r.report); got != "None in this run.\n" {
		t.Error(got)
	}
}

// The page shows every line that is missed, and the first one of a target that is met.
func TestShown(t *testing.T) {
	r := &run{report: &report{}, group: "local"}
	r.row("hot", "Diana", diana).add(nsDecision, 20)
	l := func(what, target string, most float64) line {
		return compare(what, "hot", nsDecision, "Diana").must(target, atMost(nsDecision, most))
	}
	var got []string
	for _, l := range shown(r.report, []line{
		l("a: x", "A", 30), l("the same", "A", 10), l("the same: y", "A", 10),
		l("b", "B", 30), l("the same, z", "B", 30), compare("c", "hot", nsDecision, "Diana"), l("the same", "C", 30),
	}) {
		got = append(got, l.what)
	}
	if got, want := strings.Join(got, "|"), "a: x|the same: y|b|c|the same"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// A response that is paced is not better for ending too soon.
func TestPacedIsNotBetter(t *testing.T) {
	r := &run{report: &report{}, group: "bandwidth"}
	for name, figures := range map[string][2]float64{slowedServe: {10, 20}, "soon": {8, 30}, "light": {10, 15}} {
		k := rival
		if name == slowedServe {
			k = diana
		}
		m := r.row(slowedWorkload, name, k)
		m.add(slowedP50, figures[0])
		m.add(coreShare, figures[1])
	}
	if got := betterBlock(r.report); strings.Contains(got, "soon") || !strings.Contains(got, "15 % (light)") {
		t.Errorf("%q names the rival that ends too soon, or omits the one that takes less of a core", got)
	}
}

// A ratio to a rival says how many times better Diana is, and a ratio to a floor is a quotient.
func TestVerdict(t *testing.T) {
	r := &run{report: &report{}, group: "local"}
	for _, s := range []struct {
		name string
		kind kind
		ns   float64
	}{{"Diana", diana, 20}, {"rival", rival, 60}, {"slow rival", rival, 80}, {"floor", floor, 10}} {
		r.row("hot", s.name, s.kind).add(nsDecision, s.ns)
	}
	for _, tc := range []struct {
		line line
		want string
	}{
		{compare("", "hot", nsDecision, "Diana", bestRival).must("A", ratioAtLeast(3)), "20 ns, 60 ns, rival, 3 x, met"},
		{compare("", "hot", nsDecision, "Diana", "slow rival").must("A", ratioAtLeast(4.1)), "20 ns, 80 ns, slow rival, 4 x, missed"},
		{compare("", "hot", nsDecision, "Diana", "floor").must("A", ratioAtMost(2)), "20 ns, 10 ns, floor, 2 x, met"},
		{compare("", "hot", nsDecision, "Diana").must("A", atMost(nsDecision, 19)), "20 ns, , , missed"},
		{compare("", "cold", nsDecision, "Diana", bestRival).must("A", ratioAtLeast(3)), "-, , , not measured"},
		{compare("", "hot", nsDecision, "Diana", bestRival), "20 ns, 60 ns, rival, 3 x, "},
	} {
		cells := tc.line.cells(r.report)
		if got := strings.Join(append(cells[1:4:4], cells[5]), ", "); got != tc.want {
			t.Errorf("%q, want %q", got, tc.want)
		}
	}
}
