// SPDX-License-Identifier: MIT

// Package etcdtest gives tests a real etcd, version 3.4 or newer, which can be killed,
// restarted, frozen and wiped.
//
// The etcd listens on free ports of 127.0.0.1, keeps its files in a folder of its own, and stops
// at the end of the test. An error fails the test, so the goroutine of the test must call the
// functions.
//
// The environment variable ETCD names the program to run. The default is etcd.
package etcdtest

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/diana-limiter/diana/internal/testproc"
)

// Server is a process of etcd.
type Server struct {
	t       testing.TB
	binary  string
	dir     string
	port    int
	process *testproc.Process // nil if killed
}

// Start starts a server, which answers when Start returns. If the program is not installed, the
// test is skipped, or fails if the environment has CI.
func Start(t testing.TB) *Server {
	t.Helper()
	name := cmp.Or(os.Getenv("ETCD"), "etcd")
	binary, err := exec.LookPath(name)
	if err != nil && os.Getenv("CI") == "" {
		t.Skipf("this test needs %s", name)
	}
	if err != nil {
		t.Fatalf("etcdtest: %v", err)
	}
	s := &Server{t: t, binary: binary, dir: t.TempDir(), port: testproc.FreePort(t)}
	t.Cleanup(s.Kill)
	s.Restart()
	return s
}

// Addr returns host:port.
func (s *Server) Addr() string { return "127.0.0.1:" + strconv.Itoa(s.port) }

func (s *Server) file(name string) string { return filepath.Join(s.dir, name) }

// Restart starts a server that was killed, with the keys that it had.
func (s *Server) Restart() {
	s.t.Helper()
	peer := fmt.Sprintf("http://127.0.0.1:%d", s.port+testproc.PeerOffset)
	client := "http://" + s.Addr()
	p, err := testproc.Start(s.file("log"), s.binary,
		"--name", "test", "--data-dir", s.file("data"),
		"--listen-client-urls", client, "--advertise-client-urls", client,
		"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", "test="+peer,
		"--heartbeat-interval", "10", "--election-timeout", "100")
	if err != nil {
		s.t.Fatalf("etcdtest: %v", err)
	}
	s.process = p
	s.wait()
}

// wait waits until the server answers.
func (s *Server) wait() {
	s.t.Helper()
	client := http.Client{Timeout: time.Second}
	err := testproc.Poll(testproc.Patience, func() error {
		r, err := client.Get("http://" + s.Addr() + "/health")
		if err != nil {
			return err
		}
		_ = r.Body.Close() // nothing of it is read
		if r.StatusCode != http.StatusOK {
			return errors.New(r.Status)
		}
		return nil
	})
	client.CloseIdleConnections()
	if err != nil {
		log, _ := os.ReadFile(s.file("log"))
		s.t.Fatalf("etcdtest: %s does not answer: %v\n%s", s.binary, err, log[max(0, len(log)-4000):])
	}
}

// Kill stops the server at once. Its files stay.
func (s *Server) Kill() {
	if s.process == nil {
		return
	}
	if err := s.process.Kill(); err != nil {
		s.t.Errorf("etcdtest: %v", err)
	}
	s.process = nil
}

// Wipe restarts the server without any keys.
func (s *Server) Wipe() {
	s.t.Helper()
	s.Kill()
	if err := os.RemoveAll(s.file("data")); err != nil {
		s.t.Fatalf("etcdtest: %v", err)
	}
	s.Restart()
}

// Freeze suspends the process of the server; its connections stay open.
func (s *Server) Freeze() {
	s.t.Helper()
	if err := s.process.Stop(); err != nil {
		s.t.Fatalf("etcdtest: %v", err)
	}
}

// Thaw resumes a frozen server.
func (s *Server) Thaw() {
	s.t.Helper()
	if err := s.process.Resume(); err != nil {
		s.t.Fatalf("etcdtest: %v", err)
	}
	s.wait()
}
