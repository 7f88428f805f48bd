// SPDX-License-Identifier: MIT

package memstore

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/diana-limiter/diana/limit"
)

// perDay returns the counters of a separate rule: a request a day.
func perDay(t testing.TB, s *Store, name string) any {
	t.Helper()
	return named(t, s, name, limit.TokenBucket(), limit.Limit{N: 1, Unit: 24 * time.Hour})
}

// A flood under one rule leaves the other rules their rooms: that many of their actors have
// counters of their own.
func TestRoomOfItsOwn(t *testing.T) {
	t.Parallel()
	oneGoroutine(t)
	for _, maxKeys := range []int{400, 20_000} { // one shard, and several
		const rules = 5
		room := maxKeys / (4 * rules)
		s := New(Options{MaxKeys: maxKeys})
		now := s.Now()
		var all []any
		for i := range rules {
			all = append(all, perDay(t, s, fmt.Sprint("rule ", i)))
		}
		for i := range 3 * maxKeys {
			take(t, s, all[0], now, fmt.Sprint("flood ", i))
		}
		for i, c := range all[1:] {
			for k := range room {
				if !take(t, s, c, now, fmt.Sprint(k)) {
					t.Fatalf("max_keys %d: rule %d refused its actor %d by the overflow counter, want room for %d", maxKeys, i+1, k, room)
				}
			}
		}
		if n := s.Keys(); n > maxKeys+rules {
			t.Errorf("%d records, want at most %d and %d overflow counters", n, maxKeys, rules)
		}
	}
}

// An insert after a change of the rooms visits the families with records, and not all rules.
func TestRoomsOfManyRules(t *testing.T) {
	t.Parallel()
	const rules = 1000
	s := New(Options{MaxKeys: 4 * rules})
	var all []any
	for i := range rules {
		all = append(all, perDay(t, s, fmt.Sprint("rule ", i)))
		take(t, s, all[0], s.Now(), fmt.Sprint("actor ", i))
	}
	r := s.records.rooms
	if len(r.all) != 1 || r.roomy != rules || r.size != 1 {
		t.Errorf("%d families to visit, %d rooms of %d, want 1, and %d of 1", len(r.all), r.roomy, r.size, rules)
	}
	for _, c := range all {
		s.Retire(c)
	}
	if r.roomy != 0 {
		t.Errorf("%d rooms of retired rules", r.roomy)
	}
}

// kept is what a scan of the store finds of a family: the number of its actors' records, and
// how many of them have expired.
type kept struct{ records, expired int }

func scan(s *Store, now int64) map[*family]kept {
	all := map[*family]kept{}
	for i := range s.records.shards {
		for k := range *s.records.shards[i].table.Load() {
			r := &(*s.records.shards[i].table.Load())[k]
			meta, head := r.meta.Load(), r.head.Load()
			if meta == empty || meta == tomb {
				continue
			}
			f := s.records.families.get(meta & idMask)
			if s.records.beside(f, meta) {
				continue
			}
			n := all[f]
			n.records++
			if s.records.expired(&s.records.shards[i], meta, head, now) {
				n.expired++
			}
			all[f] = n
		}
	}
	return all
}

// admits reports by the rule of rooms.go, counted from nothing, whether a newcomer of f has room.
func admits(all map[*family]kept, inUse map[*family]bool, maxKeys int, f *family) bool {
	size, total, beyond := maxKeys/(4*len(inUse)), 0, 0
	room := func(g *family) int {
		if inUse[g] {
			return size
		}
		return 0
	}
	for g, n := range all {
		total += n.records
		beyond += max(n.records-room(g), 0)
	}
	return total < maxKeys && (all[f].records < room(f) || beyond < maxKeys-size*len(inUse))
}

