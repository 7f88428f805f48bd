// SPDX-License-Identifier: MIT

//go:build unix

package respond_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/config"
)

// A pipe is no file to divert to. Reading it could block forever.
func TestDivertPipe(t *testing.T) {
	t.Parallel()
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := config.Parse("x", fmt.Appendf(nil, "{url: /, rules: [{rpu: 0}], divert: {file: %q}}", pipe))
	if err != nil {
		t.Fatal(err) // nothing is read to check it
	}
	_, err = diana.Options{}.New(c)
	if err == nil || !strings.Contains(err.Error(), "is not a file") || !strings.Contains(err.Error(), `entry "/": divert: `) {
		t.Errorf("%v, expected that it is not a file", err)
	}
}
