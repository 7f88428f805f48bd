package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Each line of testdata/bad has a rule and a sentence. The rule must reject the sentence in a
// document and in a comment.
func TestBadSentences(t *testing.T) {
	text, err := os.ReadFile("testdata/bad")
	if err != nil {
		t.Fatal(err)
	}
	var document, source strings.Builder
	source.WriteString("package a\n\n")
	var want []string
	line := 1
	for row := range strings.Lines(string(text)) {
		rule, sentence, ok := strings.Cut(strings.TrimSpace(row), "\t")
		if !ok {
			t.Fatalf("%q has no tab", row)
		}
		fmt.Fprintf(&document, "%s\n\n", sentence)
		fmt.Fprintf(&source, "// %s\n\n", sentence)
		want = append(want, fmt.Sprintf("bad.md:%d:.*Diana.%s:", line, rule), fmt.Sprintf("bad.go:%d:.*Diana.%s:", line+2, rule))
		line += 2
	}
	found := checkTexts(t, map[string]string{"bad.md": document.String(), "bad.go": source.String()})
	for _, w := range want {
		place, rule, _ := strings.Cut(w, ".*")
		ok := false
		for l := range strings.Lines(found) {
			ok = ok || strings.HasPrefix(l, place) && strings.Contains(l, rule)
		}
		if !ok {
			t.Errorf("no %s in\n%s", w, found)
		}
	}
}

// No rule rejects good prose, code, or the comments of several fields as one sentence.
func TestGoodSentences(t *testing.T) {
	texts := map[string]string{}
	for _, name := range []string{"good.md", "good.go"} {
		text, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		texts[name] = string(text)
	}
	if found := checkTexts(t, texts); found != "" {
		t.Error(found)
	}
}

func TestLineComments(t *testing.T) {
	found := checkTexts(t, map[string]string{
		"a.lua":      "local x = 1\n-- Who comes late\n-- waits.\n",
		"a.yaml":     "a: 1\n# Who comes late waits.\n",
		"Makefile":   "all:\n\n## all: Who comes late waits.\n",
		"scripts/do": "#!/bin/sh\n# Redis is out of reach.\n",
	})
	for _, want := range []string{"a.lua:2:", "a.yaml:2:", "Makefile:3:", "scripts/do:2:"} {
		if !strings.Contains(found, want) {
			t.Errorf("no %s in\n%s", want, found)
		}
	}
}

// checkTexts returns the mistakes in files with these names and texts.
func checkTexts(t *testing.T, texts map[string]string) string {
	t.Helper()
	folder := t.TempDir()
	var names []string
	for name, text := range texts {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(folder, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		names = append(names, name)
	}
	found, err := check(folder, names)
	if err != nil {
		t.Fatal(err)
	}
	return found
}
