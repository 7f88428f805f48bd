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

// record is one actor under one rule.
type record struct{ meta, head atomic.Uint64 }

// freeze waits until no goroutine is changing the record, and freezes it.
func (r *record) freeze() uint64 {
	for spin := 0; ; spin++ {
		if h := r.head.Load(); h&locked == 0 && r.head.CompareAndSwap(h, frozen) {
			return h
		}
		pause(spin)
	}
}

// location is where a charge is counted.
type location struct {
	shard  *shard
	index  int // of the shard
	meta   uint64
	record *record // set by find and insert
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

// still reports whether the record still has p.meta. Another record can have replaced it
// between finding it and reading its head.
func (p *location) still() bool { return p.record.meta.Load() == p.meta }

// read returns the head of a plain record that was found, when no goroutine is changing it. It
// reports false if the record has moved or was replaced.
func (p *location) read() (uint64, bool) {
	if h := p.record.head.Load(); h&locked == 0 && p.still() {
		return h, true
	}
	return p.await()
}

// await is read for a record that a goroutine may be changing.
func (p *location) await() (uint64, bool) {
	for spin := 0; ; spin++ {
		h := p.record.head.Load()
		switch {
		case h == frozen || !p.still():
			return 0, false
		case h&locked == 0:
			return h, true
		}
		pause(spin)
	}
}

// lock locks a record that was found and returns its head. It reports false if the record has
// moved or was replaced. It checks that in each round: to wait for the lock of a record that now
// belongs to another actor would break the lock order.
func (p *location) lock() (uint64, bool) {
	for spin := 0; ; spin++ {
		h := p.record.head.Load()
		switch {
		case h == frozen || !p.still():
			return 0, false
		case h&locked == 0 && p.lockFrom(h):
			return h, true
		}
		pause(spin)
	}
}

// lockFrom locks a record whose head is h, unless the head has changed. A record that now belongs
// to another actor can have the same head. So lockFrom locks first and then checks the owner.
func (p *location) lockFrom(h uint64) bool {
	if !p.record.head.CompareAndSwap(h, h|locked) {
		return false
	}
	if !p.still() {
		p.record.head.Store(h)
		return false
	}
	return true
}

// unlock ends lock with a new head. If a meter uses the top bit, its counts are wrong, but no
// goroutine waits forever.
func (p *location) unlock(head uint64) { p.record.head.Store(head &^ locked) }

// pause passes the time while another goroutine works for a few nanoseconds, or longer if it
// has lost its processor.
func pause(spin int) {
	if spin > 30 {
		runtime.Gosched()
	}
}
