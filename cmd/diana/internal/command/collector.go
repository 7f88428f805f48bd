// SPDX-License-Identifier: MIT

package command

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
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

// KeepHeapFloor sets the floor now and after each collection, until the process ends.
func KeepHeapFloor() {
	if !tunesCollector() {
		return
	}
	adjustCollector(&collected{scanned: []metrics.Sample{
		{Name: "/gc/heap/live:bytes"},
		{Name: "/gc/scan/stack:bytes"},
		{Name: "/gc/scan/globals:bytes"},
	}})
}

// tunesCollector reports whether the environment leaves the collector to Diana, because it has no setting for it.
func tunesCollector() bool {
	for _, name := range []string{"GOGC", "GOMEMLIMIT"} {
		if _, ok := os.LookupEnv(name); ok {
			return false
		}
	}
	return true
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
	frugal.Lock()
	least := uint64(usualPercent)
	if frugal.now {
		least = frugalPercent
	}
	debug.SetGCPercent(collectorPercent(bytes, least))
	frugal.Unlock()
	runtime.SetFinalizer(c, adjustCollector)
}

// collectorPercent returns the value of GOGC under which heapFloor bytes are allocated before the next
// collection, and least if that is more. Go multiplies its smallest heap of 4 MiB too, so 800 is enough.
func collectorPercent(scanned, least uint64) int {
	return int(min(max(least, heapFloor*100/max(scanned, 1)), 800))
}

// Reading a large text needs many times its size for a moment. So Diana reads one such text at a time,
// and collects the garbage more often meanwhile, but no more often than heapFloor says. Then the system gets the memory.
const (
	largeText     = 64 << 10 // bytes
	usualPercent  = 100      // of GOGC, at least
	frugalPercent = 25       // the same, meanwhile
)

var largeTexts sync.Mutex // held while one is read

var frugal struct {
	sync.Mutex
	now bool // a large text is read
}

// readFrugally is Vocabulary.Reading.
func readFrugally(size int) (done func()) {
	if size < largeText {
		return func() {}
	}
	largeTexts.Lock()
	if !tunesCollector() {
		return largeTexts.Unlock
	}
	runtime.GC() // at the smaller goal, each request that allocates memory would collect garbage first
	usual := setFrugal(true, frugalPercent)
	return func() {
		setFrugal(false, usual)
		debug.FreeOSMemory() // and KeepHeapFloor adjusts the percentage
		largeTexts.Unlock()
	}
}

func setFrugal(now bool, percent int) (before int) {
	frugal.Lock()
	defer frugal.Unlock()
	frugal.now = now
	return debug.SetGCPercent(percent)
}
