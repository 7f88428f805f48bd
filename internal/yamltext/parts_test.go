// SPDX-License-Identifier: MIT

package yamltext

import (
	"fmt"
	"strings"
	"testing"

	"github.com/diana-limiter/diana/internal/race"

	"go.yaml.in/yaml/v4"
)

// describe returns all that a Text has, or "broken".
func describe(t *Text) string {
	var b strings.Builder
	var one func(n *yaml.Node, depth int)
	one = func(n *yaml.Node, depth int) {
		if depth > 2*maxDepth {
			return
		}
		line, column := n.Line, n.Column
		if n.Tag == "!!null" && n.Value == "" { // the place of an empty value is that of the next token, which can be in the next part
			line, column = 0, 0
		}
		fmt.Fprintf(&b, "%*s%d:%d %d %q %q %d\n", depth, "", line, column, n.Kind, n.Tag, n.Value, n.Style)
		for item := range func(yield func(*yaml.Node) bool) { t.Items(n, yield) } {
			one(item, depth+1)
		}
	}
	for d := range t.Documents() {
		one(d, 0)
	}
	if t.Broken || len(t.Mistakes) > 0 {
		return "broken"
	}
	return b.String()
}

// No text is read as a whole because the outline cannot follow it.
func TestStrange(t *testing.T) {
	t.Parallel()
	list := "[" + strings.Repeat("[],", InParts) + "]"
	const maybe = "expected simpler YAML, because a text of this size is read in parts; a bracket, comma or quote may be missing"
	for before, want := range map[string]Mistake{
		"[{actor: [ip, account}},\n":                              {1, 22, "expected a comma, or the bracket that closes this one, in line 1"},
		"[{actor: [ip, account]},\n{a: {b: c},\n":                 {4, 1, "expected a comma, or the bracket that closes this one, in line 2"},
		"[{a}, {b}}, \"" + strings.Repeat("a\n", InParts) + "\",": {1, 10, "expected a comma, or the bracket that closes this one, in line 1"},
		"[{actor: [ip account]}\n{a: b},\n":                       {2, 1, "expected a comma, or the bracket that closes this one, in line 1"},
		": ":                                                      {1, 1, maybe},
		"|\n  a\n---\n":                                           {1, 1, maybe},
		"a\n%x\n---\n":                                            {2, 1, maybe},
		"a: b: c\n":                                               {1, 5, "expected keys that are indented alike, with a space behind each colon, or quotes around a value with a colon"},
	} {
		text := New(before+list, InParts)
		for range text.Documents() {
		}
		if !text.Broken || len(text.Mistakes) != 1 || text.Mistakes[0] != want {
			t.Errorf("%q: got %v, want %v", before, text.Mistakes, want)
		}
	}
}

// A text in which indicators follow each other without end is not read far: the library would keep them all.
func TestEndlessTokens(t *testing.T) {
	t.Parallel()
	for _, text := range [][2]string{
		{"[", "[]"}, {"{", "{}:"}, {"[", "'':"}, {"{", `"":`}, {"{", "? "}, {"[", `"" `}, {"[", "&a "}, {"[", "*a "}, {"[", "! "},
		{"[", "a: "}, {"[", ": "}, {"[", "{a: b} "}, {"[a, [", "[b] "}, {"", "! "}, {"", "&a "}, {"- a: ", "&a ! "},
	} {
		for _, end := range []string{"", "\n"} {
			endless := New(text[0]+strings.Repeat(text[1]+end, InParts), InParts)
			if endless.stop > 200 {
				t.Errorf("%q: the outline stops at %d", text[0]+text[1]+end, endless.stop)
			}
		}
	}
	for _, text := range []string{
		"[" + strings.Repeat("a b\n", InParts) + "]",
		"[" + strings.Repeat("? &a !b 'k' : &c !d {e: f},", InParts) + "]",
		strings.Repeat("- ", maxDepth-1) + "a\n" + strings.Repeat("- &a !b b\n", InParts),
		strings.Repeat("&a !b k: &c !d\n  v\n", InParts),
	} {
		if valid := New(text, InParts); valid.stop != len(text) {
			t.Errorf("%.40q: the outline stops at %d", text, valid.stop)
		}
	}
}

