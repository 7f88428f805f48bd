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

// block matches a block of code of a document, with its language and its text.
var block = regexp.MustCompile("(?ms)^```([a-z]+)\n(.*?)^```$")

// The YAML of the documents is valid. Their Go, Lua and replay blocks are parts of an example, which the
// tests compile or run. TestGuide of cmd/diana runs the sh blocks of README.md and docs/guide.md.
func TestDocuments(t *testing.T) {
	t.Parallel()
	var examples string
	for _, file := range []string{"example_test.go", "rate/example_test.go", "client/example_test.go"} {
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
	for _, file := range documents(t) {
		for _, b := range block.FindAllStringSubmatch(string(mustRead(t, file)), -1) {
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
	}
	if n := strings.Count(string(mustRead(t, "README.md")), "\n"); n > 150 {
		t.Errorf("README.md has %d lines, expected at most 150", n)
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
