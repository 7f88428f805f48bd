// SPDX-License-Identifier: MIT

// Package docs holds the promises about all documents: code that works, links that lead somewhere.
package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/diana-limiter/diana/config"
	"github.com/diana-limiter/diana/rule"
	"github.com/diana-limiter/diana/source"
)

// block matches a block of code of a document, with its language and its text.
var block = regexp.MustCompile("(?ms)^```([a-z]+)\n(.*?)^```$")

// gatewayFile matches a block that is a file of a gateway: its first line is a comment with the path.
var gatewayFile = regexp.MustCompile(`^(#|--) /etc/`)

// TestMain runs the tests in the folder of the repository, from which they name files.
func TestMain(m *testing.M) {
	if err := os.Chdir(".."); err != nil {
		panic(err)
	}
	m.Run()
}

// The YAML of the documents is valid. Their Go, Lua and replay blocks are parts of an example, which the
// tests compile or run. TestGuide of cmd/diana runs the sh blocks of README.md and docs/guide.md, and
// TestRecipes of cmd/diana/compat the files of gateways in docs/gateways.
func TestDocuments(t *testing.T) {
	t.Parallel()
	var examples string
	files, _ := filepath.Glob("example*_test.go")
	adapters, _ := filepath.Glob("adapters/*/example_test.go")
	for _, file := range append(append(files, adapters...), "rate/example_test.go", "client/example_test.go", "prometheus/example_test.go") {
		examples += unindent(string(mustRead(t, file)))
	}
	extension := map[string]string{} // by language
	for _, pattern := range []string{"extension/*", "extension/testdata/*", "replay/*"} {
		files, _ := filepath.Glob("examples/" + pattern + ".*")
		for _, file := range files {
			if info, err := os.Stat(file); err != nil || info.IsDir() {
				continue
			}
			language := strings.TrimPrefix(filepath.Ext(file), ".")
			extension[language] += unindent(string(mustRead(t, file)))
		}
	}
	v := config.DefaultVocabulary()
	v.Sources = append(v.Sources, source.Kind{Schemes: []string{"etcd"}}) // of a module of its own
	v.Verifiers = append(v.Verifiers, config.Verifier{Kind: "jwt"})       // likewise
	v.Actors = append(v.Actors, rule.ActorKind{Kind: "jwt", Named: true, Proved: true})
	for _, file := range documents(t) {
		for _, b := range block.FindAllStringSubmatch(string(mustRead(t, file)), -1) {
			language, code := b[1], b[2]
			if language == "go" && strings.Contains(file, "zh-CN") {
				continue // TestTranslations compares it with the original, which is an example
			}
			if strings.Contains(extension[language], unindent(code)) || gatewayFile.MatchString(code) {
				continue
			}
			switch language {
			case "yaml":
				if _, err := v.Parse(file, []byte(code)); err != nil {
					t.Errorf("%s: %v in\n%s", file, err, code)
				}
			case "go", "lua", "replay":
				if !strings.Contains(examples, unindent(code)) {
					t.Errorf("%s: this is in no example:\n%s", file, code)
				}
			}
		}
	}
	if n := strings.Count(string(mustRead(t, "README.md")), "\n"); n > 130 {
		t.Errorf("README.md has %d lines, expected at most 130", n)
	}
}

// longPages are references and pages that are still too long.
var longPages = map[string]int{"docs/configuration.md": 5750, "docs/performance.md": 3550}

// A page has at most 2,500 words, and all pages together have a bound.
func TestWords(t *testing.T) {
	t.Parallel()
	const most, mostInAll = 2500, 50_000
	sum := 0
	for _, file := range documents(t) {
		if strings.HasPrefix(file, "docs/decisions/") || file == "CHANGELOG.md" || strings.Contains(file, "zh-CN") {
			continue
		}
		n := len(strings.Fields(string(mustRead(t, file))))
		sum += n
		if n > max(most, longPages[file]) {
			t.Errorf("%s has %d words, expected at most %d", file, n, max(most, longPages[file]))
		}
	}
	if sum > mostInAll {
		t.Errorf("the documents have %d words, expected at most %d", sum, mostInAll)
	}
	t.Logf("%d words", sum)
}

// A translation has the headings, the blocks of code and the links of the original, in the same order.
func TestTranslations(t *testing.T) {
	t.Parallel()
	for original, translation := range map[string]string{
		"README.md":          "README.zh-CN.md",
		"docs/guide.md":      "docs/zh-CN/guide.md",
		"docs/algorithms.md": "docs/zh-CN/algorithms.md",
		"docs/sources.md":    "docs/zh-CN/sources.md",
		"docs/costs.md":      "docs/zh-CN/costs.md",
		"docs/operating.md":  "docs/zh-CN/operating.md",

		"docs/configuration.md":   "docs/zh-CN/configuration.md",
		"docs/gateways/README.md": "docs/zh-CN/gateways.md",
	} {
		for _, part := range []struct {
			name string
			of   func(t *testing.T, file string) []string
		}{{"heading levels", levelsOf}, {"blocks", blocksOf}, {"links", linksTo}} {
			got, want := part.of(t, translation), part.of(t, original)
			for i := range max(len(got), len(want)) {
				if i >= len(got) || i >= len(want) || got[i] != want[i] {
					t.Errorf("%s: %s differ from those of %s:\n%s\nexpected\n%s", translation, part.name, original,
						strings.Join(got[min(i, len(got)):], "\n"), strings.Join(want[min(i, len(want)):], "\n"))
					break
				}
			}
		}
	}
}

// levelsOf returns the # of each heading of a document.
func levelsOf(t *testing.T, file string) []string {
	t.Helper()
	var levels []string
	for _, h := range heading.FindAllStringSubmatch(prose(mustRead(t, file)), -1) {
		levels = append(levels, h[1])
	}
	return levels
}

// blocksOf returns the blocks of code of a document, without the comments of YAML, Go and the shell, which are in the
// language of the document.
func blocksOf(t *testing.T, file string) []string {
	t.Helper()
	blocks := fenced.FindAllString(string(mustRead(t, file)), -1)
	for i, b := range blocks {
		if commented.MatchString(b) {
			blocks[i] = comment.ReplaceAllString(b, "")
		}
	}
	return blocks
}

var (
	commented = regexp.MustCompile("^[ \t]*```(yaml|yml|sh|go)\n")
	comment   = regexp.MustCompile(`(?m)[ \t]*(#|//) .*$`)
)

// linksTo returns the other pages that a document links to, in any language, sorted because a translation can need
// another order of words. It omits anchors, which are words, and the links of a document and its translation to each other.
func linksTo(t *testing.T, file string) []string {
	t.Helper()
	var files []string
	for _, l := range linksOf(prose(mustRead(t, file))) {
		chinese := strings.Contains(l.file, "zh-CN") && !strings.Contains(file, "zh-CN")
		if l.file == "" || strings.Contains(l.file, "://") || chinese {
			continue
		}
		to := strings.Replace(filepath.Join(filepath.Dir(file), l.file), "docs/zh-CN/", "docs/", 1)
		if strings.HasPrefix(filepath.Base(to), "README.") || to == "docs/gateways.md" || strings.HasSuffix(to, "guide.md") || filepath.Base(to) == filepath.Base(file) {
			continue // each language has its own
		}
		files = append(files, to)
	}
	slices.Sort(files)
	return files
}

func mustRead(t *testing.T, file string) []byte {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func unindent(code string) string {
	lines := strings.Split(code, "\n")
	for i := range lines {
		lines[i] = strings.TrimLeft(lines[i], "\t")
	}
	return strings.Join(lines, "\n")
}
