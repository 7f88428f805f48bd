// SPDX-License-Identifier: MIT

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	modpath "golang.org/x/mod/module"
	"golang.org/x/mod/zip"
)

// printProxy writes the published modules of the commit, with the changes of the work tree that Git
// knows, into a folder. It prints their version.
func printProxy(t *tree, dir string) error {
	version, err := t.version()
	if err != nil {
		return err
	}
	if err := t.check(version); err != nil {
		return err
	}
	commit, err := output(t.root, nil, "git", "stash", "create")
	if err != nil {
		return err
	}
	if commit = strings.TrimSpace(commit); commit == "" {
		commit = "HEAD"
	}
	if err := proxy(t, dir, commit, version); err != nil {
		return err
	}
	fmt.Println(version)
	return nil
}

// proxy writes the files of a module proxy as "go help goproxy" describes them. Their bytes depend only
// on the commit and the version.
func proxy(t *tree, dir, commit, version string) error {
	source, err := os.MkdirTemp("", "proxy")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(source) }() // a temporary folder
	archive := filepath.Join(source, "tree.tar")
	if _, err := output(t.root, nil, "git", "archive", "-o", archive, commit); err != nil {
		return err
	}
	if _, err := output(source, nil, "tar", "-xf", archive); err != nil {
		return err
	}
	if err := os.Remove(archive); err != nil {
		return err
	}
	date, err := output(t.root, nil, "git", "show", "-s", "--format=%ct", commit)
	if err != nil {
		return err
	}
	var seconds int64
	if _, err := fmt.Sscan(date, &seconds); err != nil {
		return err
	}
	when := time.Unix(seconds, 0).UTC().Format(time.RFC3339)
	for _, m := range t.published() {
		if err := publish(m, source, dir, version, when); err != nil {
			return err
		}
	}
	return nil
}

// publish writes the files of one module.
func publish(m *module, source, dir, version, when string) error {
	escaped, err := modpath.EscapePath(m.path())
	if err != nil {
		return err
	}
	base := filepath.Join(dir, escaped, "@v")
	if err := os.MkdirAll(base, 0o755); err != nil {
		return err
	}
	folder := filepath.Join(source, m.dir)
	text, err := os.ReadFile(filepath.Join(folder, "go.mod"))
	if err != nil {
		return err
	}
	if err := addLicense(source, folder); err != nil {
		return err
	}
	info := fmt.Sprintf("{\"Version\":%q,\"Time\":%q}\n", version, when)
	for name, text := range map[string][]byte{
		"list": []byte(version + "\n"), version + ".info": []byte(info), version + ".mod": text,
	} {
		if err := os.WriteFile(filepath.Join(base, name), text, 0o644); err != nil {
			return err
		}
	}
	f, err := os.Create(filepath.Join(base, version+".zip"))
	if err != nil {
		return err
	}
	return errors.Join(zip.CreateFromDir(f, modpath.Version{Path: m.path(), Version: version}, folder), f.Close())
}

// addLicense copies the repository's licence into a module without one, as the go command does. So the
// hash of the module is the same from every proxy.
func addLicense(source, folder string) error {
	name := filepath.Join(folder, "LICENSE")
	if _, err := os.Stat(name); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	text, err := os.ReadFile(filepath.Join(source, "LICENSE"))
	if err != nil {
		return err
	}
	return os.WriteFile(name, text, 0o644)
}
