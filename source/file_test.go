// SPDX-License-Identifier: MIT

package source_test

import (
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/diana-limiter/diana/source"
)

// Put keeps the mode of the file and the symbolic link to it, and leaves no other file.
func TestFilePut(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	must(t, os.Mkdir(filepath.Join(dir, "real"), 0o755))
	must(t, os.WriteFile(filepath.Join(dir, "real", "limits.yaml"), []byte("first"), 0o600))
	must(t, os.Chmod(filepath.Join(dir, "real", "limits.yaml"), 0o666)) // more than the umask allows
	must(t, os.Symlink("real", filepath.Join(dir, "folder")))
	must(t, os.Symlink("folder/limits.yaml", filepath.Join(dir, "link.yaml")))
	for name, mode := range map[string]os.FileMode{"link.yaml": 0o666, "fresh.yaml": 0o644} {
		s := open(t, source.File(), source.Options{URL: parseURL(t, "file://"+filepath.Join(dir, name))})
		must(t, s.Put(t.Context(), []byte("put into "+name)))
		info, err := os.Stat(filepath.Join(dir, name))
		must(t, err)
		if got := info.Mode(); got&^0o022 != mode&^0o022 || name == "link.yaml" && got != mode {
			t.Errorf("%s: found mode %v, expected %v", name, got, mode)
		}
		d, err := s.Get(t.Context())
		must(t, err)
		if string(d.Text) != "put into "+name {
			t.Errorf("%s: found %q", name, d.Text)
		}
	}
	if target, err := os.Readlink(filepath.Join(dir, "link.yaml")); err != nil || target != "folder/limits.yaml" {
		t.Errorf("the link has become %q, %v", target, err)
	}
	for folder, want := range map[string]int{".": 4, "real": 1} {
		entries, err := os.ReadDir(filepath.Join(dir, folder))
		must(t, err)
		if len(entries) != want {
			t.Errorf("%s: found %v, expected %d files", folder, entries, want)
		}
	}
}

// A ConfigMap changes by swapping a symbolic link two folders up.
func TestFileConfigMap(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, version := range []string{"1", "2"} {
		must(t, os.Mkdir(filepath.Join(dir, version), 0o755))
		must(t, os.WriteFile(filepath.Join(dir, version, "limits.yaml"), []byte(version), 0o644))
	}
	must(t, os.Symlink("1", filepath.Join(dir, "..data")))
	must(t, os.Symlink("..data/limits.yaml", filepath.Join(dir, "limits.yaml")))
	s := open(t, source.File(), source.Options{URL: parseURL(t, "file://"+dir+"/limits.yaml")})
	d, err := s.Get(t.Context())
	must(t, err)
	must(t, os.Symlink("2", filepath.Join(dir, "..fresh")))
	must(t, os.Rename(filepath.Join(dir, "..fresh"), filepath.Join(dir, "..data")))
	must(t, s.Wait(t.Context(), d))
	d, err = s.Get(t.Context())
	must(t, err)
	if string(d.Text) != "2" {
		t.Errorf("found %q", d.Text)
	}
}

// A writer that empties the file, and is then held up for 600 ms, is waited for. A file that stays empty is found.
func TestFileEmptied(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "limits.yaml")
	synctest.Test(t, func(t *testing.T) {
		s := open(t, source.File(), source.Options{URL: parseURL(t, "file://"+name)})
		for _, text := range []string{"written", ""} {
			must(t, os.WriteFile(name, nil, 0o644))
			go func() {
				time.Sleep(600 * time.Millisecond)
				must(t, os.WriteFile(name, []byte(text), 0o644))
			}()
			d, err := s.Get(t.Context())
			if err != nil || string(d.Text) != text || !d.Exists {
				t.Errorf("found %q, %v, want %q", d.Text, err, text)
			}
			time.Sleep(time.Second)
		}
	})
}

func open(t *testing.T, k source.Kind, o source.Options) source.Source {
	t.Helper()
	s, err := k.Open(o)
	must(t, err)
	t.Cleanup(func() { must(t, s.Close()) })
	return s
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
