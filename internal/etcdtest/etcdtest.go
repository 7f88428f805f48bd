// SPDX-License-Identifier: MIT

// Package etcdtest gives tests a real etcd, version 3.4 or newer, which can be killed,
// restarted, frozen and wiped.
//
// It listens on free ports of 127.0.0.1, keeps its files in a folder of its own, and ends
// with the test. Whatever goes wrong here fails the test, so its functions must be called
// from the goroutine that runs it.
//
// ETCD in the environment names another program than etcd.
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

// Start starts a server, which answers when Start returns. Without the program the test
// is skipped, or fails if the environment has CI.
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

// Restart starts a server that was killed, with what it held.
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

// Kill ends the server at once. It keeps what was written.
func (s *Server) Kill() {
	if s.process == nil {
		return
	}
	if err := s.process.Kill(); err != nil {
		s.t.Errorf("etcdtest: %v", err)
	}
	s.process = nil
}

// Wipe has the server forget everything.
func (s *Server) Wipe() {
	s.t.Helper()
	s.Kill()
	if err := os.RemoveAll(s.file("data")); err != nil {
		s.t.Fatalf("etcdtest: %v", err)
	}
	s.Restart()
}

// Freeze has the server do nothing, not even close its connections.
func (s *Server) Freeze() {
	s.t.Helper()
	if err := s.process.Stop(); err != nil {
		s.t.Fatalf("etcdtest: %v", err)
	}
}

// Thaw lets a frozen server go on.
func (s *Server) Thaw() {
	s.t.Helper()
	if err := s.process.Resume(); err != nil {
		s.t.Fatalf("etcdtest: %v", err)
	}
	s.wait()
}
