// SPDX-License-Identifier: MIT

package memstore

import (
	"strconv"
	"testing"
	"time"

	"github.com/diana-limiter/diana/limit"
)

// A record never becomes that of another actor. Otherwise a goroutine that has found the record, and
// replaces its head in one step, could charge that actor.
func TestRemovedRecordStaysRemoved(t *testing.T) {
	t.Parallel()
	s := New(Options{MaxKeys: 8})
	c := open(t, s, limit.TokenBucket(), limit.Limit{N: 1, Unit: time.Second})
	now := s.Now()
	take(t, s, c, now, "first")
	p := s.records.locate(c.(*counters).id, s.records.hash([]byte("first")))
	if !p.find() {
		t.Fatal("the actor has no record")
	}
	for i := range 200 {
		now += time.Minute.Microseconds()
		take(t, s, c, now, strconv.Itoa(i))
		if meta := p.record.meta.Load(); meta != p.meta && meta != tomb {
			t.Fatalf("after %d more actors the record has meta %#x, want %#x or that of a removed record", i+1, meta, p.meta)
		}
	}
	if head := p.head.Load(); head != frozen {
		t.Errorf("the head of the removed record is %#x, want it frozen", head)
	}
	if _, ok := p.lock(); ok {
		t.Error("a removed record was locked")
	}
}
