// SPDX-License-Identifier: MIT

package descriptors

import (
	"slices"
	"strings"
	"testing"

	"github.com/diana-limiter/diana/config"
	"github.com/diana-limiter/diana/limit"
)

// one returns a file with one descriptor that has a rate_limit.
func one(rateLimit string) string {
	return "domain: d\ndescriptors:\n- key: k\n  rate_limit: " + rateLimit + "\n"
}

// Each mistake is reported with its place, its path, what was found and what was expected.
func TestMistakes(t *testing.T) {
	t.Parallel()
	const units = "second, minute, hour, day, week, month or year"
	for _, row := range []struct{ text, want string }{
		{"", "a.yaml:1:1: the file is empty, expected domain and descriptors"},
		{"# nothing\n", "a.yaml:1:1: the file is empty, expected domain and descriptors"},
		{"'''", "a.yaml:1:1: expected a quote that ends this text"},
		{"- a\n", "a.yaml:1:1: expected a mapping (domain and descriptors), found a list"},
		{"text\n", `a.yaml:1:1: expected a mapping (domain and descriptors), found "text"`},
		{"descriptors:\n", "a.yaml:1:1: the domain is empty, expected the name that the requests give"},
		{"domain: ''\n", "a.yaml:1:9: the domain is empty, expected the name that the requests give"},
		{"domain: [a]\n", "a.yaml:1:9: domain: expected text, found a list"},
		{"domain: d\ndomain: e\n", `a.yaml:2:1: key "domain" is given twice, first in line 1`},
		{"domain: d\n---\ndomain: e\n", "a.yaml:3:1: expected one document in a file, found 2"},
		{"domain: d\ndescriptors: x\n", `a.yaml:2:14: descriptors: expected a list of descriptors, found "x"`},
		{
			"domain: d\ndescriptors: [a, 5]\n",
			`a.yaml:2:15: descriptors[0]: expected a mapping (key, value, rate_limit, descriptors, shadow_mode, quota_mode, detailed_metric, value_to_metric and share_threshold), found "a"
a.yaml:2:18: descriptors[1]: expected a mapping (key, value, rate_limit, descriptors, shadow_mode, quota_mode, detailed_metric, value_to_metric and share_threshold), found 5`,
		},
		{"0.25: d\ndomain: d\n", "a.yaml:1:1: expected a text as key, found 0.25"},
		{"[a]: d\ndomain: d\n", "a.yaml:1:1: expected a text as key, found a list"},
		{"domain: d\ndescriptor: []\n", `a.yaml:2:1: unknown key "descriptor" of a file (did you mean descriptors?), expected domain or descriptors`},
		{"domain: d\ndescriptors:\n- value: v\n", "a.yaml:3:3: descriptors[0]: the key is empty, expected the key of an entry"},
		{"domain: d\ndescriptors:\n- {key: '', value: v}\n", "a.yaml:3:9: descriptors[0]: the key is empty, expected the key of an entry"},
		{
			"domain: d\ndescriptors:\n- {key: k, value: v}\n- {key: k_v}\n",
			`a.yaml:4:3: descriptors[1]: the composite key "k_v" is given twice at this level, first in line 3, expected another`,
		},
		{
			"domain: d\ndescriptors:\n- key: k\n  ratelimit: {unit: day}\n",
			`a.yaml:4:3: descriptors[0]: unknown key "ratelimit" of a descriptor (did you mean rate_limit?), expected key, value, rate_limit, descriptors, shadow_mode, quota_mode, detailed_metric, value_to_metric or share_threshold`,
		},
		{"domain: d\ndescriptors:\n- {key: k, unit: day}\n", `a.yaml:3:12: descriptors[0]: unknown key "unit" of a descriptor, expected it in rate_limit`},
		{one("{unit: day, shadow_mode: true}"), `a.yaml:4:27: descriptors[0].rate_limit: unknown key "shadow_mode" of a rate_limit, expected it beside rate_limit`},
		{
			one("{unit: day, requestsperunit: 5}"),
			`a.yaml:4:27: descriptors[0].rate_limit: unknown key "requestsperunit" of a rate_limit (did you mean requests_per_unit?), expected unit, requests_per_unit, unlimited, name, replaces, algo, burst, slices, queue, on_error, scope or debit`,
		},
		{one("{unit: foo, requests_per_unit: 5}"), `a.yaml:4:22: descriptors[0].rate_limit.unit: expected ` + units + `, found "foo"`},
		{one("{unit: minutes, requests_per_unit: 5}"), `a.yaml:4:22: descriptors[0].rate_limit.unit: found "minutes" (did you mean minute?), expected ` + units},
		{one("{unit: unknown, requests_per_unit: 5}"), `a.yaml:4:22: descriptors[0].rate_limit.unit: expected ` + units + `, found "unknown"`},
		{one("{requests_per_unit: 5}"), "a.yaml:4:15: descriptors[0].rate_limit: a rate_limit lacks unit, expected " + units},
		{one("{unit: day, requests_per_unit: -1}"), "a.yaml:4:46: descriptors[0].rate_limit.requests_per_unit: expected 0 to 4294967295, found -1"},
		{one("{unit: day, requests_per_unit: 4294967296}"), "a.yaml:4:46: descriptors[0].rate_limit.requests_per_unit: expected 0 to 4294967295, found 4294967296"},
		{one("{unit: day, requests_per_unit: 1.5}"), "a.yaml:4:46: descriptors[0].rate_limit.requests_per_unit: expected a whole number in digits, 0 to 4294967295, found 1.5"},
		{one("{unit: day, requests_per_unit: '5'}"), `a.yaml:4:46: descriptors[0].rate_limit.requests_per_unit: expected a whole number in digits, 0 to 4294967295, found "5" in quotes`},
		{one("[]"), "a.yaml:4:15: descriptors[0].rate_limit: expected a mapping (unit, requests_per_unit, unlimited, name, replaces, algo, burst, slices, queue, on_error, scope and debit), found a list"},
		{one("{unlimited: true, unit: day}"), "a.yaml:4:33: descriptors[0].rate_limit.unit: it means nothing beside unlimited, expected one of them"},
		{one("{unlimited: maybe}"), `a.yaml:4:27: descriptors[0].rate_limit.unlimited: expected true or false, found "maybe"`},
		{one("{unlimited: 'true'}"), `a.yaml:4:27: descriptors[0].rate_limit.unlimited: expected true or false, found "true" in quotes`},
		{one("{unlimited: true, name: n, replaces: [{name: }]}"), "a.yaml:4:53: descriptors[0].rate_limit.replaces[0]: the name is empty, expected the name of another rate_limit"},
		{one("{unlimited: true, name: n, replaces: [{name: n}]}"), `a.yaml:4:60: descriptors[0].rate_limit.replaces[0].name: "n" is the name of this rate_limit, expected the name of another`},
		{one("{unlimited: true, replaces: [n]}"), `a.yaml:4:44: descriptors[0].rate_limit.replaces[0]: expected a mapping (name), found "n"`},
		{"domain: d\ndescriptors:\n- {key: k, value: v, share_threshold: true}\n", `a.yaml:3:22: descriptors[0].share_threshold: expected a value that ends in *, found "k_v"`},

		// Keys of Diana.
		{one("{unit: day, requests_per_unit: 5, algo: C}"), "a.yaml:4:55: descriptors[0].rate_limit.algo: C limits what is in flight, but nobody says when the request ends, so its slot would stay taken"},
		{one("{unit: day, requests_per_unit: 5, algo: Concurrency}"), "a.yaml:4:55: descriptors[0].rate_limit.algo: C limits what is in flight, but nobody says when the request ends, so its slot would stay taken"},
		{one("{unit: day, requests_per_unit: 5, charge: [200]}"), `a.yaml:4:49: descriptors[0].rate_limit: unknown key "charge" of a rate_limit: nobody says how the request was answered, so a refund is not possible`},
		{one("{unit: day, requests_per_unit: 5, wait: 1s}"), `a.yaml:4:49: descriptors[0].rate_limit: unknown key "wait" of a rate_limit: only algo LB lets requests wait here, for as long as its queue says`},
		{
			one("{unit: day, requests_per_unit: 5, algo: windows}"),
			`a.yaml:4:55: descriptors[0].rate_limit.algo: found "windows" (did you mean window?), expected TB, token bucket, W, window, SW, sliding window, SL, sliding log, LB or leaky bucket`,
		},
		{one("{unit: day, requests_per_unit: 5, burst: 9}"), "a.yaml:4:49: descriptors[0].rate_limit.burst: it has no meaning for algo W; it is for TB"},
		{one("{unit: day, requests_per_unit: 5, algo: tb, burst: 0}"), "a.yaml:4:66: descriptors[0].rate_limit.burst: expected 1 to 1000000000, found 0"},
		{one("{unit: day, requests_per_unit: 5, algo: SW, slices: 1}"), "a.yaml:4:67: descriptors[0].rate_limit.slices: expected 2 to 100, found 1"},
		{one("{unit: day, requests_per_unit: 5, scope: remote}"), `a.yaml:4:56: descriptors[0].rate_limit.scope: expected local or global, found "remote"`},
		{one("{unit: day, requests_per_unit: 5, on_error: open, scope: local}"), "a.yaml:4:49: descriptors[0].rate_limit.on_error: it has no meaning for scope local, expected another scope"},
		{one("{unit: day, requests_per_unit: 5, scope: global, on_error: fail}"), `a.yaml:4:74: descriptors[0].rate_limit.on_error: expected share, local, open or closed, found "fail"`},
		{one("{unlimited: true, algo: TB}"), "a.yaml:4:33: descriptors[0].rate_limit.algo: it means nothing beside unlimited, expected one of them"},
		{one("{unit: day, requests_per_unit: 4294967295, algo: SL}"), "a.yaml:4:15: descriptors[0].rate_limit: algo SL cannot keep this limit: N is 4294967295, expected 0 to 1000000000"},
		{one("{unit: year, requests_per_unit: 5, algo: TB}"), "a.yaml:4:15: descriptors[0].rate_limit: algo TB cannot keep this limit: unit is 8760h0m0s, expected whole microseconds, 1ms to 744h0m0s"},

		// Every mistake of a file, also below a mistake.
		{
			"domain: d\ndescriptors:\n- key: k\n  value: [v]\n  descriptors:\n  - {key: l, rate_limit: {unit: foo}}\n- key: m\n  rate_limit: {unit: day, name: [], requests_per_unit: x}\n",
			`a.yaml:4:10: descriptors[0].value: expected text, found a list
a.yaml:6:33: descriptors[0].descriptors[0].rate_limit.unit: expected ` + units + `, found "foo"
a.yaml:8:33: descriptors[1].rate_limit.name: expected text, found a list
a.yaml:8:56: descriptors[1].rate_limit.requests_per_unit: expected a whole number in digits, 0 to 4294967295, found "x"`,
		},

		// Aliases and merge keys.
		{"domain: d\ndescriptors:\n- &a {key: k, value: v}\n- *a\n", `a.yaml:3:3: descriptors[1]: the composite key "k_v" is given twice at this level, first in line 3, expected another`},
		{one("{<<: 5, unit: day, requests_per_unit: 5}"), "a.yaml:4:20: descriptors[0].rate_limit: <<: expected a mapping, found 5"},
		{one("{<<: [a], unit: day, requests_per_unit: 5}"), `a.yaml:4:21: descriptors[0].rate_limit: <<: expected a mapping, found "a"`},
		{"domain: !x d\n", "a.yaml:1:9: tags mean nothing here, expected the value without one"},
	} {
		_, err := tryParse(Options{}, row.text)
		if err == nil {
			t.Errorf("%q: no mistake, want\n%s", row.text, row.want)
		} else if err.Error() != row.want {
			t.Errorf("%q:\n%v\nwant\n%s", row.text, err, row.want)
		}
	}
}

