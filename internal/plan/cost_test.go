// SPDX-License-Identifier: MIT

package plan

import (
	"strings"
	"testing"
	"time"

	"github.com/diana-limiter/diana/internal/actors"
	"github.com/diana-limiter/diana/internal/bounds"
	"github.com/diana-limiter/diana/limit"
	"github.com/diana-limiter/diana/rule"
)

// What a header says counts if someone has said it who is believed, and nobody gains by
// writing what cannot be read.
func TestCostOf(t *testing.T) {
	t.Parallel()
	r := rule.Rule{Algorithm: limit.TokenBucket(), Limit: limit.Limit{N: 1, Unit: time.Second}}
	set := func(text string) *Set {
		t.Helper()
		if err := r.Cost.UnmarshalText([]byte(text)); err != nil {
			t.Fatal(err)
		}
		s, err := Compile([]rule.Entry{{URL: pattern(t, "/"), Rules: []rule.Rule{r}}}, identity(t), rule.Paths{}, actors.Kinds())
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	told := request("X-Cost", "7")
	told.Costs = map[string]int64{"X-Cost": 30}
	toldTooMuch := &rule.Request{Costs: map[string]int64{"X-Cost": bounds.MaxCost + 1}}
	toldNothing := &rule.Request{Costs: map[string]int64{"X-Cost": 0}}
	const trusted, unknown = "10.1.2.3:4", "192.0.2.1:1234"
	for _, tc := range []struct {
		cost, peer string
		request    *rule.Request
		want       int64
	}{
		{"5", unknown, request(), 5},
		{"5", trusted, request("X-Cost", "7"), 5},
		{"header:X-Cost", unknown, request("X-Cost", "7"), 1},
		{"header:X-Cost", trusted, request("X-Cost", "7"), 7},
		{"header:X-Cost", trusted, request(), 1},
		{"header:X-Cost", "@", request("X-Cost", "7"), 1},
		{"header:X-Cost", unknown, told, 30},
		{"header:X-Cost", unknown, toldTooMuch, bounds.MaxCost},
		{"header:X-Cost", unknown, toldNothing, 1},
		{"header:X-Cost", unknown, &rule.Request{}, 1},
		{"client:X-Cost", unknown, request("X-Cost", "7"), 7},
		{"client:X-Cost", unknown, told, 30},

		{"client:X-Cost", unknown, request("X-Cost", ""), 1},
		{"client:X-Cost", unknown, request("X-Cost", "0"), 1},
		{"client:X-Cost", unknown, request("X-Cost", "-3"), 1},
		{"client:X-Cost", unknown, request("X-Cost", " 3\t"), 3},
		{"client:X-Cost", unknown, request("X-Cost", "1000000"), bounds.MaxCost},
		{"client:X-Cost", unknown, request("X-Cost", "1000001"), bounds.MaxCost},
		{"client:X-Cost", unknown, request("X-Cost", "99999999999999999999"), bounds.MaxCost},
		{"client:X-Cost", unknown, request("X-Cost", "1.5"), bounds.MaxCost},
		{"client:X-Cost", unknown, request("X-Cost", "1, 5"), bounds.MaxCost},
		{"client:X-Cost", unknown, request("X-Cost", "-"), bounds.MaxCost},
		{"client:X-Cost", unknown, request("X-Cost", "1", "X-Cost", "9", "X-Cost", "2"), 9},
		{"client:X-Cost", unknown, request("X-Cost", "9", "X-Cost", ""), 9},
		{"client:X-Cost", unknown, request("X-Cost", "9", "X-Cost", "x"), bounds.MaxCost},
		{"header:X-Cost", trusted, request("X-Cost", "1", "X-Cost", "9"), 9},
		{"client:X-Cost", unknown, request(repeated("X-Cost", "2", 32)...), 2},
		{"client:X-Cost", unknown, request(repeated("X-Cost", "2", 33)...), bounds.MaxCost},
		{"client:X-Cost", unknown, request("X-Cost", strings.Repeat("0", 63)+"2"), 2},
		{"client:X-Cost", unknown, request("X-Cost", strings.Repeat("0", 64)+"2"), bounds.MaxCost},
	} {
		s := set(tc.cost)
		if tc.request.HTTP != nil {
			tc.request.HTTP.RemoteAddr = tc.peer
		}
		if got := explain(t, s, tc.request)[0].Cost; got != tc.want {
			t.Errorf("%s from %s, %v: %d, want %d", tc.cost, tc.peer, tc.request, got, tc.want)
		}
	}
}

// repeated returns a header line n times, as request takes it.
func repeated(name, value string, n int) (lines []string) {
	for range n {
		lines = append(lines, name, value)
	}
	return lines
}

// What an algorithm could give back twice, or not at all, is refused.
func TestChargeFits(t *testing.T) {
	t.Parallel()
	for _, a := range limit.Algorithms() {
		r := rule.Rule{Algorithm: a, Limit: limit.Limit{N: 1, Unit: time.Second}, Charge: []int{401}}
		_, err := Compile([]rule.Entry{{URL: pattern(t, "/"), Rules: []rule.Rule{r}}}, identity(t), rule.Paths{}, actors.Kinds())
		if fits := a.Uses("charge"); fits != (err == nil) {
			t.Errorf("%s: %v", a.Name(), err)
		}
	}
}
