// SPDX-License-Identifier: MIT

package live

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/diana-limiter/diana"
)

// The list has the refusals of the last ten minutes, and leaves actors out that were refused before.
func TestMostRefusedOfTenMinutes(t *testing.T) {
	t.Parallel()
	var h history
	var f refused
	ann, bob := int64(0), int64(0)
	status := func(string) (diana.RuleStatus, bool) {
		return diana.RuleStatus{TopRefused: []diana.TopRefused{{Actor: "ann", Count: ann, Exact: true}, {Actor: "bob", Count: bob, Exact: true}}}, true
	}
	for _, step := range []struct {
		second   int
		ann, bob int64 // refusals since the step before
		want     string
	}{
		{0, 5, 0, "ann 5"},
		{60, 0, 3, "ann 5, bob 3"},
		{590, 1, 0, "ann 6, bob 3"},
		{620, 0, 0, "bob 3, ann 1"},
		{700, 0, 4, "bob 4, ann 1"},
		{1200, 0, 0, "bob 4"},
		{1310, 0, 0, ""},
	} {
		for s := int(h.bySecond.span) + 1; h.bySecond.span > 0 && s < int(noon.Unix())+step.second; s++ { // a sample each second
			h.sampleAt(s-int(noon.Unix()), "r", counts{Refused: ann + bob})
			if f.due(h.now) {
				f.measure(h.now, h.refusing(), status)
			}
		}
		ann, bob = ann+step.ann, bob+step.bob
		h.sampleAt(step.second, "r", counts{Refused: ann + bob})
		f.measure(noon.Add(time.Duration(step.second)*time.Second), h.refusing(), status)
		var got []string
		for _, r := range f.list {
			got = append(got, fmt.Sprintf("%s %d", r.Actor, r.Recent))
			if !r.RecentExact {
				t.Errorf("after %d s: %s is an estimate", step.second, r.Actor)
			}
		}
		if got := strings.Join(got, ", "); got != step.want {
			t.Errorf("after %d s: %s, want %s", step.second, got, step.want)
		}
	}
}

// An actor that was not in the list of its rule ten minutes ago may have been refused before. So its figure is an
// estimate, and at most what the rule has refused.
func TestMostRefusedEstimate(t *testing.T) {
	t.Parallel()
	var h history
	var f refused
	top := []diana.TopRefused{{Actor: "ann", Count: 50, Exact: true}}
	status := func(string) (diana.RuleStatus, bool) { return diana.RuleStatus{TopRefused: top}, true }
	h.sampleAt(0, "r", counts{Refused: 50})
	f.measure(h.now, h.refusing(), status)
	top = []diana.TopRefused{{Actor: "bob", Count: 52, Exact: true}, {Actor: "ann", Count: 50, Exact: true}}
	h.sampleAt(601, "r", counts{Refused: 60})
	f.measure(h.now, h.refusing(), status)
	want := Refused{Rule: "r", Actor: "bob", Recent: 10, Count: 52, Exact: true}
	if len(f.list) != 1 || f.list[0] != want {
		t.Errorf("got %+v, want %+v", f.list, want)
	}
}
