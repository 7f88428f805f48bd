// SPDX-License-Identifier: MIT

package config

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/diana-limiter/diana/internal/yamltext"
)

// wantSameInParts compares a text that is read in parts, as small as possible, with the same text that
// is read as a whole. It reports whether the text was read in parts.
func wantSameInParts(t *testing.T, text string) bool {
	t.Helper()
	parts := words().readParts("x", text, false, 1)
	if parts == nil {
		return false
	}
	whole := words().newReader("x", text, false)
	whole.read(text)
	if len(whole.errs) > 0 {
		t.Errorf("read in parts, but the whole is wrong: %v\n%s", whole.errs.sorted(), text)
		return true
	}
	if got, want := describeReader(parts), describeReader(whole); got != want {
		t.Errorf("in parts\n%s\nas a whole\n%s\n%s", got, want, text)
	}
	return true
}

// describeReader returns a text of all that a reader has found.
func describeReader(r *reader) string {
	c := *r.config
	limits := c.Limits
	c.Limits = nil
	text := fmt.Sprintf("%+v\n%v\n%v\n", c, r.warnings.sorted(), r.withoutRedis.sorted())
	for _, e := range limits {
		rules := e.Rules
		e.Rules = nil
		text += fmt.Sprintf("%+v %+v %+v\n", e, e.Bandwidth, e.Divert)
		for _, one := range rules {
			one.Algorithm.New = nil
			text += fmt.Sprintf("  %+v\n", one)
		}
	}
	return text
}

var textsInParts = []struct {
	text  string
	parts bool
}{
	{"- url: /a\n  rules: [{rpu: 1}]\n- url: /b\n  rules: [{rpu: 1}]\n", true},
	{"limits:\n- {url: /a, rules: [{rpu: 1}]}\n- {url: /b, rules: [{rpu: 1}]}\n", true},
	{"max_keys: 5\nlimits:\n\n  # first\n  - {url: /a, rules: [{rpu: 1}]} # one\n  # two\n  - {url: /a, rules: [{rpu: 1}]}\n", false},
	{"max_keys: 5\nlimits:\n\n  # first\n  - {url: /A, rules: [{rpu: 1}]} # one\n  # two\n  - {url: /a, rules: [{rpu: 1}]}\n", true},
	{"paths: {case: exact}\nlimits:\n- {url: /A, rules: [{rpu: 1}]}\n- {url: /a, rules: [{rpu: 1}]}\n", true},
	{"limits:\n- {url: /A, rules: [{rpu: 1}]}\n- {url: /a, rules: [{rpu: 1}]}\npaths: {case: exact}\n", false},
	{"limits:\n- url: /a\n  rules:\n  - rpu: 1\n  - rpu: 1\n- url: /b\n  rules:\n  - &r {rpu: 1}\n  - *r\n", true},
	{"limits:\n- url: /a\n  rules: [&r {rpu: 1}]\n- url: /b\n  rules: [*r]\n", false},
	{"limits:\n- url: /a\n  rules: [\n- {rpu: 1}]\n", false},
	{"limits:\n- {url: /a, rules: [{rpu: 1, name: \"a\n- b\"}]}\n- {url: /b, rules: [{rpu: 1}]}\n", false},
	{"limits:\n- {url: /a, rules: [{rpu: 1}], divert: {body: \"a\n- b\n- c\"}}\n- {url: /b, rules: [{rpu: 1}]}\n", false},
	{"limits:\n- {url: /a, rules: [{rpu: 1}], divert: {body: \"a\n%TAG\"}}\n- {url: /b, rules: [{rpu: 1}]}\n", false},
	{"limits:\n- url: /a\n  rules: [{rpu: 1}]\n  divert:\n    body: |\n      - a\n\n      - b\n- {url: /b, rules: [{rpu: 1}]}\n", true},
	{"limits:\n- {url: /a, rules: [{rpu: 1}]}\n...\n- {url: /b, rules: [{rpu: 1}]}\n", false},
	{"limits:\n- {url: /a, rules: [{rpu: 1}]}\n---\n- {url: /b, rules: [{rpu: 1}]}\n", false},
	{"- {url: /a, rules: [{rpu: 1}]}\n---\n- {url: /b, rules: [{rpu: 1}]}\n", false},
	{"redis: {url: 'redis://h', prefix: 'a\nlimits:\n- b'}\n", false},
	{"limits:\n- {url: /a, rules: [{rpu: 1}]}\nlimits:\n- {url: /b, rules: [{rpu: 1}]}\n", false},
	{"limits:\n- {url: /a, rules: [{rpu: 0, scope: global}, {rpu: 1}, {rpu: 1}]}\n- {url: '/*', rules: [{rpu: 1}]}\n", true},
}

// A text that is read in parts means the same as a whole.
func TestParts(t *testing.T) {
	t.Parallel()
	for _, row := range textsInParts {
		if got := wantSameInParts(t, row.text); got != row.parts {
			t.Errorf("read in parts: %v, want %v:\n%s", got, row.parts, row.text)
		}
	}
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal("no files, or ", err)
	}
	divided := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if wantSameInParts(t, string(text)) {
			divided++
		}
	}
	t.Logf("%d of %d files were read in parts", divided, len(files))
}

// A mistake in a long text is reported at its place, and so is a warning.
func TestPartsPlaces(t *testing.T) {
	t.Parallel()
	text := string(manyEntries(10_000))
	more := "- url: /a/*\n  rules: [{rpu: 1}]\n"
	c, err := words().Parse("x", []byte(text+more))
	if err != nil || len(c.Warnings) != 1 || c.Warnings[0].Line != 30_002 || c.Warnings[0].Column != 8 {
		t.Errorf("%v, %v, want a warning at 30002:8", err, c)
	}
	_, err = words().Parse("x", []byte(text+more+"- url: /b\n  rules: [{rpu: x}]\n"))
	want := "x:30005:17: rpu: expected a whole number in digits, 0 to 1000000000, found \"x\""
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}

// The parts of a long text are small, and together they are the text.
func TestPartsAreSmall(t *testing.T) {
	t.Parallel()
	text := string(manyEntries(10_000))
	head, parts := divide(text, partSize)
	all := ""
	for _, p := range parts {
		if len(p.text) > 2*partSize {
			t.Errorf("a part has %d bytes", len(p.text))
		}
		all += p.text
	}
	if head != "limits: []\n" || "limits:\n"+all != text {
		t.Errorf("the head is %q, and the parts are not the text", head)
	}
	if parts[1].lines != 1+strings.Count(parts[0].text, "\n") {
		t.Errorf("the second part begins behind %d lines", parts[1].lines)
	}
}

func FuzzParts(f *testing.F) {
	for _, row := range textsInParts {
		f.Add(row.text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		decoded, bad := yamltext.Decode([]byte(text), 1<<16)
		if bad == nil {
			wantSameInParts(t, decoded)
		}
	})
}
