// SPDX-License-Identifier: MIT

package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/diana-limiter/diana/internal/testproc"
)

// container makes a control group with a bound on memory, and returns the file that takes processes. It skips
// the test where that is not possible.
func container(t *testing.T, bytes int) (procs string) {
	t.Helper()
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		t.Skip("no control groups:", err)
	}
	for line := range strings.Lines(string(own)) {
		controllers, path, _ := strings.Cut(strings.TrimSpace(line[strings.Index(line, ":")+1:]), ":")
		root, limit := "/sys/fs/cgroup", "memory.max"
		if controllers == "memory" {
			root, limit = "/sys/fs/cgroup/memory", "memory.limit_in_bytes"
		} else if controllers != "" {
			continue
		}
		group := filepath.Join(root, path, fmt.Sprintf("diana-test-%d", os.Getpid()))
		if err = os.Mkdir(group, 0o700); err != nil {
			continue
		}
		t.Cleanup(func() { _ = os.Remove(group) })
		if err = os.WriteFile(filepath.Join(group, limit), []byte(strconv.Itoa(bytes)), 0o600); err == nil {
			return filepath.Join(group, "cgroup.procs")
		}
	}
	t.Skip("no control group for memory can be made here:", err)
	return ""
}

// In a container the memory limit of Go is nine tenths of the container's, unless the user sets one.
func TestMemoryOfContainer(t *testing.T) {
	leaveCollectorAlone(t)
	procs := container(t, 200<<20)
	upstream := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(upstream.Close)
	for setting, want := range map[string]float64{"": 180 << 20, "GOMEMLIMIT=100MiB": 100 << 20} {
		t.Run(setting, func(t *testing.T) {
			if name, value, ok := strings.Cut(setting, "="); ok {
				t.Setenv(name, value)
			}
			s := &served{file: filepath.Join(t.TempDir(), "diana.yaml"), inside: procs}
			write(t, s.file, []byte("limits: []"))
			s.begin(t, "--upstream", upstream.URL, "--listen", "127.0.0.1:0")
			testproc.Eventually(t, s.listens)
			if got := s.metric(t, "go_gc_gomemlimit_bytes"); got != want {
				t.Errorf("the limit is %v, want %v", got, want)
			}
			if line := fmt.Sprintf("memory_limit=%d", int(want)); !strings.Contains(s.log.String(), line) {
				t.Errorf("the log does not say %s", line)
			}
			if err := s.cmd.Process.Kill(); err != nil {
				t.Error(err)
			}
			_ = s.cmd.Wait()
		})
	}
}