// The mistakes of all files come together, and places in other files are named.
func TestMistakesOfSeveralFiles(t *testing.T) {
	t.Parallel()
	a := "domain: d\ndescriptors:\n- {key: k, rate_limit: {unit: second, requests_per_unit: 1}}\n"
	b := "domain: d\ndescriptors:\n- {key: l}\n- {key: k, unit: x}\n"
	for _, row := range []struct {
		merge bool
		want  string
	}{
		{false, `b.yaml:1:9: domain: the domain "d" is given twice, first in a.yaml:1, expected another, or --descriptors-merge to join the files
b.yaml:4:12: descriptors[1]: unknown key "unit" of a descriptor, expected it in rate_limit
c.yaml:1:1: expected a mapping (domain and descriptors), found nothing`},
		{true, `b.yaml:4:3: descriptors[1]: the composite key "k" is given twice at this level, first in a.yaml:3, expected another
b.yaml:4:12: descriptors[1]: unknown key "unit" of a descriptor, expected it in rate_limit
c.yaml:1:1: expected a mapping (domain and descriptors), found nothing`},
	} {
		_, err := tryParse(Options{Merge: row.merge}, a, b, "~\n")
		if err == nil || err.Error() != row.want {
			t.Errorf("merge %v:\n%v\nwant\n%s", row.merge, err, row.want)
		}
	}
}

