// SPDX-License-Identifier: MIT

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/mod/modfile"
)

// tidy runs "go mod tidy" in every module. The command ignores go.work, and asks for versions of this
// repository's modules that may not exist yet. So it gets a copy of go.mod that replaces them by
// their folders.
func tidy(t *tree, write bool) error {
	version, err := t.version()
	if err != nil {
		return err
	}
	var faults []error
	for _, m := range t.modules {
		if err := tidyModule(t, m, write); err != nil {
			faults = append(faults, fmt.Errorf("%s/go.mod: %w", m.dir, err))
		}
	}
	if !write || len(faults) > 0 {
		return errors.Join(faults...)
	}
	if t, err = load(t.root); err != nil {
		return err
	}
	return t.set(version) // a new requirement has no version yet
}

func tidyModule(t *tree, m *module, write bool) error {
	copied, err := copyMod(t, m)
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(copied) }() // a temporary folder
	args := []string{"mod", "tidy", "-modfile=" + filepath.Join(copied, "go.mod")}
	if !write {
		args = append(args, "-diff")
	}
	dir := filepath.Join(t.root, m.dir)
	out, err := output(dir, []string{"GOWORK=off"}, "go", args...)
	if err != nil {
		return fmt.Errorf("%w%s", err, out)
	}
	if !write {
		return nil
	}
	sum, err := os.ReadFile(filepath.Join(copied, "go.sum"))
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "go.sum"), sum, 0o644)
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) { // a module without dependencies has no go.sum
		return err
	}
	return restored(t, filepath.Join(copied, "go.mod"), filepath.Join(dir, "go.mod"))
}

// copyMod writes copies of a module's go.mod, which replaces the modules of this repository, and of
// its go.sum into a new folder.
func copyMod(t *tree, m *module) (dir string, err error) {
	if dir, err = os.MkdirTemp("", "modules"); err != nil {
		return "", err
	}
	sum, err := os.ReadFile(filepath.Join(t.root, m.dir, "go.sum"))
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "go.sum"), sum, 0o644)
	} else if errors.Is(err, os.ErrNotExist) {
		err = nil // a module without dependencies
	}
	return dir, errors.Join(err, replaced(t, m, filepath.Join(dir, "go.mod")))
}

// replaced writes a copy of a go.mod file that replaces the modules of this repository.
func replaced(t *tree, m *module, name string) error {
	text, err := m.file.Format()
	if err != nil {
		return err
	}
	file, err := modfile.Parse(name, text, nil)
	if err != nil {
		return err
	}
	for _, r := range t.modules {
		if err := file.AddReplace(r.path(), "", filepath.Join(t.root, r.dir), ""); err != nil {
			return err
		}
	}
	return save(file, name)
}

// restored writes a copy of a go.mod file without the lines that replaced added.
func restored(t *tree, from, to string) error {
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	file, err := modfile.Parse(from, text, nil)
	if err != nil {
		return err
	}
	for _, r := range t.modules {
		if err := file.DropReplace(r.path(), ""); err != nil {
			return err
		}
	}
	return save(file, to)
}

func save(file *modfile.File, name string) error {
	file.Cleanup()
	text, err := file.Format()
	if err != nil {
		return err
	}
	return os.WriteFile(name, text, 0o644)
}
