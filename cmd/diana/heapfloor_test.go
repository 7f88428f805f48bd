// SPDX-License-Identifier: MIT

package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"github.com/diana-limiter/diana/cmd/diana/internal/command"
	"github.com/diana-limiter/diana/internal/race"
	"github.com/diana-limiter/diana/internal/testproc"
)

// spend sends n requests with a field that takes memory.
func spend(t *testing.T, s *served, n int) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	for range n {
		request, _ := http.NewRequest(http.MethodGet, s.url, nil)
		request.Header.Set("X-Large", strings.Repeat("x", 30_000))
		answer, err := client.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, answer.Body)
		_ = answer.Body.Close()
	}
}

// collections returns how many collections the gateway needs to allocate 128 MiB for requests.
func (s *served) collections(t *testing.T) int {
	t.Helper()
	const allocated, counted = "go_memstats_alloc_bytes_total", "go_gc_duration_seconds_count"
	spend(t, s, 100)
	bytes, before := s.metric(t, allocated), s.metric(t, counted)
	for s.metric(t, allocated) < bytes+128<<20 {
		spend(t, s, 200)
	}
	return int(s.metric(t, counted) - before)
}

// With the floor a gateway collects its garbage rarely. It has no floor if the environment has a
// setting for the collector. The bounds are far from the expected 4 and 25.
func TestHeapFloor(t *testing.T) {
	if race.Enabled {
		t.Skip("it has one goroutine, and runs without the race detector")
	}
	upstream := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(upstream.Close)
	for _, test := range []struct {
		setting  string
		min, max int
	}{
		{"", 1, 9},
		{"GOGC=100", 13, 1000},
		{"GOGC=", 13, 1000},
		{"GOMEMLIMIT=1GiB", 13, 1000},
		{"GOMEMLIMIT=off", 13, 1000},
	} {
		t.Run(test.setting, func(t *testing.T) {
			leaveCollectorAlone(t)
			if name, value, ok := strings.Cut(test.setting, "="); ok {
				t.Setenv(name, value)
			}
			s := serve(t, "limits: []", upstream.URL)
			if n := s.collections(t); n < test.min || n > test.max {
				t.Errorf("%d collections for 128 MiB, want %d to %d", n, test.min, test.max)
			}
		})
	}
}

// leaveCollectorAlone removes the settings of the collector from the environment until the test ends.
func leaveCollectorAlone(t *testing.T) {
	t.Helper()
	for _, name := range []string{"GOGC", "GOMEMLIMIT"} {
		t.Setenv(name, "") // restores the value after the test
		if err := os.Unsetenv(name); err != nil {
			t.Fatal(err)
		}
	}
}

// An idle gateway needs no more memory with the floor. A busy one needs at most twice the floor more,
// because garbage also accumulates while the collector works.
func TestHeapFloorResident(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector needs memory of its own")
	}
	upstream := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(upstream.Close)
	resident := func(setting string) (idle, busy float64) {
		leaveCollectorAlone(t)
		if setting != "" {
			t.Setenv("GOGC", setting)
		}
		s := serve(t, "limits: []", upstream.URL)
		idle = s.metric(t, "process_resident_memory_bytes")
		s.collections(t)
		return idle, s.metric(t, "process_resident_memory_bytes")
	}
	idle, busy := resident("100")
	floorIdle, floorBusy := resident("")
	t.Logf("MB without the floor: %.1f idle, %.1f busy; with it: %.1f and %.1f", idle/1e6, busy/1e6, floorIdle/1e6, floorBusy/1e6)
	if floorIdle > idle+8<<20 || floorBusy > busy+64<<20 {
		t.Errorf("MB: %.1f idle and %.1f busy with the floor, %.1f and %.1f without", floorIdle/1e6, floorBusy/1e6, idle/1e6, busy/1e6)
	}
}

// The floor does not multiply a large heap: the collector begins at twice its size.
func TestHeapFloorLargeHeap(t *testing.T) {
	leaveCollectorAlone(t)
	out, err := exec.Command("largeheap").Output()
	if err != nil {
		t.Fatal(err)
	}
	var goal uint64
	if _, err := fmt.Sscan(string(out), &goal); err != nil {
		t.Fatal(err)
	}
	if goal < 2*largeHeap || goal > 2*largeHeap+16<<20 {
		t.Errorf("the collector begins at %d MiB with a table of 250 MiB", goal>>20)
	}
}

const largeHeap = 250 << 20

// largeHeapMain is a program with the floor whose heap grows at once by a table. It prints the size at
// which the next collection begins.
func largeHeapMain() {
	command.KeepHeapFloor()
	table := make([]byte, largeHeap)
	limits := func() uint64 {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.NextGC
	}
	runtime.GC()
	testproc.Becomes(func() bool { return limits() < 3*largeHeap }) // after the finalizer
	fmt.Println(limits())
	runtime.KeepAlive(table)
}
