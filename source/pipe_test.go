// SPDX-License-Identifier: MIT

//go:build unix

package source_test

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/diana-limiter/diana/source"
)

// Reading a folder or a pipe fails, and does not block.
func TestFileIsNone(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	must(t, syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600))
	must(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o600))
	for _, name := range []string{"pipe", "", "file/below", "no/folder"} {
		s := open(t, source.File(), source.Options{URL: parseURL(t, "file://"+dir+"/"+name)})
		if d, err := s.Get(t.Context()); err == nil {
			t.Errorf("%q: found %+v, expected an error", name, d)
		}
	}
}
