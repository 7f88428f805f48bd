// SPDX-License-Identifier: MIT

package measure

import (
	"errors"
	"fmt"
	"os"

	"github.com/diana-limiter/diana/internal/redistest"
)

// Redis starts a Redis server as a process of its own, on a free port of this machine.
func (y *Yard) Redis(r *Run) *redistest.Server {
	s := redistest.Options{}.Start(y.Host)
	r.Origin.Machine.Redis = s.Info("server")["redis_version"]
	return s
}

// ScriptCalls returns the number of scripts that the server has run for clients during f.
func ScriptCalls(s *redistest.Server, f func() error) (n float64, err error) {
	before := s.Calls()
	err = f()
	after := s.Calls()
	return float64(after["evalsha"] + after["eval"] - before["evalsha"] - before["eval"]), err
}

// Host is what the servers of packages redistest and testproc end with, as those of a test end with it.
type Host struct{ cleanups []func() }

// hostError is an error that would fail the test.
type hostError struct{ error }

// Caught calls f and returns the hostError that f panics with, if any.
func Caught(f func()) (err error) {
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

// Helper does nothing.
func (h *Host) Helper() {}

// Failed returns false.
func (h *Host) Failed() bool { return false }

// Logf does nothing.
func (h *Host) Logf(string, ...any) {}

// Cleanup adds a function that Close calls.
func (h *Host) Cleanup(f func()) { h.cleanups = append(h.cleanups, f) }

// Fatalf ends the function that Caught calls.
func (h *Host) Fatalf(f string, a ...any) { panic(hostError{fmt.Errorf(f, a...)}) }

// Skipf is called when there is no redis-server.
func (h *Host) Skipf(string, ...any) {
	panic(hostError{errors.New("redis-server is missing: install it (Debian: apt-get install redis-server), or name it in REDIS_SERVER")})
}

// TempDir returns a folder that Close removes.
func (h *Host) TempDir() string {
	dir, err := os.MkdirTemp("", "diana-bench-")
	if err != nil {
		panic(hostError{err})
	}
	h.Cleanup(func() { _ = os.RemoveAll(dir) }) // a remaining folder does no harm
	return dir
}

// Close calls the cleanups, the last one first.
func (h *Host) Close() {
	for len(h.cleanups) > 0 {
		last := h.cleanups[len(h.cleanups)-1]
		h.cleanups = h.cleanups[:len(h.cleanups)-1]
		last()
	}
}
