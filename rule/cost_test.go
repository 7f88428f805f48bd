// SPDX-License-Identifier: MIT

package rule

import (
	"reflect"
	"strings"
	"testing"

	"github.com/diana-limiter/diana/internal/bounds"
)

func TestCost(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]Cost{
		"1":             {N: 1},
		"1000000":       {N: bounds.MaxCost},
		"header:x-cost": {Header: "X-Cost"},
		"client:X-Cost": {Header: "X-Cost", Client: true},
	} {
		var got, again Cost
		if err := got.UnmarshalText([]byte(text)); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
		if err := again.UnmarshalText([]byte(got.String())); err != nil || !reflect.DeepEqual(again, want) {
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
		"header:":    "expected the name of a header",
		"header:a b": "expected the name of a header",
		"client":     "expected the name of a header",
	} {
		if err := new(Cost).UnmarshalText([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want one with %q", text, err, want)
		}
	}
	if got := (Cost{}).String(); got != "1" {
		t.Errorf("the zero value is %s, want 1", got)
	}
}
