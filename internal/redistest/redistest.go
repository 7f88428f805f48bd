// SPDX-License-Identifier: MIT

// Package redistest starts real servers for tests, Redis 7.0 or newer, or Valkey: single servers, a
// Cluster, or servers with Sentinels. They can be killed, restarted and frozen. A [Proxy] makes the
// connection to them slow, silent or closed.
//
// All servers listen on free ports of 127.0.0.1, keep their files in a folder of their own, and end
// with the test, or with the program if that dies. Any number of tests and programs can run at the
// same time.
//
// If anything fails here, the test fails. So most functions must be called from the test's
// goroutine. The comments name those that any goroutine may call.
//
// REDIS_SERVER in the environment names another program than redis-server, such as valkey-server.
package redistest

import (
	"cmp"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/diana-limiter/diana/internal/testproc"
)

// Options configure the servers. The servers of the zero value accept every client.
type Options struct {
	// Args are further settings in the form of the command line: "--maxmemory", "1mb". They override the
	// settings of this package. Sentinels do not get them.
	Args []string

	// Password is the password of clients. With a Username it is the password of that user, the only
	// one, who may use every command.
	Username, Password string

	// Program is the servers' program, such as "valkey-server". The default is REDIS_SERVER in the
	// environment, and "redis-server" without it.
	Program string

	// TLS makes the servers accept only TLS, with certificates of a new authority; see Server.CAFile.
	TLS bool
}

// Start starts a server without persistence, with further settings in the form of the command line, such
// as "--maxmemory", "1mb". The server answers when Start returns. Without redis-server the test is
// skipped, or fails if the environment has CI.
func Start(t testproc.TB, args ...string) *Server {
	t.Helper()
	return Options{Args: args}.Start(t)
}

// Start is the function Start with options.
func (o Options) Start(t testproc.TB) *Server {
	t.Helper()
	return newRecipe(t, o).server(t)
}

// StartCluster is the function StartCluster with options. The password also protects the servers from each
// other.
func (o Options) StartCluster(t testing.TB, masters int) *Cluster {
	t.Helper()
	return newCluster(t, o, masters)
}

// StartSentinel is the function StartSentinel with options. The Sentinels require no password.
func (o Options) StartSentinel(t testing.TB) *Sentinel {
	t.Helper()
	return newSentinel(t, o)
}

// recipe is what the servers of one Start have in common.
type recipe struct {
	Options
	binary    string
	authority *authority // nil without TLS
}

func newRecipe(t testproc.TB, o Options) *recipe {
	t.Helper()
	name := cmp.Or(o.Program, os.Getenv("REDIS_SERVER"), "redis-server")
	binary, err := exec.LookPath(name)
	if err != nil && os.Getenv("CI") == "" {
		t.Skipf("this test needs %s", name)
	}
	if err != nil {
		t.Fatalf("redistest: %v", err)
	}
	r := &recipe{Options: o, binary: binary}
	if o.TLS {
		r.authority = newAuthority(t)
	}
	return r
}

// server starts a data server with its own settings.
func (r *recipe) server(t testproc.TB, settings ...string) *Server {
	t.Helper()
	s := &Server{t: t, recipe: r, settings: []string{
		"--save", "",
		"--appendonly", "no",
		"--rdb-del-sync-files", "yes", // the file that a replica gets from its master
		"--repl-diskless-sync-delay", "0",
		"--enable-debug-command", "local",
	}}
	switch {
	case r.Username != "":
		s.settings = append(s.settings,
			"--user", "default", "off",
			"--user", r.Username, "on", ">"+r.Password, "~*", "&*", "+@all",
			"--masteruser", r.Username, "--masterauth", r.Password)
	case r.Password != "":
		s.settings = append(s.settings, "--requirepass", r.Password, "--masterauth", r.Password)
	}
	s.settings = append(append(s.settings, settings...), r.Args...)
	s.open()
	return s
}

// sentinel starts a Sentinel. It requires no password.
func (r *recipe) sentinel(t testproc.TB, settings ...string) *Server {
	t.Helper()
	s := &Server{
		t: t, recipe: &recipe{binary: r.binary, authority: r.authority},
		mode: []string{"--sentinel"}, settings: settings,
		// By default Sentinels exchange news every 2 s, which is long for a test, and do nothing for 30 s after
		// they could not run for 2 s.
		opening: []string{"SENTINEL", "DEBUG", "ping-period", "200", "ask-period", "200",
			"publish-period", "200", "info-period", "1000", "tilt-trigger", "20000"},
	}
	s.open()
	return s
}

// agreement is how long several servers may take to agree on something.
const agreement = 40 * time.Second

// await is testproc.Poll, and fails the test after limit.
func await(t testproc.TB, limit time.Duration, what string, done func() error) {
	t.Helper()
	if err := testproc.Poll(limit, done); err != nil {
		t.Fatalf("redistest: %s: %v", what, err)
	}
}