// Random requests of random rules, which are added and removed while time passes and MaxKeys
// changes. A newcomer shares the overflow counter exactly if there is no room for it, even
// without the expired records of its rule and of those beyond other rules' rooms.
func TestRoomsAgainstModel(t *testing.T) {
	t.Parallel()
	algorithms := []limit.Algorithm{limit.TokenBucket(), limit.SlidingLog(), limit.Concurrency()}
	rapid.Check(t, func(t *rapid.T) {
		maxKeys := rapid.IntRange(1, 24).Draw(t, "max_keys") // so few that an insert looks at all
		now := int64(1_000_000_000)
		s := New(Options{MaxKeys: maxKeys, Clock: func() time.Time { return time.UnixMicro(now) }})
		handles := map[int][]any{} // of each rule
		var inside []limit.Charge
		openRule := func(i int) {
			m, err := algorithms[i%3].New(limit.Limit{N: 2, Unit: time.Duration(i+1) * time.Second})
			if err != nil {
				t.Fatal(err)
			}
			c, err := s.Counters(fmt.Sprint("rule ", i), m)
			if err != nil {
				t.Fatal(err)
			}
			handles[i] = append(handles[i], c)
		}
		openRule(0)
		for range rapid.IntRange(1, 150).Draw(t, "steps") {
			rule := rapid.IntRange(0, 5).Draw(t, "rule")
			switch rapid.IntRange(0, 20).Draw(t, "step") {
			case 0:
				openRule(rule)
			case 1:
				if open := handles[rule]; len(open) > 1 || len(handles) > 1 && len(open) > 0 {
					s.Retire(open[0])
					if handles[rule] = open[1:]; len(open) == 1 {
						delete(handles, rule)
					}
				}
			case 2:
				maxKeys = rapid.IntRange(1, 24).Draw(t, "max_keys")
				s.SetMaxKeys(maxKeys)
			case 3, 4:
				now += rapid.Int64Range(0, 2_000_000).Draw(t, "pause")
			case 5, 6:
				if len(inside) > 0 {
					s.Refund(inside[:1])
					inside = inside[1:]
				}
			case 7: // a flood
				for i := range rapid.IntRange(0, 2*maxKeys).Draw(t, "flood") {
					if len(handles[rule]) > 0 {
						charges := []limit.Charge{{Counters: handles[rule][0], Key: fmt.Append(nil, "flood ", i), Cost: 1}}
						if _, err := s.Take(context.Background(), now, charges); err != nil {
							t.Fatal(err)
						}
					}
				}
			default:
				if len(handles[rule]) == 0 {
					continue
				}
				c := handles[rule][0].(*counters)
				key := []byte(fmt.Sprint(rapid.IntRange(0, 40).Draw(t, "actor")))
				p := s.records.locate(c.id, s.records.hash(key))
				known := p.find()
				inUse := map[*family]bool{}
				for _, open := range handles {
					inUse[open[0].(*counters).family] = true
				}
				all := scan(s, now)
				room := admits(all, inUse, maxKeys, c.family)
				if !room {
					for g, n := range all {
						freed := n.expired
						if inUse[g] && g != c.family {
							freed = min(freed, max(n.records-maxKeys/(4*len(inUse)), 0))
						}
						all[g] = kept{records: n.records - freed}
					}
					room = admits(all, inUse, maxKeys, c.family)
				}
				charges := []limit.Charge{{Counters: c, Key: key, Cost: 1}}
				if _, err := s.Take(context.Background(), now, charges); err != nil {
					t.Fatal(err)
				}
				if want := !known && !room; charges[0].Shared != want {
					t.Fatalf("actor %s of rule %d: shared is %v, want %v; %d keys of %d", key, rule, charges[0].Shared, want, s.Keys(), maxKeys)
				}
				if c.held && charges[0].Outcome.Allowed {
					inside = append(inside, charges[0])
				}
			}
			for f, n := range scan(s, now) {
				if f.keys != n.records {
					t.Fatalf("%s: %d records are counted, %d are there", f.name, f.keys, n.records)
				}
			}
		}
	})
}

// Many goroutines insert, refund and let records expire under rules that are added and removed.
// Afterwards there are as many records as were counted, and at most MaxKeys. At no time does a
// rule have more counters of its own than that.
func TestRoomsWhileRulesChange(t *testing.T) {
	t.Parallel()
	const maxKeys, rules = 3000, 6
	var now atomic.Int64
	now.Store(1_000_000_000)
	s := New(Options{MaxKeys: maxKeys, Clock: func() time.Time { return time.UnixMicro(now.Load()) }})
	var all [rules]any
	for i := range all {
		all[i] = perDay(t, s, fmt.Sprint("rule ", i))
	}
	var wg, reloads sync.WaitGroup
	stop := make(chan struct{})
	reloads.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
				c := named(t, s, fmt.Sprint("other ", i%3), limit.TokenBucket(), limit.Limit{N: 1, Unit: time.Second})
				take(t, s, c, now.Load(), fmt.Sprint(i))
				s.Retire(c)
				now.Add(1000)
				runtime.Gosched()
				if n := s.Keys(); n > maxKeys+2*(rules+3) {
					t.Errorf("%d records, want at most %d and two a rule", n, maxKeys)
				}
			}
		}
	})
	for w := range 8 {
		wg.Go(func() {
			for i := range churn {
				take(t, s, all[(w+i)%rules], now.Load(), fmt.Sprint(i%1000, i%2*w))
			}
		})
	}
	wg.Wait()
	close(stop)
	reloads.Wait()
	total := 0
	for f, n := range scan(s, now.Load()) {
		if total += n.records; f.keys != n.records {
			t.Errorf("%s: %d records are counted, %d are there", f.name, f.keys, n.records)
		}
	}
	if total > maxKeys || total != s.records.rooms.keys {
		t.Errorf("%d records are there and %d counted, want at most %d", total, s.records.rooms.keys, maxKeys)
	}
}

// A rule with few actors finds its own expired records during another rule's flood.
func TestExpiredFreeTheirRoom(t *testing.T) {
	t.Parallel()
	oneGoroutine(t)
	const maxKeys, rules = 20_000, 100
	room := maxKeys / (4 * rules)
	s := New(Options{MaxKeys: maxKeys})
	now := s.Now()
	flood := perDay(t, s, "flood")
	few := named(t, s, "few", limit.TokenBucket(), limit.Limit{N: 1, Unit: time.Second})
	for i := range rules - 2 {
		perDay(t, s, fmt.Sprint("rule ", i))
	}
	for i := range 2 * maxKeys {
		take(t, s, flood, now, fmt.Sprint("flood ", i))
	}
	shared := 0
	const rounds = 40
	for round := range rounds {
		now += 2_000_000
		for i := range room / 2 {
			charges := []limit.Charge{{Counters: few, Key: fmt.Append(nil, round, i), Cost: 1}}
			if _, err := s.Take(context.Background(), now, charges); err != nil {
				t.Fatal(err)
			}
			if charges[0].Shared {
				shared++
			}
		}
	}
	// It is random which shards are examined.
	if all := rounds * room / 2; shared > all/20 {
		t.Errorf("%d of %d actors shared the overflow counter although half of the room has expired", shared, all)
	}
}
