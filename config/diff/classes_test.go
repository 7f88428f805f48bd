// SPDX-License-Identifier: MIT

package diff

import (
	"slices"
	"testing"

	"github.com/diana-limiter/diana/config"
)

// Classes, reservations and include_usage differ by their values.
func TestDiffClasses(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		old, now string
		want     []string
	}{
		{"rpu: 5", "rpu: 5, class: header:X-Plan, classes: {pro: {rpu: 50}}", []string{`rule "n": class none → header:X-Plan, for class pro: none → rpu 50`}},
		{"rpu: 5, class: header:X-Plan, classes: {pro: {rpu: 50}}", "rpu: 5, class: client:X-Plan, classes: {pro: {rpu: 60, burst: 9}, free: {rpu: 1}}",
			[]string{`rule "n": class header:X-Plan → client:X-Plan, for class pro: rpu 50 → rpu 60, burst 9, for class free: none → rpu 1`}},
		{"rpu: 5, cost: {answer: openai}", "rpu: 5, cost: {answer: openai, reserve: 'body:/n', or: 2, include_usage: true}",
			[]string{`rule "n": cost {answer: openai, reserve: 1} → {answer: openai, reserve: body:/n, or: 2, include_usage: true}`}},
		{"rpu: 5, class: header:X, classes: {pro: {rpu: 50}}", "class: header:x, classes: {pro: {rpu: 50}}, rpu: 5", nil},
	} {
		read := func(keys string) *config.Config {
			c, err := config.Parse("x", []byte("{url: /, rules: [{name: n, "+keys+"}]}"))
			if err != nil {
				t.Fatal(err)
			}
			return c
		}
		if got := Configs(read(tc.old), read(tc.now)); !slices.Equal(got, tc.want) {
			t.Errorf("%s\n%s\ngot  %q\nwant %q", tc.old, tc.now, []string(got), tc.want)
		}
	}
}
