// SPDX-License-Identifier: MIT

package main

import (
	"bufio"
	"debug/buildinfo"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// targets are the systems that a release has programs for.
var targets = []struct{ os, arch string }{{"linux", "amd64"}, {"linux", "arm64"}, {"darwin", "amd64"}, {"darwin", "arm64"}}

// binaries builds the programs as a user does who runs "go install" with the flags and the environment
// below, from a module proxy of the release commit. So everyone can build the same bytes.
func binaries(b *build) error {
	proxy := filepath.Join(b.work, "proxy")
	if _, err := output(b.clone, nil, "scripts/modules", "proxy", proxy); err != nil {
		return err
	}
	cache, err := output(b.clone, nil, "go", "env", "GOMODCACHE")
	if err != nil {
		return err
	}
	usual, err := output(b.clone, nil, "go", "env", "GOPROXY")
	if err != nil {
		return err
	}
	sums, err := knownSums(b.clone)
	if err != nil {
		return err
	}
	home := filepath.Join(b.work, "go")
	for _, t := range targets {
		env := []string{
			"GOOS=" + t.os, "GOARCH=" + t.arch, "GOAMD64=v1", "GOARM64=v8.0", "CGO_ENABLED=0", "GOEXPERIMENT=", "GOFIPS140=off",
			"GOPATH=" + home, "GOBIN=", "GOMODCACHE=" + filepath.Join(b.work, "cache"), "GOWORK=off", "GOFLAGS=-modcacherw",
			"GOPROXY=file://" + proxy + ",file://" + cache + "/cache/download," + usual,
			"GONOSUMDB=*", // knownSums checks what no sum database may know
		}
		if _, err := output(b.work, env, "go", "install", "-trimpath", "-ldflags=-s -w", library+"/cmd/diana@"+b.version); err != nil {
			return err
		}
		built := filepath.Join(home, "bin", t.os+"_"+t.arch, "diana")
		if _, err := os.Stat(built); err != nil {
			built = filepath.Join(home, "bin", "diana") // for this machine's own system
		}
		if err := checkSums(built, sums); err != nil {
			return err
		}
		if err := os.Rename(built, b.binary(t.os, t.arch)); err != nil {
			return err
		}
	}
	return nil
}

// knownSums returns the lines of all go.sum files.
func knownSums(clone string) (map[string]bool, error) {
	names, err := output(clone, nil, "git", "ls-files", "go.sum", "*/go.sum")
	if err != nil {
		return nil, err
	}
	known := map[string]bool{}
	for name := range strings.FieldsSeq(names) {
		f, err := os.Open(filepath.Join(clone, name))
		if err != nil {
			return nil, err
		}
		lines := bufio.NewScanner(f)
		for lines.Scan() {
			known[lines.Text()] = true
		}
		f.Close()
		if err := lines.Err(); err != nil {
			return nil, err
		}
	}
	return known, nil
}

// checkSums returns an error if a program has a module that no go.sum file knows.
func checkSums(program string, known map[string]bool) error {
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return err
	}
	for _, m := range info.Deps {
		own := m.Path == library || strings.HasPrefix(m.Path, library+"/")
		if line := m.Path + " " + m.Version + " " + m.Sum; !own && (!known[line] || m.Replace != nil) {
			return fmt.Errorf("%s has the module %q, which no go.sum knows", filepath.Base(program), line)
		}
	}
	return nil
}
