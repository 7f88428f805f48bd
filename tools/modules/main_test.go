// SPDX-License-Identifier: MIT

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/mod/sumdb/dirhash"
)

// repository returns a folder with a Git repository of three modules: a library, a module "extra" that
// imports it, and a module of benchmarks.
func repository(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	write(t, root, map[string]string{
		"LICENSE":      "MIT\n",
		"CHANGELOG.md": "# Changelog\n\n## v1.2.3\n\n### Added\n\n- All.\n",
		"go.mod":       "module example.com/lib\n\ngo 1.26.0\n",
		"lib.go":       "package lib\n\ntype T struct{ F int }\n\nfunc (T) M() {}\n\nfunc F() {}\n",
		"deep/deep.go": "package deep\n\ntype I interface{ A() }\n",
		"extra/go.mod": "module example.com/lib/extra\n\ngo 1.26.0\n\nrequire example.com/lib v1.2.3\n",
		"extra/x.go":   "package extra\n\nimport \"example.com/lib\"\n\nfunc X(lib.T) {}\n",
		"bench/go.mod": "module example.com/lib/bench\n\ngo 1.26.0\n\nrequire example.com/lib v1.2.3\n",
		"bench/b.go":   "package main\n\nimport \"example.com/lib\"\n\nfunc main() { lib.F() }\n",
		"go.work":      "go 1.26.0\n\nuse (\n\t.\n\t./bench\n\t./extra\n)\n\nreplace example.com/lib v1.2.3 => .\n",
	})
	git(t, root, "init", "-q")
	git(t, root, "add", ".")
	git(t, root, "-c", "user.name=n", "-c", "user.email=e", "commit", "-qm", "all")
	return root
}

func write(t *testing.T, root string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		name = filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func read(t *testing.T, elements ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(elements...))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func git(t *testing.T, root string, args ...string) {
	t.Helper()
	if _, err := output(root, nil, "git", args...); err != nil {
		t.Fatal(err)
	}
}

// modules runs a command. The error must have all of want, or be nil if want is empty.
func modules(t *testing.T, root, command string, want ...string) {
	t.Helper()
	err := run(append([]string{"-C", root}, strings.Fields(command)...))
	if err == nil && len(want) > 0 || err != nil && len(want) == 0 {
		t.Fatalf("modules %s: %v, want an error with %q", command, err, want)
	}
	for _, w := range want {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("modules %s: %v, want %q in it", command, err, w)
		}
	}
}

func TestVersions(t *testing.T) {
	t.Parallel()
	root := repository(t)
	modules(t, root, "check")
	good := read(t, root, "extra/go.mod")
	write(t, root, map[string]string{
		"extra/go.mod": good + "\nreplace example.com/lib => ..\n",
		"bench/go.mod": strings.ReplaceAll(read(t, root, "bench/go.mod"), "v1.2.3", "v1.0.0"),
	})
	modules(t, root, "check", "extra/go.mod replaces example.com/lib", "bench/go.mod requires example.com/lib@v1.0.0", "set v1")
	modules(t, root, "set v1.2.3")
	modules(t, root, "check")
	if now := read(t, root, "extra/go.mod"); now != good {
		t.Errorf("extra/go.mod is\n%s, want\n%s", now, good)
	}
	modules(t, root, "check v1.2.3")
	modules(t, root, "set v1.3.0-rc.1")
	modules(t, root, "check")
	modules(t, root, "check v1.2.3", "bench/go.mod requires example.com/lib@v1.3.0-rc.1, want v1.2.3")
	if _, err := output(root, []string{"GOWORK=", "GOPROXY=off"}, "go", "build", "./extra", "./bench"); err != nil {
		t.Error(err)
	}
	for _, bad := range []string{"1.2.3", "v1.2", "latest", "v1.2.3+dirty"} {
		modules(t, root, "set "+bad, bad)
	}
}

// A module that only go.work lacks is a fault, because it would not be tested.
func TestModuleOutsideWorkspace(t *testing.T) {
	t.Parallel()
	root := repository(t)
	write(t, root, map[string]string{"new/go.mod": "module example.com/lib/new\n\ngo 1.26.0\n"})
	git(t, root, "add", ".")
	modules(t, root, "check", "go.work", "./new")
	modules(t, root, "set v1.2.3")
	modules(t, root, "check")
}

