// SPDX-License-Identifier: MIT

package hosts

import (
	"slices"
	"testing"
)

func TestSplit(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]string{
		"a":                {"a:7"},
		"a:1,b,[::1]":      {"a:1", "b:7", "[::1]:7"},
		"[::1]:2,10.0.0.1": {"[::1]:2", "10.0.0.1:7"},
		"":                 nil,
		"a,":               nil,
		":1":               nil,
		"a,b/c":            nil,
		"user@a":           nil,
	} {
		if got := Split(text, "7"); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
