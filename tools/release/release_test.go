// SPDX-License-Identifier: MIT

package main

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/dirhash"
)

var (
	programFile = flag.String("program", "", "the program that TestSameBytes packs; it is skipped without one")
	keep        = flag.String("keep", "", "a new folder that receives what TestSameBytes writes")
)

// Every step after the binaries writes the same bytes in different folders. One program stands for all
// systems here. scripts/release-test compares whole releases; this test finds the step that differs.
func TestSameBytes(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	if *programFile == "" {
		t.Skip("no -program")
	}
	text, err := os.ReadFile(*programFile)
	if err != nil {
		t.Fatal(err)
	}
	var hashes [2]string
	for i := range hashes {
		work := t.TempDir()
		b := &build{
			clone: root, work: work, dist: filepath.Join(work, "dist"), share: filepath.Join(work, "share"),
			version: "v1.2.3-rc.1", when: time.Unix(1_700_000_000, 0).UTC(),
		}
		if err := os.Mkdir(b.dist, 0o755); err != nil {
			t.Fatal(err)
		}
		for _, target := range targets {
			if err := os.WriteFile(b.binary(target.os, target.arch), text, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		for _, step := range []func(*build) error{boms, share, debs, image, sums} {
			if err := step(b); err != nil {
				t.Fatal(err)
			}
		}
		for _, target := range targets {
			bill, err := os.ReadFile(b.binary(target.os, target.arch) + ".cdx.json")
			if err != nil {
				t.Fatal(err)
			}
			checkBOM(t, *programFile, bill)
		}
		if hashes[i], err = dirhash.HashDir(b.dist, "", dirhash.Hash1); err != nil {
			t.Fatal(err)
		}
		if _, err := output(b.dist, nil, "sha256sum", "--check", "--strict", "SHA256SUMS"); err != nil {
			t.Error(err)
		}
		if i == 0 && *keep != "" {
			if err := os.CopyFS(*keep, os.DirFS(b.dist)); err != nil {
				t.Error(err)
			}
		}
	}
	if hashes[0] != hashes[1] {
		t.Error("two runs differ")
	}
}

// A repository that is not ready is rejected, and a release leaves what its tags need.
func TestCheckAndAccept(t *testing.T) {
	root := repository(t)
	for _, row := range []struct{ version, file, text, want string }{
		{"1.2.3", "", "", "expected one such as v1.2.3"},
		{"v1.2.3", "new", "text", "not committed"},
		{"v1.2.4", "", "", `CHANGELOG.md is not "## v1.2.4"`},
		{"v1.2.3", "", "", ""},
	} {
		if row.file != "" {
			write(t, filepath.Join(root, row.file), row.text)
		}
		err := check(root, row.version)
		if (err == nil) != (row.want == "") || err != nil && !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s: %v, want %q", row.version, err, row.want)
		}
		if row.file != "" {
			if err := os.Remove(filepath.Join(root, row.file)); err != nil {
				t.Fatal(err)
			}
		}
	}
	for run, dry := range []bool{true, false, false} {
		clone, err := prepare(root, t.TempDir(), "v1.2.3", dry)
		if err != nil {
			t.Fatal(err)
		}
		if dry {
			continue
		}
		if err := accept(root, clone, "v1.2.3"); err != nil {
			t.Fatalf("run %d: %v", run, err)
		}
		if err := check(root, "v1.2.3"); err != nil {
			t.Errorf("a release cannot be repeated: %v", err)
		}
	}
	tags, err := output(root, nil, "git", "tag", "--points-at", "HEAD")
	if err != nil || tags != "extra/v1.2.3\nv1.2.3" {
		t.Errorf("tags: %q, %v", tags, err)
	}
	for file, want := range map[string]string{"CHANGELOG.md": "## v1.2.3 - 2026-01-02\n", "extra/go.mod": library + " v1.2.3"} {
		text, err := output(root, nil, "git", "show", "HEAD:"+file)
		if err != nil || !strings.Contains(text, want) {
			t.Errorf("%s is %q, want %q in it", file, text, want)
		}
	}
	if commits, err := output(root, nil, "git", "rev-list", "--count", "HEAD"); err != nil || commits != "2" {
		t.Errorf("%s commits, want 2", commits)
	}
	write(t, filepath.Join(root, "lib.go"), "package diana\n\n// T is new.\ntype T int\n")
	commit(t, root)
	if err := check(root, "v1.2.3"); err == nil || !strings.Contains(err.Error(), "the tag v1.2.3 exists") {
		t.Errorf("another commit with the same version: %v", err)
	}
}

// A release whose tags exist is made again only at the commit that a release would tag.
func TestTagsThatExist(t *testing.T) {
	root := repository(t)
	git := func(args ...string) {
		t.Helper()
		if _, err := output(root, nil, "git", args...); err != nil {
			t.Fatal(err)
		}
	}
	wants := func(want string) {
		t.Helper()
		err := check(root, "v1.2.3")
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	git("tag", "v1.2.3")
	wants("the tag v1.2.3 exists, but extra/v1.2.3 does not")
	git("tag", "extra/v1.2.3")
	wants("the tag v1.2.3 exists, but the first section of CHANGELOG.md has no date")
	if err := dateChangelog(root, "v1.2.3", "2026-01-02"); err != nil {
		t.Fatal(err)
	}
	commit(t, root)
	wants("the tag v1.2.3 exists, and is not at this commit")
	git("tag", "--delete", "v1.2.3")
	wants("the tag extra/v1.2.3 exists, and is not at this commit")
	git("tag", "--force", "extra/v1.2.3")
	git("tag", "v1.2.3")
	wants("the tag v1.2.3 exists, but not all modules require it")
	wants("extra/go.mod requires " + library + "@v1.0.0, want v1.2.3")
	if _, err := output(root, nil, "scripts/modules", "set", "v1.2.3"); err != nil {
		t.Fatal(err)
	}
	commit(t, root)
	git("tag", "--force", "extra/v1.2.3")
	git("tag", "--force", "v1.2.3")
	if err := check(root, "v1.2.3"); err != nil {
		t.Error(err)
	}
}

// repository returns a small repository with the real scripts and tools for modules.
func repository(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	if err := os.CopyFS(filepath.Join(root, "tools/modules"), os.DirFS("../modules")); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(root, "tools/modules/api")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"scripts/modules", "tools/go.mod", "tools/go.sum"} {
		text, err := os.ReadFile(filepath.Join("../..", name))
		if err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(root, name), string(text))
	}
	for name, text := range map[string]string{
		"CHANGELOG.md": "# Changelog\n\n## v1.2.3\n\n- All.\n",
		"go.mod":       "module " + library + "\n\ngo 1.26.0\n",
		"lib.go":       "package diana\n",
		"extra/go.mod": "module " + library + "/extra\n\ngo 1.26.0\n\nrequire " + library + " v1.0.0\n",
		"extra/x.go":   "package extra\n\nimport _ \"" + library + "\"\n",
		"go.work":      "go 1.26.0\n\nuse (\n\t.\n\t./extra\n)\n\nreplace " + library + " v1.0.0 => .\n",
	} {
		write(t, filepath.Join(root, name), text)
	}
	if _, err := output(root, nil, "git", "init", "--quiet"); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"config", "user.name", "n"}, {"config", "user.email", "e"}} {
		if _, err := output(root, nil, "git", args...); err != nil {
			t.Fatal(err)
		}
	}
	commit(t, root)
	return root
}

func commit(t *testing.T, root string) {
	t.Helper()
	if _, err := output(root, nil, "git", "add", "--all"); err != nil {
		t.Fatal(err)
	}
	env := []string{"GIT_AUTHOR_DATE=2026-01-02T03:04:05Z", "GIT_COMMITTER_DATE=2026-01-02T03:04:05Z"}
	if _, err := output(root, env, "git", "commit", "--quiet", "-m", "change"); err != nil {
		t.Fatal(err)
	}
}

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	mode := os.FileMode(0o644)
	if strings.HasPrefix(text, "#!") {
		mode = 0o755
	}
	if err := os.WriteFile(name, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
}