// An alias cannot name an anchor inside a large collection that ends before it, also if the name has another anchor.
func TestLostAnchors(t *testing.T) {
	t.Parallel()
	if race.Enabled {
		t.Skip("it has one goroutine, and runs without the race detector")
	}
	list := "[&a 2," + strings.Repeat("1,", InParts) + "]"
	lines := "\n- &a 2" + strings.Repeat("\n- 1", InParts) + "\n"
	for text, want := range map[string]*Mistake{
		"- &a 1\n- " + list + "\n- *a\n":             {3, 3, lostAnchor},
		"- " + list + "\n- *a\n":                     {2, 3, lostAnchor},
		"- " + list + "\n- [*a]\n":                   {2, 4, lostAnchor},
		"x: &a 1\ny:" + lines + "z: *a\n":            {InParts + 4, 4, lostAnchor},
		"- &a 1\n- " + list + "\n- {a: *a}\n- : b\n": {3, 7, lostAnchor},
		"- &a 1\n- " + list + "\n- : b\n- *a\n":      {4, 3, lostAnchor},
		"- " + list + "\n- &a 3\n- *a\n":             nil,
		"- [&a 2, *a," + list[1:] + "\n":             nil,
		"- &b " + list + "\n- &a 1\n- *a\n":          nil,
		"--- " + list + "\n--- [&a 1, *a]\n":         nil,
		"--- " + list + "\n--- [*a]\n":               {2, 6, "expected an anchor of this name before its alias"},
	} {
		parts := New(text, InParts)
		describe(parts)
		short := strings.NewReplacer(strings.Repeat("1,", InParts), "...", strings.Repeat("\n- 1", InParts), "...").Replace(text)
		if n := len(parts.Mistakes); want == nil && n > 0 || want != nil && (n != 1 || parts.Mistakes[0] != *want) {
			t.Errorf("%q: got %v, want %v", short, parts.Mistakes, want)
		}
	}
}

// A text that is read in parts has the same values at the same places as a whole.
func FuzzParts(f *testing.F) {
	for _, text := range []string{
		"- url: /a\n  rules: [{rpu: 1}]\n- url: /b\n  rules: [{rpu: 1}]\n",
		"limits:\n- {url: /a, rules: [{rpu: 1}]}\n- {url: /b, rules: [{rpu: 1}]}\n",
		"a: &x\n  b: [1, 2]\n  c:\n  - d: e\n    f: 'g\n\n h'\n  - - i\n    - j\nk: \"l\\\"\n m\"\n? n\n: o\n",
		"{\"a\":[1,{\"b\":2}],\"c\":{\"d\":\"e\"}}",
		"a:\n- |\n  b\n   c\n\n- >-\n  d\n- e\n  f # g\n# h\n-\n  - i\n",
		"--- a\n--- {b: c}\n...\n# d\n---\ne: f\n",
		"- &a {b: c, d: e}\n- *a\n- [f, g: h, i]\n",
		"a: [b, # c\n d, 'e''f', \"g\", h i, j:k]\nl: m\n",
		"é: [ü, {ö: ß}, ñ]\nà: \"ç\"\n",
		"{[{000}],:{}}", "{:{},a}:", "[{a, b}: c]",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		decoded, bad := Decode([]byte(text), 1<<16)
		if bad != nil {
			return
		}
		whole := describe(New(decoded, AsWhole))
		parts := New(decoded, 1)
		got := describe(parts)
		if mistakes := fmt.Sprint(parts.Mistakes); strings.Contains(mistakes, "aliases stand for") || strings.Contains(mistakes, lostAnchor) { // because each collection is large here
			return
		}
		if got != whole && parts.stop == len(decoded) {
			t.Errorf("in parts\n%s\nas a whole\n%s\n%q", got, whole, decoded)
		}
	})
}
