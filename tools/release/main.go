// SPDX-License-Identifier: MIT

// Release makes a release of the repository: "release VERSION" checks it, sets the versions in a
// commit, tags every published module, and writes the artefacts into the folder dist. It pushes
// nothing. With -dry it changes no branch and no tag, and only writes the artefacts.
//
// The artefacts depend on the sources, the version and the Go toolchain alone: two runs write the
// same bytes in any folder. Their time is that of the commit.
package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

func main() {
	root := flag.String("C", ".", "the repository's folder")
	dry := flag.Bool("dry", false, "make no commit and no tag")
	flag.Parse()
	if flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "usage: release [-C DIR] [-dry] VERSION")
		os.Exit(2)
	}
	if err := release(*root, flag.Arg(0), *dry); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// release makes a release. The clone of the repository receives the commit and the tags first, so an
// error leaves the repository unchanged.
func release(root, version string, dry bool) error {
	root, err := filepath.Abs(root)
	if err != nil {
		return err
	}
	if err := check(root, version); err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "release")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(work) }() // a temporary folder
	clone, err := prepare(root, work, version, dry)
	if err != nil {
		return err
	}
	dist := filepath.Join(work, "dist")
	if err := artefacts(clone, work, dist, version); err != nil {
		return err
	}
	final := filepath.Join(root, "dist")
	if err := os.RemoveAll(final); err != nil {
		return err
	}
	if err := os.CopyFS(final, os.DirFS(dist)); err != nil {
		return err
	}
	fmt.Printf("release: %s has the artefacts of %s\n", final, version)
	if dry {
		fmt.Println("release: dry run, so there is no commit and no tag")
		return nil
	}
	return accept(root, clone, version)
}

// artefacts writes all files of a release.
func artefacts(clone, work, dist, version string) error {
	date, err := output(clone, nil, "git", "show", "-s", "--format=%ct")
	if err != nil {
		return err
	}
	var seconds int64
	if _, err := fmt.Sscan(date, &seconds); err != nil {
		return err
	}
	b := &build{
		clone: clone, work: work, dist: dist, version: version, when: time.Unix(seconds, 0).UTC(),
		share: filepath.Join(work, "share"),
	}
	if err := os.MkdirAll(dist, 0o755); err != nil {
		return err
	}
	for _, step := range []struct {
		what string
		do   func(*build) error
	}{
		{"binaries", binaries},
		{"bills of materials", boms},
		{"manual pages and completion", share},
		{"Debian packages", debs},
		{"container image", image},
		{"checksums", sums},
	} {
		fmt.Println("release:", step.what)
		if err := step.do(b); err != nil {
			return fmt.Errorf("%s: %w", step.what, err)
		}
	}
	return nil
}

// A build has what the steps of a release share.
type build struct {
	clone   string // a clone of the repository at the release commit
	work    string // a temporary folder
	dist    string // receives the artefacts
	share   string // the tree below /usr/share of manual pages and completion
	version string // such as v1.2.3
	when    time.Time
}

// binary returns the name of a program in dist.
func (b *build) binary(os, arch string) string {
	return filepath.Join(b.dist, fmt.Sprintf("diana_%s_%s_%s", b.version, os, arch))
}

// output runs a program in a folder and returns what it prints. The error has what it complains.
func output(dir string, env []string, name string, args ...string) (string, error) {
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	var complaint strings.Builder
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	if err != nil {
		return string(out), fmt.Errorf("%s: %w\n%s%s", cmd, err, out, complaint.String())
	}
	return strings.TrimSpace(string(out)), nil
}
