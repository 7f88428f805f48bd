// SPDX-License-Identifier: MIT

package redistest

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/diana-limiter/diana/internal/testproc"
)

// Server is a Redis process. Only one goroutine at a time may kill, restart, freeze or thaw it. The other
// methods are safe for concurrent use.
type Server struct {
	t        testproc.TB
	recipe   *recipe
	mode     []string // arguments that cannot be in the file
	settings []string // the settings in its file, in the form of arguments
	opening  []string // a command to send after each start
	dir      string
	port     int
	process  atomic.Pointer[testproc.Process] // nil if killed
	frozen   atomic.Bool
}

var errInUse = errors.New("address already in use")

// open starts the server for the first time, on a free port.
func (s *Server) open() {
	s.t.Helper()
	s.dir = s.t.TempDir() // removed after the Cleanup functions of this package
	s.t.Cleanup(func() {
		s.Kill()
		if s.t.Failed() && testing.Verbose() {
			s.t.Logf("the server at %s said at last:\n%s", s.Addr(), s.said(10))
		}
	})
	err := errInUse
	for tries := 0; tries < 20 && errors.Is(err, errInUse); tries++ {
		s.port = testproc.FreePort(s.t)
		if err = s.configure(); err == nil {
			err = s.run()
		}
	}
	if err != nil {
		s.t.Fatalf("redistest: %v", err)
	}
}

// configure writes the server's file. It must be a file, because a failover writes the new roles to it and
// a restart reads them.
func (s *Server) configure() error {
	port := strconv.Itoa(s.port)
	settings := []string{"--bind", "127.0.0.1", "--dir", s.dir}
	if a := s.recipe.authority; a == nil {
		settings = append(settings, "--port", port)
	} else {
		settings = append(settings, "--port", "0", "--tls-port", port,
			"--tls-cert-file", a.certFile, "--tls-key-file", a.keyFile, "--tls-ca-cert-file", a.caFile,
			"--tls-auth-clients", "no", "--tls-replication", "yes", "--tls-cluster", "yes")
	}
	var text strings.Builder
	quote := strings.NewReplacer(`\`, `\\`, `"`, `\"`)
	for _, word := range append(settings, s.settings...) {
		if name, ok := strings.CutPrefix(word, "--"); ok {
			text.WriteString("\n" + name)
		} else {
			text.WriteString(` "` + quote.Replace(word) + `"`)
		}
	}
	return os.WriteFile(s.file("redis.conf"), []byte(text.String()+"\n"), 0o600)
}

func (s *Server) file(name string) string { return filepath.Join(s.dir, name) }

// run starts the process and waits until it answers.
func (s *Server) run() error {
	p, err := testproc.Start(s.file("redis.log"), s.recipe.binary, append([]string{s.file("redis.conf")}, s.mode...)...)
	if err != nil {
		return err
	}
	s.process.Store(p)
	err = testproc.Poll(testproc.Patience, func() error {
		if p.HasEnded() {
			return nil
		}
		return s.answers(p)
	})
	switch {
	case !p.HasEnded():
		if err == nil && s.opening != nil {
			_, err = s.Do(s.opening...)
		}
		return err
	case strings.Contains(s.said(10), "Address already in use"):
		err = errInUse
	default:
		err = fmt.Errorf("%s ended:\n%s", s.recipe.binary, s.said(10))
	}
	s.process.Store(nil)
	return err
}

// answers returns nil if this process answers and has loaded its data.
func (s *Server) answers(p *testproc.Process) error {
	if _, err := s.do(time.Second, "PING"); err != nil {
		return err
	}
	info, err := s.info("server")
	if err == nil && info["process_id"] != strconv.Itoa(p.PID) {
		err = errInUse
	}
	return err
}

// said returns the last lines of the server's log.
func (s *Server) said(lines int) string {
	text, _ := os.ReadFile(s.file("redis.log"))
	all := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
	return string(bytes.Join(all[max(0, len(all)-lines):], []byte("\n")))
}

// Addr returns host:port, which stays the same over restarts.
func (s *Server) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)) }

// URL returns the address with user and password, such as redis://me:secret@127.0.0.1:12345,
// or rediss:// for TLS.
func (s *Server) URL() string {
	u := url.URL{Scheme: "redis", Host: s.Addr()}
	if s.recipe.authority != nil {
		u.Scheme = "rediss"
	}
	if s.recipe.Password != "" {
		u.User = url.UserPassword(s.recipe.Username, s.recipe.Password)
	}
	return u.String()
}

// CAFile returns the file with the certificate that clients must trust, or "" without TLS. The file is
// removed after the test.
func (s *Server) CAFile() string {
	if s.recipe.authority == nil {
		return ""
	}
	return s.recipe.authority.caFile
}

// TLSConfig returns a new configuration for clients, or nil without TLS.
func (s *Server) TLSConfig() *tls.Config {
	if s.recipe.authority == nil {
		return nil
	}
	return &tls.Config{RootCAs: s.recipe.authority.pool}
}

// PID returns the process id, or 0 if there is no process.
func (s *Server) PID() int {
	if p := s.process.Load(); p != nil {
		return p.PID
	}
	return 0
}

// Kill ends the server at once, as kill -9 does, and returns when it has ended. From then on connections
// are refused. A second Kill has no effect.
func (s *Server) Kill() {
	s.t.Helper()
	p := s.process.Swap(nil)
	if p == nil {
		return
	}
	if err := p.Kill(); err != nil {
		s.t.Fatalf("redistest: killing the server at %s: %v", s.Addr(), err)
	}
	s.frozen.Store(false)
}

// Restart starts the server again, at the same address and without data. If it runs, Restart kills it
// first. In a Cluster it keeps its role, and Sentinels assign it one.
func (s *Server) Restart() {
	s.t.Helper()
	s.Kill()
	if err := s.run(); err != nil {
		s.t.Fatalf("redistest: restarting the server at %s: %v", s.Addr(), err)
	}
}

// Freeze stops the server like a machine that hangs: connections can be made, but nothing answers. It
// returns when the process has stopped.
func (s *Server) Freeze() {
	s.t.Helper()
	s.frozen.Store(true)
	if err := s.alive().Stop(); err != nil {
		s.t.Fatalf("redistest: freezing the server at %s: %v", s.Addr(), err)
	}
}

// Thaw continues the server, and returns when it answers. The server then also carries out commands that
// clients sent meanwhile.
func (s *Server) Thaw() {
	s.t.Helper()
	p := s.alive()
	if err := p.Resume(); err != nil {
		s.t.Fatalf("redistest: thawing the server at %s: %v", s.Addr(), err)
	}
	await(s.t, testproc.Patience, "a thawed server's answer", func() error { return s.answers(p) })
	s.frozen.Store(false)
}

func (s *Server) alive() *testproc.Process {
	s.t.Helper()
	p := s.process.Load()
	if p == nil {
		s.t.Fatalf("redistest: the server at %s is killed", s.Addr())
	}
	return p
}

// up reports whether the server should answer.
func (s *Server) up() bool { return s.process.Load() != nil && !s.frozen.Load() }
