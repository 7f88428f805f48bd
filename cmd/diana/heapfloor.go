// SPDX-License-Identifier: MIT

package main

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

// heapFloor is how much may be allocated before the garbage collector begins, in bytes and at least.
//
// A gateway keeps a few megabytes. By default the collector begins when as much has been allocated
// again, so a busy gateway collects its garbage all the time. With the floor the next collection
// begins at the larger of two sizes of the heap: twice what is in use, or 32 MiB above it. A large
// table of counters is collected as before.
//
// Rejected: a block of 32 MiB that nothing uses. It has the same effect without adjustments, but
// every metric and profile of the heap would contain it. Rejected: GOGC=400, because the process
// would need five times a table of 250 MB.
const heapFloor = 32 << 20

// keepHeapFloor sets the floor now and after each collection, until the process ends. It leaves the
// collector alone if the environment has a setting for it.
func keepHeapFloor() {
	for _, name := range []string{"GOGC", "GOMEMLIMIT"} {
		if _, ok := os.LookupEnv(name); ok {
			return
		}
	}
	adjustCollector(&collected{scanned: []metrics.Sample{
		{Name: "/gc/heap/live:bytes"},
		{Name: "/gc/scan/stack:bytes"},
		{Name: "/gc/scan/globals:bytes"},
	}})
}

// collected is unreachable, so the garbage collector runs its finalizer after each collection.
type collected struct{ scanned []metrics.Sample } // these make up what GOGC is a percentage of

// adjustCollector sets the percentage for the next collection, and makes itself c's finalizer again.
func adjustCollector(c *collected) {
	metrics.Read(c.scanned)
	var bytes uint64
	for i := range c.scanned {
		bytes += c.scanned[i].Value.Uint64()
	}
	debug.SetGCPercent(collectorPercent(bytes))
	runtime.SetFinalizer(c, adjustCollector)
}

// collectorPercent returns the value of GOGC under which heapFloor bytes are allocated before the next
// collection, and 100 if that is more. Go multiplies its smallest heap of 4 MiB too, so 800 is enough.
func collectorPercent(scanned uint64) int {
	return int(min(max(100, heapFloor*100/max(scanned, 1)), 800))
}
