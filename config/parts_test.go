// SPDX-License-Identifier: MIT

package config

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/diana-limiter/diana/internal/race"

	"github.com/diana-limiter/diana/internal/yamltext"
)

// wantSameInParts compares a text that is read in parts, as small as possible, with the same text that
// is read as a whole.
func wantSameInParts(t *testing.T, text string) {
	t.Helper()
	if got, want := readInParts(text); got != want {
		t.Errorf("in parts\n%s\nas a whole\n%s\n%q", got, want, text)
	}
}

// readInParts returns descriptions of a text that is read in parts, and as a whole.
func readInParts(text string) (inParts, asWhole string) {
	var mistakes []yamltext.Mistake
	read := func(size int) string {
		r := words().newReader("x", yamltext.New(text, size), false)
		r.read()
		mistakes = r.text.Mistakes
		if r.text.Broken {
			return "broken"
		}
		return describeReader(r)
	}
	inParts = read(1)
	all := inParts + fmt.Sprint(mistakes)
	if strings.Contains(all, "aliases stand for too much") || strings.Contains(all, "expected the anchor of this alias outside") { // because each collection is large here
		return inParts, inParts
	}
	return inParts, read(yamltext.AsWhole)
}

// refused reports whether a description is of mistakes.
func refused(description string) bool {
	return description == "broken" || strings.HasPrefix(description, "x:")
}

// describeReader returns a text of all that a reader has found.
func describeReader(r *reader) string {
	c := *r.config
	limits := c.Limits
	c.Limits = nil
	text := fmt.Sprintf("%v\n", r.errs.Sorted())
	if len(r.errs) > 0 {
		return text
	}
	settings, _ := json.Marshal([]any{c.Redis, c.Remote, c.Credentials.Keys})
	text += string(settings)
	c.Redis, c.Remote, c.Credentials.Keys = nil, nil, nil
	text += fmt.Sprintf("%+v\n%v\n%v\n", c, r.warnings.Sorted(), r.withoutRedis.Sorted())
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

var textsInParts = []string{
	"- url: /a\n  rules: [{rpu: 1}]\n- url: /b\n  rules: [{rpu: 1}]\n",
	"limits:\n- {url: /a, rules: [{rpu: 1}]}\n- {url: /b, rules: [{rpu: 1}]}\n",
	"max_keys: 5\nlimits:\n\n  # first\n  - {url: /a, rules: [{rpu: 1}]} # one\n  # two\n  - {url: /a, rules: [{rpu: 1}]}\n",
	"max_keys: 5\nlimits:\n\n  # first\n  - {url: /A, rules: [{rpu: 1}]} # one\n  # two\n  - {url: /a, rules: [{rpu: 1}]}\n",
	"paths: {case: exact}\nlimits:\n- {url: /A, rules: [{rpu: 1}]}\n- {url: /a, rules: [{rpu: 1}]}\n",
	"limits:\n- {url: /A, rules: [{rpu: 1}]}\n- {url: /a, rules: [{rpu: 1}]}\npaths: {case: exact}\n",
	"limits:\n- url: /a\n  rules:\n  - rpu: 1\n  - rpu: 1\n- url: /b\n  rules:\n  - &r {rpu: 1}\n  - *r\n",
	"limits:\n- url: /a\n  rules: [&r {rpu: 1}]\n- url: /b\n  rules: [*r]\n",
	"limits:\n- url: /a\n  rules: [\n- {rpu: 1}]\n",
	"limits:\n- {url: /a, rules: [{rpu: 1, name: \"a\n- b\"}]}\n- {url: /b, rules: [{rpu: 1}]}\n",
	"limits:\n- {url: /a, rules: [{rpu: 1}], divert: {body: \"a\n- b\n- c\"}}\n- {url: /b, rules: [{rpu: 1}]}\n",
	"limits:\n- {url: /a, rules: [{rpu: 1}], divert: {body: \"a\n%TAG\"}}\n- {url: /b, rules: [{rpu: 1}]}\n",
	"limits:\n- url: /a\n  rules: [{rpu: 1}]\n  divert:\n    body: |\n      - a\n\n      - b\n- {url: /b, rules: [{rpu: 1}]}\n",
	"limits:\n- {url: /a, rules: [{rpu: 1}]}\n...\n- {url: /b, rules: [{rpu: 1}]}\n",
	"limits:\n- {url: /a, rules: [{rpu: 1}]}\n---\n- {url: /b, rules: [{rpu: 1}]}\n",
	"- {url: /a, rules: [{rpu: 1}]}\n---\n- {url: /b, rules: [{rpu: 1}]}\n",
	"redis: {url: 'redis://h', prefix: 'a\nlimits:\n- b'}\n",
	"0:\n-\n- {:}\n:",
	"- url: /a\n  rules: [{!00: 0}]\n- 000: 00\n  000000000000: 0000",
	"limits:\n- {url: /a, rules: [{rpu: 1}]}\nlimits:\n- {url: /b, rules: [{rpu: 1}]}\n",
	"limits:\n- {url: /a, rules: [{rpu: 0, scope: global}, {rpu: 1}, {rpu: 1}]}\n- {url: '/*', rules: [{rpu: 1}]}\n",
}

// A text that is read in parts means the same as a whole.
func TestParts(t *testing.T) {
	t.Parallel()
	for _, text := range textsInParts {
		wantSameInParts(t, text)
	}
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal("no files, or ", err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if decoded, bad := yamltext.Decode(text, 1<<20); bad == nil {
			wantSameInParts(t, decoded)
		}
	}
}

// A mistake in a long text is reported at its place, and so is a warning.
func TestPartsPlaces(t *testing.T) {
	t.Parallel()
	if race.Enabled {
		t.Skip("it has one goroutine, and runs without the race detector")
	}
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

func FuzzParts(f *testing.F) {
	for _, text := range textsInParts {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		decoded, bad := yamltext.Decode([]byte(text), 1<<16)
		if bad != nil {
			return
		}
		// The outline stops at YAML that nobody writes, such as a "|" without indentation. Then the two readings may
		// report different mistakes.
		got, want := readInParts(decoded)
		if got != want && (!refused(got) || !refused(want)) {
			t.Errorf("in parts\n%s\nas a whole\n%s\n%q", got, want, decoded)
		}
	})
}
