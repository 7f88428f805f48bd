// SPDX-License-Identifier: MIT

// Package redistest gives tests real Redis servers, version 7.0 or newer: single,
// as a Cluster, or watched by Sentinels. They can be killed, restarted and frozen. A
// [Proxy] makes the way to them slow, silent or closed.
//
// Everything listens on free ports of 127.0.0.1, keeps its files in a folder of its
// own, and ends with the test, or with the program if that dies. Any number of tests,
// also of several programs, do not get in each other's way.
//
// Whatever goes wrong here fails the test, so most of the functions must be called
// from the goroutine that runs it. Those that may be called from any say so.
//
// REDIS_SERVER in the environment names another program than redis-server.
package redistest

import (
	"cmp"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/diana-limiter/diana/internal/testproc"
)

// Options say what servers to start. The zero value: open to all who can reach them.
type Options struct {
	// Args are further settings, in the form of the server's command line:
	// "--maxmemory", "1mb". They win over those made here. Sentinels do not get them.
	Args []string

	// Password is what clients must give. With a Username it is that user's, who may
	// do everything, and there is no other.
	Username, Password string

	// TLS has the servers speak nothing else, with certificates of an authority that
	// is made for them; see Server.CAFile.
	TLS bool
}

// Start starts a server that keeps nothing on disk, with further settings in the form
// of its command line, such as "--maxmemory", "1mb". It answers when Start returns.
// Without redis-server the test is skipped, or fails if the environment has CI.
func Start(t testing.TB, args ...string) *Server {
	t.Helper()
	return Options{Args: args}.Start(t)
}

// Start is [Start] with options.
func (o Options) Start(t testing.TB) *Server {
	t.Helper()
	return o.prepare(t).server(t)
}

// recipe is what the servers of one Start have in common.
type recipe struct {
	Options
	binary    string
	authority *authority // nil without TLS
}

func (o Options) prepare(t testing.TB) *recipe {
	t.Helper()
	name := cmp.Or(os.Getenv("REDIS_SERVER"), "redis-server")
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

// server starts a server that holds data. The settings are its own.
func (r *recipe) server(t testing.TB, settings ...string) *Server {
	t.Helper()
	s := &Server{t: t, recipe: r, settings: []string{
		"--save", "",
		"--appendonly", "no",
		"--rdb-del-sync-files", "yes", // what a replica got from its master
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

// sentinel starts a server that watches others. It asks for no password.
func (r *recipe) sentinel(t testing.TB, settings ...string) *Server {
	t.Helper()
	s := &Server{
		t: t, recipe: &recipe{binary: r.binary, authority: r.authority},
		mode: []string{"--sentinel"}, settings: settings,
		// By default they tell each other news every 2 s, which is long for a test, and do
		// nothing for 30 s when something kept them from running for 2 s.
		opening: []string{"SENTINEL", "DEBUG", "ping-period", "200", "ask-period", "200",
			"publish-period", "200", "info-period", "1000", "tilt-trigger", "20000"},
	}
	s.open()
	return s
}

// agreement is how long several servers may take to agree on something.
const agreement = 40 * time.Second

// await is testproc.Poll for what must come.
func await(t testing.TB, limit time.Duration, what string, done func() error) {
	t.Helper()
	if err := testproc.Poll(limit, done); err != nil {
		t.Fatalf("redistest: %s: %v", what, err)
	}
}
