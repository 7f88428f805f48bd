// SPDX-License-Identifier: MIT

package command

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"testing"
)

func TestCollectorPercent(t *testing.T) {
	t.Parallel()
	for scanned, want := range map[uint64]int{
		0: 800, 1 << 20: 800, 4 << 20: 800, 8 << 20: 400, 31 << 20: 103, 32 << 20: 100, 250 << 20: 100, 1 << 40: 100,
	} {
		if got := collectorPercent(scanned, usualPercent); got != want {
			t.Errorf("%d bytes: %d, want %d", scanned, got, want)
		}
	}
}

// If the heap is at its goal, Go has each goroutine that allocates memory collect garbage first. In a gateway of 100,000
// rules, requests had to wait for 100 ms.
func TestReadFrugally(t *testing.T) {
	if !tunesCollector() {
		t.Skip("GOGC or GOMEMLIMIT is set")
	}
	t.Cleanup(func() { debug.SetGCPercent(usualPercent) })
	debug.SetGCPercent(usualPercent)
	var used, garbage []byte
	used = make([]byte, 32<<20)
	runtime.GC()
	for range 20 {
		garbage = make([]byte, 1<<20)
	}
	done := readFrugally(largeText)
	defer done()
	heap := []metrics.Sample{{Name: "/gc/heap/goal:bytes"}, {Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(heap)
	if goal, objects := heap[0].Value.Uint64(), heap[1].Value.Uint64(); goal < objects+objects/10 {
		t.Errorf("the heap has %d bytes, and its goal is %d: no room", objects, goal)
	}
	runtime.KeepAlive(used)
	runtime.KeepAlive(garbage)
}
