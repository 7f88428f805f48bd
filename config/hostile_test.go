// SPDX-License-Identifier: MIT

package config

import (
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/diana-limiter/diana/internal/bounds"
	"github.com/diana-limiter/diana/internal/plan"
	"github.com/diana-limiter/diana/internal/race"
)

// most is far more time than any of these texts needs. The worst needs a second and a half on two
// idle cores. A text whose time grows with the square of its size would need far more than most.
const most = time.Minute

// Texts of the largest size that were made to hurt are refused, or read, in time.
func TestHostileTexts(t *testing.T) {
	if testing.Short() || race.Enabled {
		t.Skip("takes half a minute, and several under the race detector")
	}
	fill := func(before, s, after string) string {
		return before + strings.Repeat(s, (bounds.MaxConfig-len(before)-len(after))/len(s)) + after
	}
	count := func(before, s, after string) string { // # in s is a number
		var b strings.Builder
		b.WriteString(before)
		for i := 100_000; b.Len()+len(s)+5+len(after) < bounds.MaxConfig; i++ {
			b.WriteString(strings.Replace(s, "#", strconv.Itoa(i), 1))
		}
		return b.String() + after
	}
	texts := map[string]string{
		"lists in lists":          strings.Repeat("[", 1_000_000),
		"lists in lists that fit": fill("", "[", ""),
		"mappings in mappings":    fill("", "{a: ", ""),
		"items in items":          fill("", "- ", ""),
		"keys in keys":            fill("", "? ", ""),
		"five million bytes":      strings.Repeat("rpu: ", 1_000_000),
		"nothing":                 fill("", " ", ""),
		"lines":                   fill("", "\n", ""),
		"NUL":                     fill("", "\x00", ""),
		"not UTF-8":               fill("", "\xff", ""),
		"tabs":                    fill("", "\t", ""),
		"comments":                fill("", "# x\n", ""),
		"comments between items":  fill("", "- # x\n  # y\n\n", ""),
		"comments between keys":   fill("", "? a\n# x\n: b\n# y\n", ""),
		"documents":               fill("", "---\n", ""),
		"document ends":           fill("", "...\n", ""),
		"tag directives":          count("", "%TAG !#! tag:x\n", "--- a"),
		"yaml directives":         fill("", "%YAML 1.2\n", ""),
		"tags":                    fill("", "!x ", ""),
		"tagged items":            fill("", "- !!str x\n", ""),
		"anchors":                 count("", "- &a# x\n", ""),
		"aliases":                 fill("- &a x\n", "- *a\n", ""),
		"aliases of rules":        fill("url: /\nrules: [&r {rpu: 1},", "*r,", "]"),
		"aliases of aliases":      fill("- &a {url: /, rules: &r [{rpu: 1},{rpu: 1}]}\n", "- {url: /, rules: *r}\n- *a\n", ""),
		"open list":               fill("[", "[],", ""),
		"open list of mappings":   fill("[", "{a: 1}\n", ""),
		"commas":                  fill("[", ",", ""),
		"open quote":              fill("\"", "\\\n", ""),
		"open escape":             fill("\"", "\\u0041", ""),
		"block text":              fill("url: |\n ", "x\n ", ""),
		"one long word":           fill("url: ", "a", ""),
		"keys":                    count("", "k#: 1\n", ""),
		"keys near to settings":   count("limits: []\n", "redi#: 1\n", ""),
		"wrong keys in rules":     fill("url: /\nrules: [", "{rpm: 1, burts: 2},", "]"),
		"wrong rules":             fill("url: /\nrules:\n", "-\n", ""),
		"rules":                   fill("url: /\nrules: [", "{rpu: 1},", "]"),
		"rules without spaces":    fill("url:/\nrules:\n", "- rpu:1\n", ""),
		"names":                   count("url: /\nrules: [", "{rpu: 1, name: the name #},", "]"),
		"entries":                 count("[", "{url: /#, rules: [{rpu: 1}]},", "]"),
		"the same entry":          fill("[", "{url: /, rules: [{rpu: 1}]},", "]"),
		"a deep url":              "url: " + strings.Repeat("/a", longestURL/2) + "\nrules: [{rpu: 1}]",
		"actors":                  fill("url: /\nrules: [{rpu: 1, actor: [", "ip,", "]}]"),
		"exceptions":              count("url: /\nrules: [{rpu: 1, actor: account, except: [", "v#,", "]}]"),
		"the same exception":      fill("url: /\nrules: [{rpu: 1, actor: account, except: [", "v,", "]}]"),
		"overrides":               count("url: /\nrules: [{rpu: 1, actor: account, overrides: {", "v#: {rpu: 2},", "}}]"),
		"wrong overrides":         fill("url: /\nrules: [{rpu: 1, overrides: {", "a: {},", "}}]"),
		"aliases of overrides":    count("- {url: /, rules: [{rpu: 1, actor: account, overrides: &o {a: {rpu: 2}}}]}\n", "- {url: /#, rules: [{rpu: 1, actor: account, overrides: *o}]}\n", ""),
		"sources":                 count("identity: {device: [", "query:#,", "]}"),
		"hosts":                   count("redis: {cluster: [", "h#:1,", "]}"),
		"networks":                fill("identity: {trusted_proxies: [", "1.2.3.4,", "]}"),
		"texts with spaces":       fill("identity: {account: [", "a b,", "]}"),
		"an alias of itself":      "&a [*a]",
		"aliases of each other":   "&a {url: &b [*a], rules: [*a, *b, *b]}",
		"laughs":                  "a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b]\nd: &d [*c,*c,*c,*c,*c,*c,*c,*c]\ne: &e [*d,*d,*d,*d,*d,*d,*d,*d]\nf: &f [*e,*e,*e,*e,*e,*e,*e,*e]\nlimits: *f\n",
	}
	random := rand.New(rand.NewPCG(1, 2))
	for _, alphabet := range []string{" \n\t-:?[]{},#&*!|>'\"%@`ab01", "\n -:ar", ""} {
		b := make([]byte, bounds.MaxConfig)
		for i := range b {
			if b[i] = byte(random.IntN(256)); alphabet != "" {
				b[i] = alphabet[int(b[i])%len(alphabet)]
			}
		}
		texts["random bytes of "+strconv.Quote(alphabet)] = string(b)
	}
	for name, text := range texts {
		began := time.Now()
		c, err := words().Parse("x", []byte(text))
		if err == nil {
			_, err = plan.Compile(c.Limits, c.Identity, c.Paths, words().Actors)
			if err != nil {
				t.Errorf("%s: does not compile: %v", name, err)
			}
		} else {
			_ = err.Error()
		}
		if took := time.Since(began); took > most {
			t.Errorf("%s: took %v", name, took)
		} else {
			t.Logf("%s: %v", name, took)
		}
	}
}
