// SPDX-License-Identifier: MIT

package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/diana-limiter/diana/internal/bounds"
	"github.com/diana-limiter/diana/internal/plan"
	"github.com/diana-limiter/diana/internal/race"
	"github.com/diana-limiter/diana/limit"
	"github.com/diana-limiter/diana/rule"
)

const plain = "url: /\nrules:\n  - rpu: 1\n    name: a\n"

// A byte order mark, line ends and comments do not change the result.
func TestText(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"plain":              plain,
		"byte order mark":    "\uFEFF" + plain,
		"CRLF":               strings.ReplaceAll(plain, "\n", "\r\n"),
		"CR":                 strings.ReplaceAll(plain, "\n", "\r"),
		"no end of line":     strings.TrimSuffix(plain, "\n"),
		"tabs behind values": strings.ReplaceAll(plain, "\n", "\t\n"),
		"comments":           "# Größe\n" + strings.ReplaceAll(plain, "\n", " # 限流\n"),
		"%YAML 1.2":          "%YAML 1.2\n---\n" + plain,
		"%YAML 1.1":          "%YAML 1.1 # old\n---\n" + plain + "...\n",
		"escaped separators": "url: \"/\\u2028\\0\"\nrules: [{rpu: 1, name: a}]",
	} {
		c, err := words().Parse("x", []byte(text))
		if err != nil {
			t.Errorf("%s: %v", name, err)
		} else if got := describe(c.Limits[0].Rules[0]); got != `"a" [all] TB 1/1s local share enforce burst 0 queue 0 slices 0 clock` {
			t.Errorf("%s: %s", name, got)
		}
	}
}

// Places count lines as editors do, and characters, not bytes.
func TestPlaces(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ text, want string }{
		{"\uFEFFurl: x\nrules: [{rpu: 1}]", "x:1:6"},
		{"url: /\r\nrules: [{rpu: x}]\r\n", "x:2:15"},
		{"url: /\rrules: [{rpu: x}]\r", "x:2:15"},
		{"url: /限流/é\nrules: [{name: 限流é, rpu: x}]", "x:2:26"},
		{"url: /限\x00", "x:1:8"},
		{"url: /限\xff", "x:1:8"},
		{"url: /\n\n\xed\xa0\x80", "x:3:1"},
		{"url: /\nrules: [{rpu: 1, name: 限, @}]", "x:2:27"},
		{"url: /\n# \u2029", "x:2:3"},
		{"url: /\n\uFEFF", "x:2:1"},
		{"url: /\n\u0085", "x:2:1"},
		{"url: /\n\x1b", "x:2:1"},
	} {
		_, err := words().Parse("x", []byte(row.text))
		var errs Errors
		if !errors.As(err, &errs) || len(errs) != 1 || !strings.HasPrefix(errs[0].String(), row.want+": ") {
			t.Errorf("%q: %v, want one error at %s", row.text, err, row.want)
		}
	}
}

// A local configuration can have 8 MiB, and a remote one 1 MiB.
func TestTooLarge(t *testing.T) {
	t.Parallel()
	if race.Enabled {
		t.Skip("it has one goroutine, and runs without the race detector")
	}
	for _, row := range []struct {
		parse func(string, []byte) (*Config, error)
		most  int
		want  string
	}{
		{words().Parse, 8 << 20, "x:1:1: the configuration is too large, expected at most 8192 KiB, found 8388609 bytes or more"},
		{words().ParseRemote, 1 << 20, "x:1:1: the configuration is too large, expected at most 1024 KiB, found 1048577 bytes or more"},
	} {
		if _, err := row.parse("x", make([]byte, row.most+1)); err == nil || err.Error() != row.want {
			t.Errorf("got %v, want %s", err, row.want)
		}
		fits := plain + strings.Repeat("#", row.most-len(plain))
		if _, err := row.parse("x", []byte(fits)); err != nil {
			t.Errorf("%d bytes: %v", len(fits), err)
		}
	}
}

