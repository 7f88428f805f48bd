// SPDX-License-Identifier: MIT

package config

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/diana-limiter/diana/internal/plan"
)

var update = flag.Bool("update", false, "write the .want files")

// read parses a file of testdata, as a configuration centre's document if it is in testdata/remote.
func read(t testing.TB, file string) (*Config, error) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if filepath.Base(filepath.Dir(file)) == "remote" {
		return words().ParseRemote(filepath.Base(file), data)
	}
	return words().Parse(filepath.Base(file), data)
}

func files(t testing.TB, pattern string) []string {
	t.Helper()
	list, err := filepath.Glob("testdata/" + pattern)
	remote, _ := filepath.Glob("testdata/remote/" + pattern)
	if err != nil || len(list) == 0 || len(remote) == 0 {
		t.Fatalf("testdata/%s: none, %v", pattern, err)
	}
	return append(list, remote...)
}

// compare compares lines with those in a .want file, which says nothing if it is absent.
func compare(t *testing.T, yamlFile, got string) {
	t.Helper()
	file := strings.TrimSuffix(yamlFile, ".yaml") + ".want"
	if *update {
		if got == "" {
			_ = os.Remove(file)
		} else if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("got:\n%swant:\n%s", got, want)
	}
}

// Each *.bad.yaml has a kind of mistake, and its messages beside it.
func TestBad(t *testing.T) {
	t.Parallel()
	for _, file := range files(t, "*.bad.yaml") {
		t.Run(filepath.Base(file), func(t *testing.T) {
			c, err := read(t, file)
			var errs Errors
			if !errors.As(err, &errs) || len(errs) == 0 || c != nil {
				t.Fatalf("got %v and error %v, want Errors", c, err)
			}
			compare(t, file, errs.Error()+"\n")
		})
	}
}

// Each *.good.yaml is valid and compiles. Its warnings, if any, are in a file beside it.
func TestGood(t *testing.T) {
	t.Parallel()
	for _, file := range files(t, "*.good.yaml") {
		t.Run(filepath.Base(file), func(t *testing.T) {
			c, err := read(t, file)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := plan.Compile(c.Limits, c.Identity, c.Paths, words().Actors); err != nil {
				t.Error(err)
			}
			warnings := c.Warnings.Error()
			if warnings != "" {
				warnings += "\n"
			}
			compare(t, file, warnings)
		})
	}
}

// Messages are shown and logged: no part of an address goes there that may be secret.
func TestNoPasswordInMessages(t *testing.T) {
	t.Parallel()
	seen := 0
	for _, file := range files(t, "*.yaml") {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Contains(data, []byte("s3cret")) {
			continue
		}
		seen++
		if _, err := read(t, file); err == nil || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: %v", file, err)
		}
	}
	if seen < 5 {
		t.Errorf("only %d files with a password", seen)
	}
}

func TestWantHasYAML(t *testing.T) {
	t.Parallel()
	for _, file := range files(t, "*.want") {
		if _, err := os.Stat(strings.TrimSuffix(file, ".want") + ".yaml"); err != nil {
			t.Error(err)
		}
	}
}
