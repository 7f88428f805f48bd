// SPDX-License-Identifier: MIT

package page

import (
	"strings"
	"testing"

	"github.com/diana-limiter/diana/bench/measure"
)

var ns = measure.Figure{Name: "ns", Format: measure.NsText}

// reportOf returns a report of one workload with one system of each of some kinds.
func reportOf(rows ...measure.Row) *measure.Report {
	r := &measure.Report{}
	for _, m := range rows {
		m.Group, m.Workload = "local", "hot"
		r.Rows = append(r.Rows, &m)
	}
	return r
}

func system(name string, k measure.Kind, value float64) measure.Row {
	return measure.Row{System: name, Kind: k, Figures: map[string]*measure.Series{ns.Name: {Median: value, Rounds: []float64{value}}}}
}

// The page names a rival that is better, and no other.
func TestBetter(t *testing.T) {
	less := system("less work", measure.Rival, 10)
	less.Work = "none"
	r := reportOf(system("Diana", measure.Diana, 30), system("slow", measure.Rival, 40), system("fast", measure.Rival, 20), system("as fast", measure.Rival, 29.5),
		system("other", measure.Rival, 5), system("a floor", measure.Floor, 1), less)
	p := &Page{
		Groups: []Chapter{{Name: "local", Figures: []measure.Figure{ns}}},
		Unlike: func(_, theirs *measure.Row) bool { return theirs.System == "other" },
	}
	if got := p.BetterBlock(r); !strings.Contains(got, "| local: hot | ns | 20 ns (fast) | **30 ns (Diana)** |") {
		t.Errorf("%q does not name the faster rival, or names others too", got)
	}
}

// A ratio to a rival says how many times better Diana is, and a ratio to a floor is a quotient.
func TestVerdict(t *testing.T) {
	r := reportOf(system("Diana", measure.Diana, 20), system("rival", measure.Rival, 60), system("slow rival", measure.Rival, 80), system("floor", measure.Floor, 10))
	for _, tc := range []struct {
		line Line
		want string
	}{
		{Compare("", "hot", ns, "Diana", BestRival).Must("A", RatioAtLeast(3)), "20 ns, 60 ns, rival, 3 x, met"},
		{Compare("", "hot", ns, "Diana", "slow rival").Must("A", RatioAtLeast(4.1)), "20 ns, 80 ns, slow rival, 4 x, missed"},
		{Compare("", "hot", ns, "Diana", "floor").Must("A", RatioAtMost(2)), "20 ns, 10 ns, floor, 2 x, met"},
		{Compare("", "hot", ns, "Diana").Must("A", AtMost(ns, 19)), "20 ns, , , missed"},
		{Compare("", "cold", ns, "Diana", BestRival).Must("A", RatioAtLeast(3)), "-, , , not measured"},
		{Compare("", "hot", ns, "Diana", BestRival), "20 ns, 60 ns, rival, 3 x, "},
	} {
		cells := tc.line.Cells(r)
		if got := strings.Join(append(cells[1:4:4], cells[5]), ", "); got != tc.want {
			t.Errorf("%q, want %q", got, tc.want)
		}
	}
}

// A second run agrees where a ratio differs by at most a tenth.
func TestCompare(t *testing.T) {
	first := reportOf(system("Diana", measure.Diana, 20), system("near", measure.Rival, 40), system("far", measure.Rival, 60))
	second := reportOf(system("Diana", measure.Diana, 20), system("near", measure.Rival, 43), system("far", measure.Rival, 90))
	second.Origins = []*measure.Origin{{}}
	p := &Page{Groups: []Chapter{{Lines: []Line{
		Compare("a", "hot", ns, "Diana", "near"), Compare("b", "hot", ns, "Diana", "far"), Compare("c", "cold", ns, "Diana", "far"), Compare("d", "hot", ns, "Diana"),
	}}}}
	if got, want := *p.Compare(first, second), (measure.Again{Ratios: 2, Agreed: 1, Most: 0.5, What: "b"}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}
