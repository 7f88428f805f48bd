// SPDX-License-Identifier: MIT

package docs

import (
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode"
)

var (
	// fenced matches a block of code with its fences.
	fenced = regexp.MustCompile("(?ms)^```[a-z]*\n.*?^```$")
	// heading matches a heading, with its level and its text.
	heading = regexp.MustCompile(`(?m)^(#{1,6}) +(.+?) *$`)
	// inlineLink matches a link or a picture, with its file and its anchor.
	inlineLink = regexp.MustCompile(`\]\(([^)\s#]*)(#[^)\s]*)?\)`)
	inlineCode = regexp.MustCompile("`[^`\n]*`")
)

// Every relative link of a Markdown file leads to a file that exists, and to a heading of it.
func TestLinks(t *testing.T) {
	t.Parallel()
	all := documents(t)
	if len(all) < 20 {
		t.Fatalf("only %d documents: %v", len(all), all)
	}
	for _, file := range all {
		for _, l := range linksOf(prose(mustRead(t, file))) {
			if err := l.check(t, file); err != nil {
				t.Errorf("%s: %s%s: %v", file, l.file, l.anchor, err)
			}
		}
	}
}

// Every page in docs is reachable from docs/README.md.
func TestReachable(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	var follow func(file string)
	follow = func(file string) {
		if seen[file] || filepath.Ext(file) != ".md" {
			return
		}
		seen[file] = true
		for _, l := range linksOf(prose(mustRead(t, file))) {
			if l.file != "" && !strings.Contains(l.file, "://") {
				follow(filepath.Join(filepath.Dir(file), filepath.FromSlash(l.file)))
			}
		}
	}
	follow("docs/README.md")
	for _, file := range documents(t) {
		if strings.HasPrefix(file, "docs/") && !strings.Contains(file, "zh-CN") && !seen[file] {
			t.Errorf("%s: docs/README.md leads to no link to it", file)
		}
	}
}

// link is a link of a document. Without a file it leads to the document itself.
type link struct{ file, anchor string }

// check returns an error if the link leads nowhere.
func (l link) check(t *testing.T, from string) error {
	t.Helper()
	if strings.Contains(l.file, "://") {
		return nil // a test does not use the network
	}
	to := from
	if l.file != "" {
		to = filepath.Join(filepath.Dir(from), filepath.FromSlash(l.file))
	}
	if _, err := os.Stat(to); err != nil || l.anchor == "" {
		return err
	}
	anchor, err := url.PathUnescape(strings.TrimPrefix(l.anchor, "#"))
	if err != nil {
		return err
	}
	if !anchorsOf(prose(mustRead(t, to)))[anchor] {
		return fmt.Errorf("%s has no such heading", to)
	}
	return nil
}

// linksOf returns the links of a text.
func linksOf(text string) []link {
	var links []link
	for _, l := range inlineLink.FindAllStringSubmatch(inlineCode.ReplaceAllString(text, ""), -1) {
		links = append(links, link{l[1], l[2]})
	}
	return links
}

// anchorsOf returns the anchors of a text's headings, as GitHub makes them: small letters, a hyphen for
// each space, no punctuation, and a number for the second of equal headings.
func anchorsOf(text string) map[string]bool {
	anchors := map[string]bool{}
	count := map[string]int{}
	for _, h := range heading.FindAllStringSubmatch(text, -1) {
		anchor := strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsNumber(r) || unicode.IsMark(r):
				return unicode.ToLower(r)
			}
			return -1
		}, inlineLink.ReplaceAllString(h[2], ""))
		if n := count[anchor]; n > 0 {
			anchors[fmt.Sprintf("%s-%d", anchor, n)] = true
		} else {
			anchors[anchor] = true
		}
		count[anchor]++
	}
	return anchors
}

// GitHub's anchors keep letters of any script.
func TestAnchors(t *testing.T) {
	t.Parallel()
	anchors := anchorsOf("# Token bucket, `TB`\n## 1. What `/readyz` means\n## 1. 写一份配置\n## A-b_c\n## [Log](x.md)\n## Log\n")
	for _, want := range []string{"token-bucket-tb", "1-what-readyz-means", "1-写一份配置", "a-b_c", "log", "log-1"} {
		if !anchors[want] {
			t.Errorf("no #%s among %v", want, anchors)
		}
	}
}

// prose returns a document without its blocks of code.
func prose(text []byte) string { return fenced.ReplaceAllString(string(text), "") }

// documents returns all Markdown files of the repository.
func documents(t *testing.T) []string {
	t.Helper()
	var files []string
	err := filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		switch base := d.Name(); {
		case d.IsDir() && name != "." && (strings.HasPrefix(base, ".") || base == "testdata" || base == "node_modules"):
			return filepath.SkipDir
		case !d.IsDir() && filepath.Ext(base) == ".md":
			files = append(files, name)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}
