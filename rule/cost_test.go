// SPDX-License-Identifier: MIT

package rule

import (
	"strings"
	"testing"
	"time"

	"github.com/diana-limiter/diana/limit"
)

func TestParseCost(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]Cost{
		"1":             {N: 1},
		"1000000":       {N: MaxCost},
		"header:x-cost": {Header: "X-Cost"},
		"client:X-Cost": {Header: "X-Cost", Client: true},
	} {
		got, err := ParseCost(text)
		if err != nil || got != want {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
		if again, err := ParseCost(got.String()); err != nil || again != want {
			t.Errorf("%s is written %s", text, got)
		}
	}
	for text, want := range map[string]string{
		"0":          "expected 1 to 1000000",
		"-1":         "expected 1 to 1000000",
		"+1":         "expected 1 to 1000000",
		"1000001":    "expected 1 to 1000000",
		"1.5":        "expected 1 to 1000000",
		"":           "expected 1 to 1000000",
		"cookie:x":   "expected 1 to 1000000",
		"header:":    "not a name of a header",
		"header:a b": "not a name of a header",
		"client":     "not a name of a header",
	} {
		if _, err := ParseCost(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want one with %q", text, err, want)
		}
	}
	if got := (Cost{}).String(); got != "1" {
		t.Errorf("the zero value is %s, want 1", got)
	}
}

// What a header says counts if someone has said it who is believed, and nobody gains by
// writing what cannot be read.
func TestCostOf(t *testing.T) {
	t.Parallel()
	r := Rule{Algorithm: limit.TokenBucket(), Limit: limit.Limit{N: 1, Unit: time.Second}}
	set := func(text string) *Set {
		t.Helper()
		var err error
		if r.Cost, err = ParseCost(text); err != nil {
			t.Fatal(err)
		}
		s, err := Compile([]Entry{{URL: pattern(t, "/"), Rules: []Rule{r}}}, identity(t), Paths{}, Default())
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	told := request("X-Cost", "7")
	told.Costs = map[string]int64{"X-Cost": 30}
	toldTooMuch := &Request{Costs: map[string]int64{"X-Cost": MaxCost + 1}}
	toldNothing := &Request{Costs: map[string]int64{"X-Cost": 0}}
	const trusted, unknown = "10.1.2.3:4", "192.0.2.1:1234"
	for _, tc := range []struct {
		cost, peer string
		request    *Request
		want       int64
	}{
		{"5", unknown, request(), 5},
		{"5", trusted, request("X-Cost", "7"), 5},
		{"header:X-Cost", unknown, request("X-Cost", "7"), 1},
		{"header:X-Cost", trusted, request("X-Cost", "7"), 7},
		{"header:X-Cost", trusted, request(), 1},
		{"header:X-Cost", "@", request("X-Cost", "7"), 1},
		{"header:X-Cost", unknown, told, 30},
		{"header:X-Cost", unknown, toldTooMuch, MaxCost},
		{"header:X-Cost", unknown, toldNothing, 1},
		{"header:X-Cost", unknown, &Request{}, 1},
		{"client:X-Cost", unknown, request("X-Cost", "7"), 7},
		{"client:X-Cost", unknown, told, 30},

		{"client:X-Cost", unknown, request("X-Cost", ""), 1},
		{"client:X-Cost", unknown, request("X-Cost", "0"), 1},
		{"client:X-Cost", unknown, request("X-Cost", "-3"), 1},
		{"client:X-Cost", unknown, request("X-Cost", " 3\t"), 3},
		{"client:X-Cost", unknown, request("X-Cost", "1000000"), MaxCost},
		{"client:X-Cost", unknown, request("X-Cost", "1000001"), MaxCost},
		{"client:X-Cost", unknown, request("X-Cost", "99999999999999999999"), MaxCost},
		{"client:X-Cost", unknown, request("X-Cost", "1.5"), MaxCost},
		{"client:X-Cost", unknown, request("X-Cost", "1, 5"), MaxCost},
		{"client:X-Cost", unknown, request("X-Cost", "-"), MaxCost},
		{"client:X-Cost", unknown, request("X-Cost", "1", "X-Cost", "9", "X-Cost", "2"), 9},
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

// What an algorithm could give back twice, or not at all, is refused.
func TestChargeFits(t *testing.T) {
	t.Parallel()
	for _, a := range limit.Algorithms() {
		r := Rule{Algorithm: a, Limit: limit.Limit{N: 1, Unit: time.Second}, Charge: []int{401}}
		_, err := Compile([]Entry{{URL: pattern(t, "/"), Rules: []Rule{r}}}, identity(t), Paths{}, Default())
		if fits := a.Uses("charge"); fits != (err == nil) {
			t.Errorf("%s: %v", a.Name(), err)
		}
	}
}
