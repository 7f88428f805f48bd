// SPDX-License-Identifier: MIT

package memstore

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/diana-limiter/diana/internal/race"
	"github.com/diana-limiter/diana/limit"
)

// mostGrown is the number of bytes by which the heap may grow under the attacks of this file.
const mostGrown = 50 << 20

// costly charges a cost for an actor.
func costly(t testing.TB, s *Store, c any, now int64, key string, cost int64) bool {
	t.Helper()
	ok, err := s.Take(context.Background(), now, []limit.Charge{{Counters: c, Key: []byte(key), Cost: cost}})
	if err != nil {
		t.Fatal(err)
	}
	return ok
}

// A request of a large cost needs no more memory than one of cost 1.
func TestBytesOfCost(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector's own memory is counted too")
	}
	before := heap()
	s := New(Options{})
	c := open(t, s, limit.SlidingLog(), limit.Limit{N: 65536, Unit: time.Hour})
	now := s.Now()
	for i := range 2000 {
		if !costly(t, s, c, now, fmt.Sprint(i), 65536) {
			t.Fatalf("actor %d is refused", i)
		}
	}
	grown := int64(heap() - before)
	t.Logf("2,000 requests of cost 65,536: %d bytes", grown)
	if grown > mostGrown {
		t.Errorf("2,000 requests of cost 65,536 take %d MiB, want less than %d", grown>>20, mostGrown>>20)
	}
	runtime.KeepAlive(s)
}

// Invented actors fill the table and then use up the overflow counter. Neither then nor an hour
// later does a newcomer get a block as large as the overflow's.
func TestBytesAfterOverflow(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector's own memory is counted too")
	}
	const maxKeys, n = 5000, 2000
	before := heap()
	s := New(Options{MaxKeys: maxKeys})
	c := open(t, s, limit.SlidingLog(), limit.Limit{N: n, Unit: 10 * time.Second})
	now := s.Now()
	invented, key := uint64(0), make([]byte, 8)
	newcomers := func(count int) {
		t.Helper()
		for range count {
			invented++
			binary.LittleEndian.PutUint64(key, invented)
			take(t, s, c, now, string(key))
			now += 500
		}
	}
	check := func(when string, most int64) {
		t.Helper()
		grown := int64(heap() - before)
		t.Logf("%s: %d bytes", when, grown)
		if grown > most {
			t.Errorf("%s: %d MiB, want at most %d", when, grown>>20, most>>20)
		}
	}
	newcomers(30_000) // in 15 s, so most share the overflow, and some inherit it
	check("at the end of the flood", mostGrown)
	now += time.Hour.Microseconds()
	newcomers(maxKeys / 2)
	check("an hour later", 3<<20)
	sizes := map[int]int{} // number of newcomers by number of cells
	for i := invented - maxKeys/2; i < invented; i++ {
		binary.LittleEndian.PutUint64(key, i+1)
		sizes[s.cellsOf(c, string(key))]++
	}
	t.Logf("cells of newcomers: %v", sizes)
	if own := maxKeys/2 - sizes[0]; sizes[2] < own*9/10 {
		t.Errorf("an hour later %d of %d newcomers have an ordinary block", sizes[2], own)
	}
	runtime.KeepAlive(s)
}

// cellsOf returns the number of cells of an actor's state, or 0 if it has no counter of its own.
func (s *Store) cellsOf(c any, key string) int {
	it := item{c: c.(*counters)}
	it.location = s.records.locate(it.c.id, s.records.hash([]byte(key)))
	if !it.acquire() {
		return 0
	}
	defer func() { it.unlock(it.head) }()
	return len(it.state().Cells)
}

// Logs that grow beyond the bound of the store become less exact instead. They never allow more
// than their limit, and use the memory that others no longer need.
func TestBoundOfLogs(t *testing.T) {
	t.Parallel()
	const n, actors = 1000, 60
	s := New(Options{MaxKeys: 1000})
	s.records.cells.most.Store(100_000) // words, for less than 60 logs of 1,537 and a page of each class
	c := open(t, s, limit.SlidingLog(), limit.Limit{N: n, Unit: 10 * time.Second})
	fill := func(group string, now int64) int64 {
		t.Helper()
		for range n {
			for a := range actors {
				if !take(t, s, c, now, fmt.Sprint(group, a)) {
					t.Fatalf("%s%d is refused", group, a)
				}
			}
			now++
		}
		for a := range actors {
			if take(t, s, c, now, fmt.Sprint(group, a)) {
				t.Errorf("%s%d is allowed more than %d", group, a, n)
			}
		}
		if words := s.records.cells.words; words > 100_000+pageWords {
			t.Errorf("%s: %d words, want at most 100,000 and a page", group, words)
		}
		return now
	}
	large := func(group string) (count int) {
		for a := range actors {
			if s.cellsOf(c, fmt.Sprint(group, a)) >= 1024 {
				count++
			}
		}
		return count
	}
	now := fill("a", s.Now())
	fit := large("a")
	if fit < 10 || fit == actors {
		t.Errorf("%d of %d actors have a log of the whole length, want those that fit", fit, actors)
	}
	fill("b", now+10_000_000)
	if got := large("b"); got < fit-2 {
		t.Errorf("after the first logs have expired %d actors have a log of the whole length, want %d as before", got, fit)
	}
}

// Each class of block is larger than the one before, and has room for the cells that were asked
// for.
func TestClasses(t *testing.T) {
	t.Parallel()
	for cells := 1; cells < blockWords; cells++ {
		class := classOf(cells)
		if got := cellsOf(class); got < cells || cells > 1 && cellsOf(class-1) >= cells || class >= classes {
			t.Errorf("%d cells: class %d has %d, and the one before %d", cells, class, got, cellsOf(class-1))
		}
	}
	if got := classOf(blockWords); got != whole {
		t.Errorf("class %d for %d cells, want a page", got, blockWords)
	}
}

// Blocks of any size are allocated and freed. No two share a word, and all free memory can be
// used for any size.
func TestSlab(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(1, 2))
	var b slab
	b.most.Store(1 << 20)
	held := map[uint64]int{}
	for range 5000 {
		if rnd.IntN(5) < 3 {
			cells := 1 + rnd.IntN(1<<rnd.IntN(12))
			ref, ok := b.alloc(cells, false)
			if !ok {
				continue
			}
			words := b.block(ref)
			if len(words) < 1+cells || slices.ContainsFunc(words, func(w uint64) bool { return w != 0 }) {
				t.Fatalf("a block for %d cells has %d words, or they are not zero", cells, len(words))
			}
			for i := range words {
				words[i] = ref
			}
			held[ref] = cells
			continue
		}
		for ref := range held {
			if slices.ContainsFunc(b.block(ref), func(w uint64) bool { return w != ref }) {
				t.Fatal("two blocks share a word")
			}
			b.free(ref)
			delete(held, ref)
			break
		}
	}
	for ref := range held {
		b.free(ref)
	}
	if b.words > classes*pageWords {
		t.Errorf("%d words are kept of nothing, want at most a page of each class", b.words)
	}
	if _, ok := b.alloc(1<<20-int(b.words)-1, false); !ok {
		t.Error("what is left of the bound cannot be used")
	}
	if _, ok := b.alloc(1000, false); ok {
		t.Error("a block beyond the bound")
	}
	if _, ok := b.alloc(1000, true); !ok {
		t.Error("one that must have a block has none")
	}
}
