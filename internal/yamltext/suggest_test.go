// SPDX-License-Identifier: MIT

package yamltext

import "testing"

func TestEdits(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		a, b string
		want int
	}{
		{"", "", 0}, {"", "abc", 3}, {"abc", "", 3}, {"abc", "abc", 0},
		{"abc", "abd", 1}, {"abc", "ac", 1}, {"ac", "abc", 1}, {"abc", "acb", 1},
		{"brust", "burst", 1}, {"kitten", "sitting", 3},
	} {
		if got := edits(row.a, row.b); got != row.want {
			t.Errorf("edits(%q, %q) = %d, want %d", row.a, row.b, got, row.want)
		}
	}
}

func TestDidYouMean(t *testing.T) {
	t.Parallel()
	keys := []string{"name", "actor", "unit", "rpu", "algo", "scope", "burst", "queue", "slices", "align", "warmup", "on_error", "mode", "cost", "charge", "wait", "except", "overrides"}
	for word, want := range map[string]string{
		"rpm": " (did you mean rpu?)", "RPU": " (did you mean rpu?)", "rup": " (did you mean rpu?)",
		"rpu": "", "": "", "x": "", "rate": "", "onerror": " (did you mean on_error?)", "burts": " (did you mean burst?)",
	} {
		if got := DidYouMean(word, keys); got != want {
			t.Errorf("DidYouMean(%q) = %q, want %q", word, got, want)
		}
	}
}
