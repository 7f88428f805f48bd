// SPDX-License-Identifier: MIT

package diana_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/diana-limiter/diana/config"
	"github.com/diana-limiter/diana/source"
)

var (
	block = regexp.MustCompile("(?ms)^```([a-z]+)\n(.*?)^```$")
	link  = regexp.MustCompile(`\]\(([^)#]+)(#[^)]*)?\)`)
)

// The YAML of the documents is valid, and their Go is part of an example that compiles. Other blocks are
// part of a tested example in a folder. Each link has a target.
func TestDocuments(t *testing.T) {
	t.Parallel()
	var examples string
	files, _ := filepath.Glob("example_*_test.go")
	for _, file := range append(files, "rate/example_test.go", "client/example_test.go", "prometheus/example_test.go") {
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
	files, _ = filepath.Glob("docs/*.md")
	for _, file := range append(files, "README.md", "DESIGN.md", "CONTRIBUTING.md", "CHANGELOG.md") {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range block.FindAllStringSubmatch(string(text), -1) {
			language, code := b[1], b[2]
			if strings.Contains(extension[language], unindent(code)) {
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
		for _, l := range link.FindAllStringSubmatch(string(text), -1) {
			if strings.Contains(l[1], "://") {
				continue
			}
			if _, err := os.Stat(filepath.Join(filepath.Dir(file), l[1])); err != nil {
				t.Errorf("%s: link to nowhere: %s", file, l[1])
			}
		}
	}
	if n := strings.Count(string(mustRead(t, "README.md")), "\n"); n > 150 {
		t.Errorf("README.md has %d lines, want at most 150", n)
	}
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
