// SPDX-License-Identifier: MIT

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/semver"
)

// version returns the highest version of the library that another module requires: that of the last
// release, or of the first release before there is one.
func (t *tree) version() (string, error) {
	library, highest := t.modules[0].path(), ""
	for _, m := range t.modules {
		for _, r := range m.file.Require {
			if r.Mod.Path == library && semver.Compare(r.Mod.Version, highest) > 0 {
				highest = r.Mod.Version
			}
		}
	}
	if highest == "" {
		return "", fmt.Errorf("no module requires %s", library)
	}
	return highest, nil
}

// check returns an error for each line that "set" would change.
func (t *tree) check(version string) error {
	var faults []error
	for _, m := range t.modules {
		for _, r := range m.file.Replace {
			if t.find(r.Old.Path) != nil {
				faults = append(faults, fmt.Errorf("%s/go.mod replaces %s", m.dir, r.Old.Path))
			}
		}
		for _, r := range m.file.Require {
			if t.find(r.Mod.Path) != nil && r.Mod.Version != version {
				faults = append(faults, fmt.Errorf("%s/go.mod requires %s, want %s", m.dir, r.Mod, version))
			}
		}
	}
	old, want, err := t.workspace(version)
	if err != nil {
		return err
	}
	if string(old) != string(want) {
		faults = append(faults, fmt.Errorf("go.work is not what the go.mod files need, want:\n%s", want))
	}
	if len(faults) > 0 {
		faults = append(faults, fmt.Errorf("mend all this with: scripts/modules set %s", version))
	}
	return errors.Join(faults...)
}

// set writes a version into all requirements of one module of the tree by another, and removes
// the lines that replace a module of the tree.
func (t *tree) set(version string) error {
	if semver.Canonical(version) != version || semver.Build(version) != "" {
		return fmt.Errorf("%q is not a version such as v1.2.3 or v1.2.3-rc.1", version)
	}
	for _, m := range t.modules {
		for _, r := range m.file.Replace {
			if t.find(r.Old.Path) == nil {
				continue
			}
			if err := m.file.DropReplace(r.Old.Path, r.Old.Version); err != nil {
				return err
			}
		}
		for _, r := range m.file.Require {
			if t.find(r.Mod.Path) == nil {
				continue
			}
			if err := m.file.AddRequire(r.Mod.Path, version); err != nil {
				return err
			}
		}
		m.file.Cleanup()
		text, err := m.file.Format()
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(t.root, m.dir, "go.mod"), text, 0o644); err != nil {
			return err
		}
	}
	_, work, err := t.workspace(version)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(t.root, "go.work"), work, 0o644)
}

// apart are modules that are not in go.work. The adapter for Caddy depends on a thousand packages, and would
// choose the versions of many dependencies of the others.
var apart = []string{"adapters/caddy"}

// workspace returns the text of go.work, and the text that it needs. The folder of a module replaces
// the version that others require, because that version may not exist yet.
func (t *tree) workspace(version string) (old, want []byte, err error) {
	name := filepath.Join(t.root, "go.work")
	if old, err = os.ReadFile(name); err != nil {
		return nil, nil, err
	}
	work, err := modfile.ParseWork(name, old, nil)
	if err != nil {
		return nil, nil, err
	}
	for _, u := range work.Use {
		if err := work.DropUse(u.Path); err != nil {
			return nil, nil, err
		}
	}
	for _, r := range work.Replace {
		if t.find(r.Old.Path) == nil {
			continue
		}
		if err := work.DropReplace(r.Old.Path, r.Old.Version); err != nil {
			return nil, nil, err
		}
	}
	work.Cleanup()
	for _, m := range t.modules {
		if slices.Contains(apart, m.dir) {
			continue
		}
		dir := "./" + m.dir
		if m.dir == "." {
			dir = "."
		}
		if err := work.AddUse(dir, ""); err != nil {
			return nil, nil, err
		}
		if !t.required(m) {
			continue
		}
		if err := work.AddReplace(m.path(), version, dir, ""); err != nil {
			return nil, nil, err
		}
	}
	work.SortBlocks()
	work.Cleanup()
	return old, modfile.Format(work.Syntax), nil
}

// required reports whether another module of the tree requires a module.
func (t *tree) required(m *module) bool {
	return slices.ContainsFunc(t.modules, func(by *module) bool {
		return slices.ContainsFunc(by.file.Require, func(r *modfile.Require) bool { return r.Mod.Path == m.path() })
	})
}
