// SPDX-License-Identifier: MIT

package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/diana-limiter/diana/internal/redistest"
)

// startRedis starts a Redis server as a process of its own, on a free port of this machine. The
// server ends by stop or with this program.
func startRedis(r *run) (s *redistest.Server, stop func(), err error) {
	if s, stop, err = startServer(""); err != nil {
		return nil, nil, err
	}
	err = caught(func() { r.origin.Machine.Redis = s.Info("server")["redis_version"] })
	if err != nil {
		stop()
	}
	return s, stop, err
}

// startServer starts a server of a program like redis-server.
func startServer(program string) (s *redistest.Server, stop func(), err error) {
	h := &host{}
	if err = caught(func() { s = redistest.Options{Program: program}.Start(h) }); err != nil {
		h.close()
		return nil, nil, err
	}
	return s, h.close, nil
}

// scriptCalls returns the number of scripts that the server has run for clients.
func scriptCalls(s *redistest.Server) (n int, err error) {
	err = caught(func() {
		calls := s.Calls()
		n = calls["evalsha"] + calls["eval"]
	})
	return n, err
}

// host is what the servers of packages redistest and testproc end with, as those of a test end with it.
type host struct{ cleanups []func() }

// hostError is an error that would fail the test.
type hostError struct{ error }

// caught calls f and returns the hostError that f panics with, if any.
func caught(f func()) (err error) {
	defer func() {
		switch e := recover().(type) {
		case nil:
		case hostError:
			err = e
		default:
			panic(e)
		}
	}()
	f()
	return nil
}

func (h *host) Helper()                   {}
func (h *host) Failed() bool              { return false }
func (h *host) Logf(string, ...any)       {}
func (h *host) Cleanup(f func())          { h.cleanups = append(h.cleanups, f) }
func (h *host) Fatalf(f string, a ...any) { panic(hostError{fmt.Errorf(f, a...)}) }

// Skipf is called when there is no redis-server.
func (h *host) Skipf(string, ...any) {
	panic(hostError{errors.New("redis-server is missing: install it (Debian: apt-get install redis-server), or name it in REDIS_SERVER")})
}

func (h *host) TempDir() string {
	dir, err := os.MkdirTemp("", "diana-bench-")
	if err != nil {
		panic(hostError{err})
	}
	h.Cleanup(func() { _ = os.RemoveAll(dir) }) // a remaining folder does no harm
	return dir
}

// close calls the cleanups, the last one first.
func (h *host) close() {
	for len(h.cleanups) > 0 {
		last := h.cleanups[len(h.cleanups)-1]
		h.cleanups = h.cleanups[:len(h.cleanups)-1]
		last()
	}
}