func TestTidy(t *testing.T) {
	t.Parallel()
	root := repository(t)
	modules(t, root, "tidy")
	good := read(t, root, "extra/go.mod")
	write(t, root, map[string]string{"extra/go.mod": "module example.com/lib/extra\n\ngo 1.26.0\n"})
	modules(t, root, "tidy", "extra/go.mod", "example.com/lib")
	modules(t, root, "tidy -w")
	modules(t, root, "tidy")
	if now := read(t, root, "extra/go.mod"); now != good {
		t.Errorf("extra/go.mod is\n%s, want\n%s", now, good)
	}
}

// A program gets the published modules from the proxy, and no other module is there.
func TestProxy(t *testing.T) {
	t.Parallel()
	root, dir, again, user := repository(t), t.TempDir(), t.TempDir(), t.TempDir()
	modules(t, root, "proxy "+dir)
	modules(t, root, "proxy "+again)
	hash := func(dir string) string {
		h, err := dirhash.HashDir(dir, "", dirhash.Hash1)
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	if hash(dir) != hash(again) {
		t.Error("two runs of proxy differ")
	}
	write(t, user, map[string]string{
		"go.mod":  "module example.com/user\n\ngo 1.26.0\n",
		"main.go": "package main\n\nimport (\n\t\"example.com/lib\"\n\t\"example.com/lib/extra\"\n)\n\nfunc main() { extra.X(lib.T{}) }\n",
	})
	env := []string{"GOWORK=off", "GOFLAGS=-mod=mod -modcacherw", "GOPROXY=file://" + dir, "GOSUMDB=off", "GOMODCACHE=" + t.TempDir()}
	if _, err := output(user, env, "go", "get", "example.com/lib@v1.2.3", "example.com/lib/extra@v1.2.3"); err != nil {
		t.Fatal(err)
	}
	if _, err := output(user, env, "go", "build", "-o", os.DevNull, "."); err != nil {
		t.Error(err)
	}
	if _, err := output(user, env, "go", "get", "example.com/lib/bench@v1.2.3"); err == nil {
		t.Error("the module of benchmarks is published")
	}
	sub := filepath.Join(dir, "example.com/lib/extra/@v/v1.2.3.zip")
	if text := read(t, sub); !bytes.Contains([]byte(text), []byte("extra@v1.2.3/LICENSE")) {
		t.Error("the module extra has no licence")
	}
}

// An incompatible change fails until the changelog's first section names it.
func TestAPI(t *testing.T) {
	t.Parallel()
	root := repository(t)
	modules(t, root, "api -w")
	for _, change := range []struct{ file, old, now, name string }{
		{"lib.go", "func F() {}", "func F() {}\n\nfunc G() {}", ""},
		{"lib.go", "{ F int }", "{ F, g int }", ""},
		{"lib.go", "func F() {}", "func F(int) {}", "lib.F"},
		{"lib.go", "func (T) M() {}", "", "lib.T.M"},
		{"lib.go", "{ F int }", "{ F string }", "lib.T.F"},
		{"deep/deep.go", "A()", "A(); B()", "deep.I.B"},
		{"deep/deep.go", "package deep", "package main", "lib.deep"},
		{"extra/x.go", "X(lib.T)", "X(*lib.T)", "extra.X"},
	} {
		write(t, root, map[string]string{change.file: strings.Replace(read(t, root, change.file), change.old, change.now, 1)})
		if change.name != "" {
			modules(t, root, "api", change.name+": ")
			changelog := read(t, root, "CHANGELOG.md")
			write(t, root, map[string]string{"CHANGELOG.md": changelog + "\n## v1.2.2\n\n- `" + change.name + "` differs.\n"})
			modules(t, root, "api", change.name+": ")
			write(t, root, map[string]string{"CHANGELOG.md": changelog + "- `" + change.name + "` differs.\n"})
		}
		modules(t, root, "api")
		git(t, root, "checkout", "-q", ".")
	}
}
