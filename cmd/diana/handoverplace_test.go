// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/diana-limiter/diana/cmd/diana/internal/exchange"
	"github.com/diana-limiter/diana/cmd/diana/internal/handover"
	"github.com/diana-limiter/diana/internal/testproc"
)

// nothing starts an upstream that answers with nothing.
func nothing(t *testing.T) (url string) {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(s.Close)
	return s.URL
}

// fails runs a gateway that ends by itself, and returns what it prints.
func fails(t *testing.T, flags ...string) (stdout, stderr string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testproc.Patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "diana", append([]string{"serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"}, flags...)...)
	cmd.Dir = t.TempDir()
	var out, log strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &log
	if err := cmd.Run(); err == nil || ctx.Err() != nil {
		t.Errorf("%q ends with %v", flags, err)
	}
	return out.String(), log.String()
}

// A path that is not a place for a socket is an error before the gateway serves, and no file is harmed.
func TestHandoverPlace(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	folder := func(name string, mode os.FileMode) string {
		if err := os.Mkdir(at(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(at(name), mode); err != nil {
			t.Fatal(err)
		}
		return at(name)
	}
	write(t, at("config.yaml"), []byte("limits: []"))
	for name, to := range map[string]string{"link": "config.yaml", "dangling": "nowhere", "folder": folder("sticky", 0o777|os.ModeSticky)} {
		if err := os.Symlink(to, at(name)); err != nil {
			t.Fatal(err)
		}
	}
	tests := map[string]string{ // by path
		at("config.yaml"):      "expected a socket, or no file",
		at("link"):             "expected a socket, or no file",
		at("dangling"):         "expected a socket, or no file",
		at("sticky"):           "expected a socket, or no file",
		at("none/sock"):        "expected a folder",
		at("config.yaml/sock"): "is no folder, expected a folder of this user",
		filepath.Join(folder("open", 0o777), "s"): "can be written to by other users, expected one of this user",
		at("sticky/s"): "can be written to by other users",
		at("folder/s"): "can be written to by other users",
		filepath.Join(folder("team", 0o770), "s"): "can be written to by other users",
		at(strings.Repeat("x", 120)):              "is too long for a socket",
	}
	if os.Geteuid() == 0 {
		if err := os.Chown(folder("theirs", 0o755), 65534, 65534); err != nil {
			t.Fatal(err)
		}
		tests[at("theirs/s")] = "belongs to another user"
	}
	for path, want := range tests {
		t.Run(strings.TrimPrefix(path, dir), func(t *testing.T) {
			t.Parallel()
			stdout, stderr := fails(t, "--handover", path)
			if stdout != "" || !strings.Contains(stderr, want) || !strings.Contains(stderr, "--handover: ") {
				t.Errorf("%q %q, want %q", stdout, stderr, want)
			}
			if text, err := os.ReadFile(at("config.yaml")); err != nil || string(text) != "limits: []" {
				t.Errorf("%q, %v", text, err)
			}
		})
	}
}

// A gateway that loses its socket restores it, so that another process can take over. It harms no file.
func TestHandoverSocketIsLost(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "handover.sock")
	c := &crew{t: t, file: filepath.Join(t.TempDir(), "diana.yaml"), at: make([]string, 4)}
	write(t, c.file, []byte("limits: []"))
	c.flags = []string{"--upstream", nothing(t), "--listen", "127.0.0.1:0", "--check", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--handover", path}
	old := c.next()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	restored := func(n int) func() bool {
		return func() bool { return strings.Count(old.log.String(), "was lost, and is restored") == n }
	}
	testproc.Eventually(t, restored(1))

	// A successor is killed after it has placed its socket, and before it is ready.
	conn, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	placed, err := net.ListenUnix("unix", &net.UnixAddr{Name: path + ".next", Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	placed.SetUnlinkOnClose(false)
	if err := os.Rename(path+".next", path); err != nil {
		t.Fatal(err)
	}
	placed.Close() // before the connection, as if the kernel did so
	conn.Close()
	testproc.Eventually(t, restored(2))

	next := c.next()
	if err := old.cmd.Wait(); err != nil {
		t.Error(err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	write(t, path, []byte("a file"))
	testproc.Eventually(t, func() bool { return strings.Contains(next.log.String(), "no other process can take over") })
	if text, err := os.ReadFile(path); err != nil || string(text) != "a file" {
		t.Errorf("%q, %v", text, err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	testproc.Eventually(t, func() bool { return strings.Contains(next.log.String(), "is restored") })
}

// A gateway whose address is in use says that it found no process to take over from.
func TestHandoverFindsNobody(t *testing.T) {
	t.Parallel()
	g := serve(t, "limits: []", nothing(t))
	_, stderr := fails(t, "--listen", strings.TrimPrefix(g.url, "http://"), "--handover", filepath.Join(t.TempDir(), "s"))
	if !strings.Contains(stderr, "address already in use, and no process hands over at ") {
		t.Error(stderr)
	}
}

// predecessor is a process that hands over, played by the test.
type predecessor struct {
	path string
	l    *net.UnixListener
}

func newPredecessor(t *testing.T) *predecessor {
	t.Helper()
	p := &predecessor{path: filepath.Join(t.TempDir(), "s")}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: p.path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	p.l = l
	return p
}

// accept returns the connection of the next successor.
func (p *predecessor) accept(t *testing.T) *net.UnixConn {
	t.Helper()
	conn, err := p.l.AcceptUnix()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// pass sends to the next successor a socket, as one for this address of the flags.
func (p *predecessor) pass(address string, l interface{ File() (*os.File, error) }) error {
	conn, err := p.l.AcceptUnix()
	if err != nil {
		return err
	}
	defer conn.Close()
	f, err := l.File()
	if err != nil {
		return err
	}
	defer f.Close()
	text, _ := json.Marshal(map[string]any{"addresses": []string{address}})
	if err := handover.SendFiles(conn, text, []*os.File{f}); err != nil {
		return err
	}
	_, _ = conn.Read(make([]byte, 1))
	return nil
}

// A new process uses no socket of another address than the flags name.
func TestHandoverOfOtherSockets(t *testing.T) {
	t.Parallel()
	elsewhere, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer elsewhere.Close()
	for address, socket := range map[string]interface{ File() (*os.File, error) }{
		strings.TrimPrefix(unused(t), "http://"): elsewhere.(*net.TCPListener),
		"127.0.0.2:0":                            elsewhere.(*net.TCPListener),
		":0":                                     elsewhere.(*net.TCPListener),
		"127.0.0.1:0":                            newPredecessor(t).l,
	} {
		p := newPredecessor(t)
		passed := make(chan error, 1)
		go func() { passed <- p.pass(address, socket) }()
		_, stderr := fails(t, "--listen", address, "--handover", p.path)
		if err := <-passed; err != nil {
			t.Error(err)
		}
		if !strings.Contains(stderr, "passes a socket of ") {
			t.Errorf("%s: %q", address, stderr)
		}
	}
}

// A signal to a new process, while it waits for the old one, ends it before it takes over.
func TestHandoverIsAbandoned(t *testing.T) {
	t.Parallel()
	p := newPredecessor(t)
	g := launch(t, "limits: []", nothing(t), "--handover", p.path)
	conn := p.accept(t)
	if err := g.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := g.cmd.Wait(); err != nil {
		t.Error(err)
	}
	if n, err := conn.Read(make([]byte, 1)); n != 0 || err == nil {
		t.Errorf("%d bytes, %v", n, err)
	}
	if left, _ := filepath.Glob(p.path + "?*"); left != nil {
		t.Error("it leaves", left)
	}
	if info, err := os.Lstat(p.path); err != nil || info.Mode().Type() != os.ModeSocket {
		t.Error("the socket of the old process is gone", err)
	}
}

// A process that drains hands nothing over, so that a new one does not fail.
func TestHandoverWhileDraining(t *testing.T) {
	t.Parallel()
	handler, inside := exchange.Blocking(t)
	upstream := httptest.NewServer(handler)
	t.Cleanup(upstream.Close)
	path := filepath.Join(t.TempDir(), "s")
	g := serve(t, "limits: []", upstream.URL, "--handover", path)
	go func() {
		if answer, err := http.Get(g.url); err == nil {
			answer.Body.Close()
		}
	}()
	<-inside
	if err := g.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	testproc.Eventually(t, func() bool { return strings.Contains(g.log.String(), "draining") })
	next := serve(t, "limits: []", nothing(t), "--handover", path)
	if status, _ := next.send(t, "GET", ""); status != 200 {
		t.Error(status)
	}
}
