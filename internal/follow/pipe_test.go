// SPDX-License-Identifier: MIT

//go:build unix

package follow_test

import (
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
)

// A pipe in place of the file is an error that does not hold up the next reload.
func TestReloadOfAPipe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, limits("local"), nil)
		if err := os.Remove(f.file); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Mkfifo(f.file, 0o600); err != nil {
			t.Skip(err)
		}
		if err := f.Reload(); err == nil || !strings.Contains(err.Error(), "expected a file, found p") {
			t.Errorf("a pipe: %v", err)
		}
		if err := os.Remove(f.file); err != nil {
			t.Fatal(err)
		}
		f.write(limits("local"))
		if err := f.Reload(); err != nil {
			t.Error(err)
		}
	})
}
