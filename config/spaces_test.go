// SPDX-License-Identifier: MIT

package config

import (
	"fmt"
	"strings"
	"testing"
)

// Both spellings of the first example mean the same.
func TestExampleWithoutSpaces(t *testing.T) {
	t.Parallel()
	printed, err := read(t, "testdata/source-001-as-printed.good.yaml")
	if err != nil {
		t.Fatal(err)
	}
	proper, err := read(t, "testdata/source-001.good.yaml")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		`"" [device] TB 10/1s global share enforce burst 0 queue 0 slices 0 clock`,
		`"" [all] W 50/1s local share enforce burst 0 queue 0 slices 0 clock`,
	}
	for _, c := range []*Config{printed, proper} {
		if len(c.Limits) != 1 || c.Limits[0].URL.String() != "/" || len(c.Limits[0].Rules) != len(want) {
			t.Fatalf("%+v", c.Limits)
		}
		for i, r := range c.Limits[0].Rules {
			if got := describe(r); got != want[i] {
				t.Errorf("%s: got %s, want %s", c.Source, got, want[i])
			}
		}
	}
}

// Where a space is missing, and where there is only something that looks so.
func TestMissingSpaces(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ text, want string }{
		{"Url:/\nrules:\n- rpu:1\n", "/ 1"},
		{"- url:/\n  rules:\n    -   rpu:1\n        name:x\n", "/ 1 x"},
		{"Url:/\r\nrules:\r\n- rpu:1\r\n", "/ 1"},
		{"url: /\nrules:\n- rpu: 1\n  unit:\tminute\n", "/ 1"},
		{"url:/a\nrules:[{rpu: 1}]\n---\nurl: /b\nrules:\n  - actor:[ip, account]\n    rpu:1\n", "/a 1; /b 1"},
		{"limits:\n  - url:/\n    rules:\n      - name:x\n        rpu:1\n", "/ 1 x"},
		// A key that YAML takes for the rest of the text before it.
		{"url: /\nrules:\n- rpu: 1\n  name: x\n  unit:minute\n", "/ 1 x"},
		// No keys.
		{"url: /\nrules:\n- rpu: 1\n  name: >-\n    unit:minute\n", "/ 1 unit:minute"},
		{"url: /\nrules:\n- rpu: 1\n  name: \"x\n    unit:minute\"\n", "/ 1 x unit:minute"},
		{"url: /\nrules:\n- rpu: 1\n  name: unit:minute\n  # rpu:7\n", "/ 1 unit:minute"},
		{"redis:\n  cluster:\n  - queue:6379\nlimits:\n- url: /\n  rules: [{rpu: 1}]\n", "/ 1"},
	} {
		c, err := DefaultVocabulary().Parse("x", []byte(row.text))
		if err != nil {
			t.Errorf("%q: %v", row.text, err)
			continue
		}
		var entries []string
		for _, e := range c.Limits {
			r := e.Rules[0]
			entries = append(entries, strings.TrimSpace(fmt.Sprint(e.URL, " ", r.Limit.N, " ", r.Name)))
		}
		if got := strings.Join(entries, "; "); got != row.want {
			t.Errorf("%q: %s, want %s", row.text, got, row.want)
		}
	}
}

// Columns are those of the text as it was written, and the messages those of the
// reading that was meant.
func TestMissingSpacesInErrors(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ text, want string }{
		{"Url:/\nrules:\n - rpu:x\n", "x:3:8: rpu: expected a whole number in digits, 0 to 1000000000, found \"x\""},
		{"Url:/\nrules:\n - rpu:1 # é\n   name:\"é\" z\n", "x:4:13: expected the end of the line behind this value"},
		{"url:/\nrules:\n - rpu:1\n   mod: shadow\n", "x:4:4: unknown key \"mod\" of a rule (did you mean mode?), expected name, actor, unit, rpu, algo, scope, burst, queue, slices, align, zone, warmup, on_error, mode, cost, charge, wait, min, measure, hold, keep, least, priority, priorities, except, overrides, class or classes"},
		// Only one of the readings takes the host for a key.
		{"redis:\n  cluster:\n  - queue:6379\n  timeout: 1h\n", "x:4:12: timeout: expected 1ms to 10s, found \"1h\""},
	} {
		_, err := DefaultVocabulary().Parse("x", []byte(row.text))
		if err == nil || err.Error() != row.want {
			t.Errorf("%q:\n got %v\nwant %v", row.text, err, row.want)
		}
	}
}