func TestWarnings(t *testing.T) {
	t.Parallel()
	tree := parse(t, `domain: d
descriptors:
- {key: k, value: a*b, shadow_mode: true}
- key: l
  rate_limit: {unit: day}
- key: m
  rate_limit: {unlimited: true, requests_per_unit: 1, name: per_user, replaces: [{name: per_usr}, {name: other}, {name: later}]}
- key: n
  rate_limit: {unlimited: true, name: later}
`)
	want := `a.yaml:3:19: descriptors[0].value: "a*b" matches itself alone, because * is a wildcard at the end only
a.yaml:3:24: descriptors[0].shadow_mode: it means nothing without rate_limit
a.yaml:5:3: descriptors[1].rate_limit: there is no requests_per_unit, so it is 0 and every request is refused
a.yaml:7:33: descriptors[2].rate_limit.requests_per_unit: it means nothing beside unlimited
a.yaml:7:89: descriptors[2].rate_limit.replaces[0].name: no rate_limit has the name "per_usr", so nothing is replaced (did you mean per_user?)
a.yaml:7:106: descriptors[2].rate_limit.replaces[1].name: no rate_limit has the name "other", so nothing is replaced`
	if got := tree.Warnings.Error(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// A file without limits, such as one that was cut, has a warning: it can remove all limits of its domain.
func TestFileWithoutLimits(t *testing.T) {
	t.Parallel()
	const want = `a.yaml:1:1: there is no rate_limit, so this file limits nothing in the domain "w"`
	for _, text := range []string{"domain: w", "domain: w\ndescriptors:\n", "domain: w\ndescriptors: []\n", "domain: w\ndescriptors: [{key: k}]\n"} {
		if got := parse(t, text).Warnings.Error(); got != want {
			t.Errorf("%q has the warnings\n%s", text, got)
		}
	}
	if got := parse(t, "domain: w\ndescriptors: [{key: k, rate_limit: {unlimited: true}}]").Warnings; len(got) > 0 {
		t.Error(got)
	}
}

// A program whose words lack the default algorithm must name one.
func TestVocabularyWithoutWindows(t *testing.T) {
	t.Parallel()
	v := config.DefaultVocabulary()
	v.Algorithms = slices.DeleteFunc(v.Algorithms, func(a limit.Algorithm) bool { return a.Called("W") })
	_, err := Parse([]File{{"a.yaml", []byte(one("{unit: day, requests_per_unit: 5}"))}}, v, Options{})
	if err == nil || !strings.HasSuffix(err.Error(), "a rate_limit lacks algo, and there is none by default") {
		t.Errorf("%v", err)
	}
}