// A configuration of the largest size can have 100,000 entries, and no more.
func TestTooManyEntries(t *testing.T) {
	if race.Enabled {
		t.Skip("reads megabytes in one goroutine: slow under the race detector")
	}
	t.Parallel()
	const most = 100_000
	text := manyEntries(most)
	text = append(text, strings.Repeat("#", 8<<20-len(text))...)
	c, err := words().Parse("x", text)
	if err != nil || len(c.Limits) != most || len(c.Warnings) > 0 {
		t.Fatalf("%d entries: %v", most, err)
	}
	last := c.Limits[most-1]
	if last.URL.Path != "/api/v99999/orders" || last.Rules[0].Limit.N != 100 {
		t.Errorf("the last entry is %+v", last)
	}
	more := manyEntries(most + 2)
	want := "x:300002:3: expected at most 100000 entries, found 100002"
	if _, err := words().Parse("x", more); err == nil || err.Error() != want {
		t.Errorf("two more: %v, want %s", err, want)
	}
}

// All entries together can have 131,072 rules.
func TestTooManyRules(t *testing.T) {
	if race.Enabled {
		t.Skip("reads megabytes in one goroutine: slow under the race detector")
	}
	t.Parallel()
	const most = 1 << 17
	text := "url: /\nrules:\n" + strings.Repeat("- {rpu: 1}\n", most)
	if c, err := words().Parse("x", []byte(text)); err != nil || len(c.Limits[0].Rules) != most {
		t.Fatalf("%d rules: %v", most, err)
	}
	want := "x:131075:3: expected at most 131072 rules of all entries together, found 131073"
	if _, err := words().Parse("x", []byte(text+"- {rpu: 1}\n")); err == nil || err.Error() != want {
		t.Errorf("one more: %v, want %s", err, want)
	}
}

// manyEntries returns a configuration with n entries of one rule each.
func manyEntries(n int) []byte {
	text := []byte("limits:\n")
	for i := range n {
		text = fmt.Appendf(text, "- url: /api/v%d/orders\n  rules:\n  - {rpu: 100, unit: minute, actor: account}\n", i)
	}
	return text
}

