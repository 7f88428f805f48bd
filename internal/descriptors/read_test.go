// SPDX-License-Identifier: MIT

package descriptors

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/diana-limiter/diana/config"
	"github.com/diana-limiter/diana/internal/bounds"
)

func writeFile(t *testing.T, name, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestRead(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{"config/b.yml", "config/a.yaml", "config/.hidden.yaml", "config/..data/c.yaml", "config/note.txt", "config/sub/d.yaml", "other"} {
		writeFile(t, filepath.Join(dir, name), name)
	}
	if err := os.Symlink(filepath.Join("..data", "c.yaml"), filepath.Join(dir, "config", "c.yaml")); err != nil {
		t.Skip(err)
	}
	if err := os.Symlink(".", filepath.Join(dir, "config", "loop.yaml")); err != nil {
		t.Fatal(err)
	}
	files, err := Read([]string{filepath.Join(dir, "other"), filepath.Join(dir, "config")}, Names{})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range files {
		name, err := filepath.Rel(dir, f.Name)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, filepath.ToSlash(name)+": "+string(f.Data))
	}
	want := []string{"other: other", "config/a.yaml: config/a.yaml", "config/b.yml: config/b.yml", "config/c.yaml: config/..data/c.yaml", "config/loop.yaml: ", "config/sub/d.yaml: config/sub/d.yaml"}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

// A name that promises a file and has none is not read, and the limits have a warning.
func TestNoRegularFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "a.yaml"), one("{unit: day, requests_per_unit: 5}"))
	for _, name := range []string{"folder.yaml", "nothing"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(os.DevNull, filepath.Join(dir, "device.yml")); err != nil {
		t.Skip(err)
	}
	files, err := Read([]string{dir}, Names{})
	if err != nil {
		t.Fatal(err)
	}
	tree, err := Parse(files, config.DefaultVocabulary(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	device, folder := filepath.Join(dir, "device.yml"), filepath.Join(dir, "folder.yaml")
	const want = ":1:1: it is no regular file, so it is not read"
	if got := tree.Warnings.Error(); got != device+want+"\n"+folder+want {
		t.Errorf("got\n%s", got)
	}
	if err := os.Remove(filepath.Join(dir, "a.yaml")); err != nil {
		t.Fatal(err)
	}
	if _, err := Read([]string{dir}, Names{}); err == nil || !strings.HasSuffix(err.Error(), "found none") {
		t.Errorf("without a file: %v", err)
	}
}

func TestReadErrors(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "none", "a.txt"), "")
	half := strings.Repeat("#", bounds.MaxFile/2+1)
	writeFile(t, filepath.Join(dir, "large", "a.yaml"), half)
	writeFile(t, filepath.Join(dir, "large", "b.yaml"), half)
	for path, want := range map[string]string{
		"missing": "no such file",
		"none":    "expected files *.yaml or *.yml, found none",
		"large":   "b.yaml: expected at most 8192 KiB in all files together, found more",
	} {
		if _, err := Read([]string{filepath.Join(dir, path)}, Names{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
	}
}
