// SPDX-License-Identifier: MIT

package descriptors

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/diana-limiter/diana/config"
	"github.com/diana-limiter/diana/internal/bounds"
	"github.com/diana-limiter/diana/internal/plan"
	"github.com/diana-limiter/diana/rule"
)

// checkParsed checks what holds for every text: there is a tree that compiles, or there are mistakes with
// places.
func checkParsed(t *testing.T, texts ...string) {
	t.Helper()
	tree, err := tryParse(Options{Merge: true, Scope: rule.Global}, texts...)
	if err != nil {
		var mistakes config.Errors
		if !errors.As(err, &mistakes) || len(mistakes) == 0 || tree != nil {
			t.Fatalf("%T %v and %v", err, err, tree)
		}
		for _, m := range mistakes {
			if m.File == "" || m.Line < 1 || m.Column < 1 || m.Message == "" {
				t.Fatalf("a mistake without a place: %+v", m)
			}
		}
		return
	}
	set, err := plan.Compile(tree.Entries(), rule.Identity{}, rule.Paths{}, config.DefaultVocabulary().Actors)
	if err != nil {
		t.Fatalf("the entries do not compile: %v", err)
	}
	for _, l := range tree.Limits() {
		if l.Unlimited != (l.Index < 0) || l.Index >= 0 && set.Rules[l.Index].Name != l.Rule.Name {
			t.Fatalf("the limit %+v is not at its index", l)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(shop, shared)
	f.Add(shop, shop)
	f.Add(one("{unit: day, requests_per_unit: 5, algo: TB, burst: 3, scope: local}"), "domain: d\n")
	f.Add("domain: d\nx: &a {b: *a}\n", "domain: .\ndescriptors: [{key: .., rate_limit: {unit: day}}]")
	f.Add("domain: d\ndescriptors:\n- &a {key: k, <<: {value: v}}\n- {<<: [*a, *a], key: l}\n", "%TAG ! x\n---\n")
	f.Fuzz(func(t *testing.T, a, b string) { checkParsed(t, a, b) })
}

func FuzzFind(f *testing.F) {
	tree := parse(f, shop, shared)
	f.Add("shop", "tier", "gold", "user", "ann")
	f.Add("shared", "dir", "top/x", "dir", "sub/x")
	f.Add("shared", "wide", "", "", "")
	f.Add("shop", "\xff", "\x00", "_", "*")
	f.Fuzz(func(t *testing.T, domain, k1, v1, k2, v2 string) {
		for n := range 3 {
			entries := []Entry{{k1, v1}, {k2, v2}}[:n]
			l, key := tree.Find(domain, entries, []byte("x"))
			steps := tree.Trace(domain, entries)
			if (l == nil) != (string(key) == "x") || (l != nil) != (n > 0 && len(steps) == n && steps[n-1].Limited) {
				t.Fatalf("%q %q: %+v, key %q, steps %+v", domain, entries, l, key, steps)
			}
			if named := tree.MetricName(domain, entries) != ""; named != (l != nil) {
				t.Fatalf("%q %q: %+v, and a metric name: %v", domain, entries, l, named)
			}
		}
	})
}

// Hostile texts cost bounded time and memory, and end in mistakes or a tree.
func TestHostile(t *testing.T) {
	t.Parallel()
	nested := func(n int) string {
		var b strings.Builder
		b.WriteString("domain: d\n")
		for i := range n {
			indent := strings.Repeat("  ", i)
			fmt.Fprintf(&b, "%sdescriptors:\n%s- key: k\n", indent, indent)
		}
		return b.String()
	}
	laughs := "domain: d\ndescriptors:\n- &a0 {key: k}\n"
	for i := range 20 {
		laughs += fmt.Sprintf("- &a%d {key: k%d, descriptors: [*a%d, *a%d]}\n", i+1, i, i, i)
	}
	for name, row := range map[string]struct{ text, want string }{
		"deep":             {nested(15), ""},
		"too deep":         {nested(40), "expected at most 32 mappings and lists inside each other"},
		"far too deep":     {"domain: d\ndescriptors: " + strings.Repeat("[", 100_000), "expected at most 32 mappings and lists inside each other"},
		"laughs":           {laughs, "aliases stand for too much"},
		"itself":           {"domain: d\ndescriptors: &a\n- {key: k, descriptors: *a}\n", "aliases stand for too much"},
		"merged itself":    {"domain: d\ndescriptors:\n- &a {key: k, <<: *a}\n", "aliases stand for too much"},
		"long value":       {"domain: d\ndescriptors:\n- {key: k, value: " + strings.Repeat("v", 1<<20) + "}\n", "a.yaml:3:19: descriptors[0].value: expected at most 4096 bytes, found 1048576"},
		"long unknown key": {"domain: d\n" + strings.Repeat("k", 1<<20) + ": v\n", ""},
		"invalid UTF-8":    {"domain: d\ndescriptors:\n- {key: \"\xff\"}\n", "a.yaml:3:10: the byte 0xFF is not UTF-8"},
		"control":          {"domain: \"\x01\"\n", "the character U+0001 is not allowed in YAML"},
		"escaped control":  {"domain: \"\\x01\"\ndescriptors: [{key: \"\\0\", rate_limit: {unit: day, requests_per_unit: 1}}]\n", ""},
		"too large":        {strings.Repeat("#", bounds.MaxFile+1), "expected at most 8192 KiB"},
	} {
		_, err := tryParse(Options{}, row.text)
		if row.want != "" && (err == nil || !strings.Contains(err.Error(), row.want)) {
			t.Errorf("%s: %.300v, want %q", name, err, row.want)
		}
		if err != nil && len(err.Error()) > 100<<10 {
			t.Errorf("%s: the message has %d bytes", name, len(err.Error()))
		}
		checkParsed(t, row.text)
	}
}

// Values of requests have no bound here, so a large one costs no more than its copy.
func TestFindLargeEntries(t *testing.T) {
	t.Parallel()
	tree := parse(t, shop)
	large := strings.Repeat("x", 1<<20)
	l, key := tree.Find("shop", []Entry{{"path", "/static/" + large}}, nil)
	if l == nil || l.RequestsPerUnit != 7 || len(key) < len(large) {
		t.Errorf("%+v and a key of %d bytes", l, len(key))
	}
	many := make([]Entry, 1000)
	if l, key := tree.Find("shop", many, nil); l != nil || len(key) > 0 {
		t.Errorf("%+v and a key of %d bytes", l, len(key))
	}
}
