// SPDX-License-Identifier: MIT

package main

import (
	"archive/zip"
	"bytes"
	"errors"
	"fmt"
	"go/token"
	"go/types"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/exp/apidiff"
	"golang.org/x/tools/go/gcexportdata"
	"golang.org/x/tools/go/packages"
)

// apiFolder has a file for each published module: its exported API at the last release, in the form of
// apidiff. A file works in a clone without tags and history, which a comparison with a tag does not.
const apiFolder = "tools/modules/api"

// apiFile returns the name of a module's file.
func apiFile(t *tree, m *module) string {
	name := path.Base(t.modules[0].path())
	if m.dir != "." {
		name = strings.ReplaceAll(m.dir, "/", "-")
	}
	return filepath.Join(t.root, apiFolder, name+".zip")
}

// compared returns the published modules whose API is compared: those in go.work, which tells the go command where
// their packages are, without those for tests.
func (t *tree) compared() []*module {
	return slices.DeleteFunc(t.published(), func(m *module) bool {
		return slices.Contains(apart, m.dir) || strings.HasSuffix(m.dir, "test")
	})
}

// checkAPI compares each module that has a file with it, and prints how many agree. A module without a file
// is new. An incompatible change is an error, unless the changelog's first section has its name as code.
func checkAPI(t *tree) error {
	section, err := comingSection(t.root)
	if err != nil {
		return err
	}
	var faults []error
	agree := 0
	for _, m := range t.compared() {
		old, err := readAPI(apiFile(t, m))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		now, err := loadAPI(t, m)
		if err != nil {
			return err
		}
		for _, c := range apidiff.ModuleChanges(old, now).Changes {
			name, change := changed(m, c.Message)
			if !c.Compatible && !strings.Contains(section, "`"+name+"`") {
				faults = append(faults, fmt.Errorf("%s: %s", name, change))
			}
		}
		agree++
	}
	if len(faults) > 0 {
		faults = append(faults, errors.New("these changes are incompatible: undo them, or name each in the first "+
			"section of CHANGELOG.md under Changed or Removed, as `package.Name`"))
		return errors.Join(faults...)
	}
	fmt.Printf("%d modules agree with the API of the last release, but for what the changelog names\n", agree)
	return nil
}

// changed splits a message of apidiff into the name that it is about and the change. The name begins
// with the last element of the package's path, such as limit.Store.Wait.
func changed(m *module, message string) (name, change string) {
	name, change, _ = strings.Cut(message, ": ")
	inside, isPackage := strings.CutPrefix(name, "package ")
	if isPackage {
		inside = "." + strings.TrimPrefix(inside, m.path())
	}
	inside = strings.NewReplacer("(", "", ")", "", "*", "").Replace(inside)
	if within, ok := strings.CutPrefix(inside, "./"); ok && !isPackage {
		return path.Base(within), change
	}
	return path.Base(m.path()) + "." + strings.TrimPrefix(inside, "./"), change
}

// comingSection returns the first section of the changelog, which is that of the coming version.
func comingSection(root string) (string, error) {
	text, err := os.ReadFile(filepath.Join(root, "CHANGELOG.md"))
	if err != nil {
		return "", err
	}
	_, rest, found := strings.Cut(string(text), "\n## ")
	if !found {
		return "", errors.New("CHANGELOG.md has no section")
	}
	section, _, _ := strings.Cut(rest, "\n## ")
	return section, nil
}

// recordAPI writes the file of each published module. A release does this.
func recordAPI(t *tree) error {
	folder := filepath.Join(t.root, apiFolder)
	if err := os.RemoveAll(folder); err != nil {
		return err
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	for _, m := range t.compared() {
		api, err := loadAPI(t, m)
		if err != nil {
			return err
		}
		if len(api.Packages) == 0 {
			continue // a module of programs
		}
		if err := writeAPI(apiFile(t, m), api); err != nil {
			return err
		}
	}
	return nil
}

// writeAPI writes a file that "apidiff -m" reads too: an archive with the module's path, and the
// export data of each package.
func writeAPI(name string, api *apidiff.Module) error {
	var text bytes.Buffer
	w := zip.NewWriter(&text)
	entry, err := w.Create("module")
	if err != nil {
		return err
	}
	if _, err := io.WriteString(entry, api.Path); err != nil {
		return err
	}
	for _, p := range api.Packages {
		if entry, err = w.Create(p.Path() + ".x"); err != nil {
			return err
		}
		// An empty set of files leaves out positions, which would change with every edit.
		if err := gcexportdata.Write(entry, token.NewFileSet(), p); err != nil {
			return fmt.Errorf("%s: %w", p.Path(), err)
		}
	}
	if err := w.Close(); err != nil {
		return err
	}
	return os.WriteFile(name, text.Bytes(), 0o644)
}

func readAPI(name string) (*apidiff.Module, error) {
	z, err := zip.OpenReader(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = z.Close() }() // only reads
	api := &apidiff.Module{}
	for _, entry := range z.File {
		text, err := fs.ReadFile(z, entry.Name)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		path, isPackage := strings.CutSuffix(entry.Name, ".x")
		if !isPackage {
			api.Path = string(text)
			continue
		}
		p, err := gcexportdata.Read(bytes.NewReader(text), token.NewFileSet(), map[string]*types.Package{}, path)
		if err != nil {
			return nil, fmt.Errorf("%s: %s: %w", name, path, err)
		}
		api.Packages = append(api.Packages, p)
	}
	return api, nil
}

// loadAPI type-checks the packages of a module that programs can import.
func loadAPI(t *tree, m *module) (*apidiff.Module, error) {
	list, err := packages.Load(&packages.Config{
		Mode: packages.NeedName | packages.NeedTypes,
		Dir:  filepath.Join(t.root, m.dir),
		Env:  append(os.Environ(), "GOWORK="), // this program runs outside the workspace
	}, "./...")
	if err != nil {
		return nil, err
	}
	api := &apidiff.Module{Path: m.path()}
	for _, p := range list {
		for _, e := range p.Errors {
			return nil, e
		}
		internal := slices.Contains(strings.Split(p.PkgPath, "/"), "internal")
		exports := p.Types != nil && slices.ContainsFunc(p.Types.Scope().Names(), token.IsExported)
		if p.Name != "main" && !internal && exports {
			api.Packages = append(api.Packages, p.Types)
		}
	}
	return api, nil
}
