// SPDX-License-Identifier: MIT

package memstore

import (
	"cmp"
	"runtime"
	"sync/atomic"
)

// Values of a head that are no state.
const (
	locked = uint64(1) << 63 // this bit: someone is changing the record
	frozen = ^uint64(0)      // the record has moved, or is being replaced
)

// record is one actor under one rule. It never becomes that of another actor: until its table is
// replaced, a removed record stays removed, and its head frozen. So a goroutine that has found a record
// and changes its head in one step changes the right one.
type record struct{ meta, head atomic.Uint64 }

// goneRecord stands for each record that is missing in a Store that has handed over.
var goneRecord = func() (r record) { r.head.Store(frozen); return }()

// read returns the head, when no goroutine is changing the record. It reports false if the record has
// moved or was removed.
func (r *record) read() (uint64, bool) {
	for spin := 0; ; spin++ {
		h := r.head.Load()
		if h&locked == 0 || h == frozen {
			return h, h != frozen
		}
		pause(spin)
	}
}

// lock locks the record and returns its head. It reports false if the record has moved or was
// removed.
func (r *record) lock() (uint64, bool) {
	for {
		h, ok := r.read()
		if !ok || r.lockFrom(h) {
			return h, ok
		}
	}
}

// lockFrom locks a record whose head is h, unless the head has changed.
func (r *record) lockFrom(h uint64) bool { return r.head.CompareAndSwap(h, h|locked) }

// unlock ends lock with a new head. If a meter uses the top bit, its counts are wrong, but no
// goroutine waits forever.
func (r *record) unlock(head uint64) { r.head.Store(head &^ locked) }

// freeze waits until no goroutine is changing the record, and freezes it.
func (r *record) freeze() uint64 {
	for {
		if h, _ := r.read(); r.head.CompareAndSwap(h, frozen) {
			return h
		}
	}
}

// pause passes the time while another goroutine works for a few nanoseconds, or longer if it
// has lost its processor.
func pause(spin int) {
	if spin > 30 {
		runtime.Gosched()
	}
}

// location is where a charge is counted.
type location struct {
	shard   *shard
	index   int // of the shard
	meta    uint64
	*record // set by find and insert
}

// compare orders locations in the same way for all callers.
func (p *location) compare(q *location) int {
	return cmp.Or(cmp.Compare(p.index, q.index), cmp.Compare(p.meta, q.meta))
}

// find searches the record and reports whether it exists. It takes no lock.
func (p *location) find() bool {
	p.record = p.shard.find(p.meta)
	return p.record != nil
}
