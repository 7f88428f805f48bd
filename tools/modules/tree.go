// SPDX-License-Identifier: MIT

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/mod/modfile"
)

// A module is one module of the repository.
type module struct {
	dir  string // relative to the repository, "." for the library
	file *modfile.File
}

func (m *module) path() string { return m.file.Module.Mod.Path }

// A tree is the repository with its modules, without those below tools. Their dependencies would
// change those of the library, so they are not in go.work.
type tree struct {
	root    string // an absolute path
	modules []*module
}

// load reads the go.mod files that Git knows.
func load(root string) (*tree, error) {
	root, err := filepath.Abs(root)
	if err != nil {
		return nil, err
	}
	out, err := output(root, nil, "git", "ls-files", "go.mod", "*/go.mod")
	if err != nil {
		return nil, err
	}
	t := &tree{root: root}
	for name := range strings.FieldsSeq(out) {
		if strings.HasPrefix(name, "tools/") || strings.Contains(name, "testdata/") {
			continue
		}
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			return nil, err
		}
		file, err := modfile.Parse(name, text, nil)
		if err != nil {
			return nil, err
		}
		t.modules = append(t.modules, &module{path.Dir(name), file})
	}
	slices.SortFunc(t.modules, func(a, b *module) int { return strings.Compare(a.dir, b.dir) })
	if len(t.modules) == 0 || t.modules[0].dir != "." {
		return nil, fmt.Errorf("%s has no go.mod", root)
	}
	return t, nil
}

// find returns the module of a path, or nil if it is not of this repository.
func (t *tree) find(path string) *module {
	i := slices.IndexFunc(t.modules, func(m *module) bool { return m.path() == path })
	if i < 0 {
		return nil
	}
	return t.modules[i]
}

// published returns the modules that users import or install: those whose path begins with that of the
// library, except benchmarks and modules of tests. A module that a published module requires is
// published too, because "go get" needs it.
func (t *tree) published() []*module {
	library := t.modules[0].path()
	in := map[*module]bool{}
	var add func(*module)
	add = func(m *module) {
		if in[m] {
			return
		}
		in[m] = true
		for _, r := range m.file.Require {
			if to := t.find(r.Mod.Path); to != nil {
				add(to)
			}
		}
	}
	for _, m := range t.modules {
		sub, inside := strings.CutPrefix(m.path()+"/", library+"/")
		if inside && sub != "bench/" && !strings.HasSuffix(sub, "test/") {
			add(m)
		}
	}
	return slices.DeleteFunc(slices.Clone(t.modules), func(m *module) bool { return !in[m] })
}

// output runs a program in a folder and returns what it prints. The error has what it complains.
func output(dir string, env []string, name string, args ...string) (string, error) {
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	var complaint strings.Builder
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	if err != nil {
		return string(out), fmt.Errorf("%s in %s: %w\n%s", cmd, dir, err, complaint.String())
	}
	return string(out), nil
}