func TestLoad(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	good, bad := write("good", plain), write("bad", "url: /\n")
	huge := write("huge", strings.Repeat("# comment\n", bounds.MaxFile))
	c, err := words().Load(good)
	if err != nil || len(c.Limits) != 1 || c.Source != good {
		t.Errorf("good: %+v, %v", c, err)
	}
	if _, err := words().Load(bad); err == nil || err.Error() != bad+":1:1: an entry lacks rules" {
		t.Errorf("bad: %v", err)
	}
	if _, err := words().Load(huge); err == nil || !strings.Contains(err.Error(), "too large") {
		t.Errorf("huge: %v", err)
	}
	if _, err := words().Load(filepath.Join(dir, "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("none: %v", err)
	}
	if _, err := words().Load(dir); err == nil {
		t.Error("a directory is no configuration")
	}
}

func TestVersion(t *testing.T) {
	t.Parallel()
	version := func(text string) string {
		c, err := words().Parse("x", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return c.Version
	}
	if a, b := version(plain), version(plain); a != b || len(a) != 12 {
		t.Errorf("versions of one text: %q and %q", a, b)
	}
	if a, b := version(plain), version(plain+"\n"); a == b {
		t.Errorf("version of two texts: %q", a)
	}
}

// A remote document says nothing about Redis, and has no settings.
func TestParseRemote(t *testing.T) {
	t.Parallel()
	c, err := words().ParseRemote("etcd", []byte("url: /\nrules: [{rpu: 1, scope: global}]"))
	if err != nil || len(c.Limits) != 1 || len(c.Warnings) != 0 || c.Redis != nil || c.Response.Status != 503 {
		t.Errorf("%+v, %v", c, err)
	}
	for _, key := range fullKeys.names() {
		_, err := words().ParseRemote("etcd", []byte(key+": []"))
		if refused := err != nil && strings.Contains(err.Error(), "settings come from the local file"); refused != (key != "limits") {
			t.Errorf("%s: %v", key, err)
		}
	}
}

// A text with many mistakes gets the first hundred of the text, and the number of the others.
func TestErrors(t *testing.T) {
	t.Parallel()
	text := "url: /\nrules:\n" + strings.Repeat("  - rpu: x\n", 1250)
	_, err := words().Parse("x", []byte(text))
	var errs Errors
	if !errors.As(err, &errs) || len(errs) != maxErrors+1 {
		t.Fatalf("%d errors, want 101", len(errs))
	}
	if last := errs[99]; last.File != "x" || last.Line != 102 || last.Column != 10 {
		t.Errorf("the last error is %v", last)
	}
	lines := strings.Split(err.Error(), "\n")
	if len(lines) != 101 || lines[100] != "and 1150 more" || errs[100].Line != 0 || lines[99] != errs[99].String() {
		t.Errorf("%d lines, the last is %q", len(lines), lines[len(lines)-1])
	}
	if got := (Errors{}).Error(); got != "" {
		t.Errorf("no errors: %q", got)
	}

	var all Errors
	for n := range 5000 {
		all.Add(Error{File: "x", Line: 5000 - n, Column: 1, Message: "m"})
	}
	for i, e := range all.Sorted()[:maxErrors] {
		if e.Line != i+1 {
			t.Fatalf("error %d is of line %d", i, e.Line)
		}
	}
	if got := all.Sorted()[maxErrors].Message; got != "and 4900 more" {
		t.Error(got)
	}
	two := append(slices.Clone(all.Sorted()), all.Sorted()...).First()
	if got := two[maxErrors].Message; len(two) != maxErrors+1 || got != "and 9900 more" {
		t.Error(len(two), got)
	}
}

// Words from outside are read, and named where they could have been meant.
func TestVocabulary(t *testing.T) {
	t.Parallel()
	v := words()
	v.Algorithms = append(v.Algorithms, limit.Algorithm{
		Names: []string{"H", "half"},
		Keys:  []string{"queue"},
		New: func(l limit.Limit) (limit.Meter, error) {
			if l.Unit != 0 {
				return nil, fmt.Errorf("unit is %v, and means nothing", l.Unit)
			}
			if l.N%2 != 0 {
				return nil, fmt.Errorf("limit: N is %d, expected an even number", l.N)
			}
			return limit.Concurrency().New(l)
		},
	})
	v.Actors = append(v.Actors, rule.ActorKind{Kind: "tenant"})
	v.Units["week"] = 7 * 24 * time.Hour
	c, err := v.Parse("x", []byte("url: /\nrules: [{rpu: 2, algo: HALF, queue: 1, actor: tenant}, {rpu: 1, unit: week}]"))
	if err != nil {
		t.Fatal(err)
	}
	if a, b := c.Limits[0].Rules[0], c.Limits[0].Rules[1]; a.Algorithm.Name() != "H" || a.Actor[0].Kind != "tenant" || b.Limit.Unit != 7*24*time.Hour {
		t.Errorf("%+v, %+v", a, b)
	}
	_, err = v.Parse("x", []byte("url: /\nrules: [{rpu: 3, algo: H}, {rpu: 1, algo: H, unit: weak}, {rpu: 1, actor: tenat}]"))
	want := `x:2:9: algo H cannot keep this rule: N is 3, expected an even number
x:2:46: unit has no meaning for algo H; it is for TB, W, SW, SL and LB
x:2:52: unit: found "weak" (did you mean week?), expected second, minute, hour, day, week, month, year, total or a duration such as 10s
x:2:75: unknown actor "tenat" (did you mean tenant?), expected all, account, device, ip, header:NAME, cookie:NAME, query:NAME, body:/POINTER, host, cert:NAME, key:NAME, jwt:NAME or tenant`
	if err == nil || err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
}

// A vocabulary without algorithms or actors knows nothing to be the default.
func TestSmallVocabulary(t *testing.T) {
	t.Parallel()
	_, err := Vocabulary{}.Parse("x", []byte("url: /\nrules: [{rpu: 1}]"))
	if want := "x:2:9: a rule lacks algo, and there is none by default"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	v := Vocabulary{Algorithms: []limit.Algorithm{limit.Concurrency()}}
	c, err := v.Parse("x", []byte("url: /\nrules: [{rpu: 1, actor: account}]"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := plan.Compile(c.Limits, c.Identity, c.Paths, v.Actors); err != nil {
		t.Error(err)
	}
	_, err = v.Parse("x", []byte("url: /\nrules: [{rpu: 1, burst: 1}]"))
	if want := "x:2:18: burst has no meaning for algo C; it is for none that is known"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// If a made name equals a given name, the made name changes, whatever their order.
func TestGivenNamesWin(t *testing.T) {
	t.Parallel()
	c, err := words().Parse("x", []byte(`
url: /
rules:
  - {rpu: 1}
  - {rpu: 1}
  - {rpu: 1, name: / all TB 1/second}
  - {rpu: 1, name: "/ all TB 1/second #2"}
`))
	if err != nil {
		t.Fatal(err)
	}
	set, err := plan.Compile(c.Limits, c.Identity, c.Paths, words().Actors)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, r := range set.Rules {
		names = append(names, r.Name)
	}
	if got, want := strings.Join(names, ", "), "/ all TB 1/second #3, / all TB 1/second #4, / all TB 1/second, / all TB 1/second #2"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// A message stays readable, whatever was written.
func TestLongTextIsShortened(t *testing.T) {
	t.Parallel()
	_, err := words().Parse("x", []byte("url: /\nrules: [{rpu: 1, scope: "+strings.Repeat("限", 1000)+"}]"))
	want := `x:2:25: scope: expected local or global, found "` + strings.Repeat("限", 60) + `..."`
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestHasSettings(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"url: /\nrules: [{rpu: 1}]": false, "limits: []": false, "[]": false,
		"max_keys: 1000000": true, "identity: {}\nlimits: []": true,
	} {
		if got := parse1(t, text).HasSettings(); got != want {
			t.Errorf("%s: %v", text, got)
		}
		if _, err := words().ParseRemote("x", []byte(text)); (err != nil) != want {
			t.Errorf("%s: in a centre %v", text, err)
		}
	}
}

func parse1(t *testing.T, text string) *Config {
	t.Helper()
	c, err := words().Parse("x", []byte(text))
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	return c
}

// A configuration knows where its rules need to learn how a request ends, also those of a remote document.
func TestEndPlace(t *testing.T) {
	t.Parallel()
	const text = "limits:\n- url: /a\n  rules:\n  - {name: fine, rpu: 1}\n  - {name: slots, algo: C, rpu: 1}\n- url: /b\n  rules:\n  - name: failures\n    rpu: 1\n    charge: [401]\n"
	c, err := Parse("a.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	remote, err := DefaultVocabulary().ParseRemote("centre", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	for file, c := range map[string]*Config{"a.yaml": c, "centre": (&Config{}).WithRemote(remote).Filled(DefaultVocabulary())} {
		for at, want := range map[[2]int]string{{0, 0}: "", {0, 1}: file + ":5:19: ", {1, 0}: file + ":10:5: ", {2, 0}: ""} {
			place, ok := c.EndPlace(at[0], at[1])
			if ok != (want != "") || ok && place.String() != want {
				t.Errorf("%v: %v, %v, want %q", at, place, ok, want)
			}
		}
	}
}
