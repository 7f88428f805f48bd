// SPDX-License-Identifier: MIT

package main

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/diana-limiter/diana/internal/redistest"
)

// startRedis starts a Redis server on a free port of this machine, as a process of its
// own. It ends by stop, or with this program.
func (r *run) startRedis() (s *redistest.Server, stop func(), err error) {
	h := &host{}
	err = caught(func() {
		s = redistest.Start(h)
		r.report.Machine.Redis = s.Info("server")["redis_version"]
	})
	if err != nil {
		h.close()
		return nil, nil, err
	}
	return s, h.close, nil
}

// scriptCalls returns how many scripts clients have had the server run.
func scriptCalls(s *redistest.Server) (n int, err error) {
	err = caught(func() {
		calls := s.Calls()
		n = calls["evalsha"] + calls["eval"]
	})
	return n, err
}

// host is to package redistest what a test is to it otherwise. A method of testing.TB
// that is not here would panic.
type host struct {
	testing.TB
	cleanups []func()
}

// hostError is what would fail the test.
type hostError struct{ error }

// caught returns what f panicked with, if that is a hostError.
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
	h.Cleanup(func() { _ = os.RemoveAll(dir) }) // if it stays, it lies where such things do
	return dir
}

// close ends what was started, the last first.
func (h *host) close() {
	for len(h.cleanups) > 0 {
		last := h.cleanups[len(h.cleanups)-1]
		h.cleanups = h.cleanups[:len(h.cleanups)-1]
		last()
	}
}
