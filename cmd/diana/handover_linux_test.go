// SPDX-License-Identifier: MIT

package main

import (
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/diana-limiter/diana/cmd/diana/internal/handover"
	"github.com/diana-limiter/diana/internal/testproc"
)

// asAnother calls f as another user, on a thread that ends with it. The test must be root's.
func asAnother(t *testing.T, f func()) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can be another user")
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // and no unlock, so that the thread ends
		if _, _, e := syscall.RawSyscall(syscall.SYS_SETRESUID, ^uintptr(0), 65534, ^uintptr(0)); e != 0 {
			t.Error(e)
			return
		}
		f()
	}()
	<-done
}

// openFolder returns a folder that every user can enter, and its mode is changed by chmod.
func openFolder(t *testing.T) (dir string, chmod func(os.FileMode)) {
	t.Helper()
	dir, err := os.MkdirTemp("", "handover")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	chmod = func(mode os.FileMode) {
		if err := os.Chmod(dir, mode); err != nil {
			t.Fatal(err)
		}
	}
	chmod(0o755)
	return dir, chmod
}

// A process of another user gets no sockets, even if it can connect.
func TestHandoverToAnotherUser(t *testing.T) {
	t.Parallel()
	dir, _ := openFolder(t)
	path := filepath.Join(dir, "s")
	g := serve(t, "limits: []", nothing(t), "--handover", path)
	if err := os.Chmod(path, 0o666); err != nil {
		t.Fatal(err)
	}
	asAnother(t, func() {
		conn, err := net.Dial("unix", path)
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		if _, files, err := handover.ReceiveFiles(conn.(*net.UnixConn)); err == nil {
			t.Error("another user gets", len(files), "sockets")
		}
	})
	testproc.Eventually(t, func() bool { return strings.Contains(g.log.String(), "belongs to the user 65534, expected 0") })
}

// A new process takes no sockets from a process of another user.
func TestHandoverFromAnotherUser(t *testing.T) {
	t.Parallel()
	dir, chmod := openFolder(t)
	chmod(0o777)
	var l net.Listener
	asAnother(t, func() {
		var err error
		if l, err = net.Listen("unix", filepath.Join(dir, "s")); err != nil {
			t.Error(err)
		}
	})
	if l == nil {
		return
	}
	defer l.Close()
	chmod(0o755)
	if _, stderr := fails(t, "--handover", filepath.Join(dir, "s")); !strings.Contains(stderr, "belongs to the user 65534, expected 0") {
		t.Error(stderr)
	}
}
