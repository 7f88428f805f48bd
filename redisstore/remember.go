// SPDX-License-Identifier: MIT

package redisstore

import (
	"container/list"
	"sync"
	"time"
	"unique"

	"github.com/diana-limiter/diana/limit"
)

// A gateway remembers the newest states that it got from Redis, each with its moment by Redis' clock. After a loss
// the gateways put them back, see driver.lua. The newest state of a counter wins, whoever has it, because each charge
// is in the state of the gateway that made it.
//
//	Redis      700          lost        500          700 + 1
//	gateway A   '-- 500 at 1               put back 500 at 1, charge 1
//	gateway B   '-- 700 at 2               '-- put back 700 at 2: replaces 500, and keeps the 1 charged since
//
// The gateway that notices a loss makes an epoch. Redis refuses calls of gateways that do not know it, and each
// heartbeat has it. When a gateway learns of it, the states that it used last go back before requests ask Redis
// again. The others follow, or go along with the next call for their counter.
//
// Only calls that change something bring states, because only these notice a loss.
//
// An operator who deletes a key makes no epoch, so nobody puts it back. A reset erases what gateways remember as
// they read it. So a loss less than a second after a reset may undo it.

// restoreTime is how long after a loss states are put back, as in driver.lua.
const restoreTime = 10 * time.Second

// usualRemember is how much memory states take if Options.Remember is 0.
const usualRemember = 16 << 20

// memoSize is what a remembered state takes beside its key and value.
const memoSize = 272

// memory is the states that a gateway remembers. Each rule has an equal room, and can use
// the room that other rules leave.
type memory struct {
	most int64 // bytes

	mu    sync.Mutex // guards the rest
	size  int64
	by    map[actor]*list.Element // of a *memo
	rules map[unique.Handle[string]]*rule
}

// rule is the states of one rule, the last used first.
type rule struct {
	size  int64
	memos list.List
}

// memo is a state as Redis last confirmed it.
type memo struct {
	actor
	value string // empty: only how much is used is known
	at    int64  // by Redis' clock
	base  int64  // the moment of its base; -1: it had none
	epoch int64  // in which Redis had it
	used  int64
	seen  int64 // when that was used
	lost  int64 // used in an earlier epoch
	back  int64 // until when lost counts, because other gateways are putting it back
	end   int64 // until when it counts, by Redis' clock; 0: always
	told  any   // whom Left has told it last
	cut   int64 // when the counters of such a one were last reduced, by its clock; 0: never
}

// rank is how new the state is to a later epoch, see driver.lua. If all gateways have had the time to put back what they
// remembered, it lacks nothing.
func (m *memo) rank(epoch int64) int64 {
	if m.base < 0 || epoch-m.epoch > restoreTime.Microseconds() {
		return m.at
	}
	return m.base
}

// usedAt returns how much is used at a moment, as far as it is known. All counts as charged when it was seen.
func (m *memo) usedAt(c *counters, now int64) (n int64) {
	if m.end == 0 || m.end > now {
		n = accountOf(c, m.seen, m.used).counts(now)
	}
	if m.back > now {
		n = max(n, m.lost)
	}
	return n
}

func (m *memo) size() int64 { return int64(memoSize + len(m.key) + len(m.value)) }

func newMemory(o Options) *memory {
	m := &memory{most: o.Remember, by: map[actor]*list.Element{}, rules: map[unique.Handle[string]]*rule{}}
	if m.most == 0 {
		m.most = usualRemember
	}
	return m
}

func (m *memory) on() bool { return m.most > 0 }

// note remembers the states that a call has brought, one for each of its keys. uses has for each how much is used,
// until when it counts, and the moment of its base.
func (m *memory) note(b *batch, values []string, uses []int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range values {
		next := memo{actor: b.keys[i].actor, value: values[i], at: b.reply[0], epoch: b.epoch}
		if e, ok := m.by[next.actor]; ok {
			n := e.Value.(*memo)
			if n.epoch > b.epoch || n.epoch == b.epoch && n.at > next.at {
				continue // a later call was faster
			}
			next.cut, next.lost, next.back = n.cut, n.lost, n.back
			if n.epoch < b.epoch {
				next.lost, next.back = n.usedAt(b.keys[i].c, next.at), next.at+restoreTime.Microseconds()
			}
			m.removeLocked(e)
		}
		if next.value != "" {
			u := uses[3*i:]
			next.used, next.seen, next.end, next.base = u[0], next.at, u[1], u[2]
			m.addLocked(&next)
		}
	}
}

func (m *memory) addLocked(n *memo) {
	r := m.rules[n.name]
	if r == nil {
		r = &rule{}
		m.rules[n.name] = r
	}
	m.by[n.actor] = r.memos.PushFront(n)
	r.size += n.size()
	m.size += n.size()
	for m.size > m.most {
		from := r
		if r.size <= m.most/int64(len(m.rules)) {
			for _, other := range m.rules {
				if other.size > from.size {
					from = other
				}
			}
		}
		m.removeLocked(from.memos.Back())
	}
}

func (m *memory) removeLocked(e *list.Element) {
	n := e.Value.(*memo)
	r := m.rules[n.name]
	r.memos.Remove(e)
	r.size -= n.size()
	m.size -= n.size()
	delete(m.by, n.actor)
	if r.memos.Len() == 0 {
		delete(m.rules, n.name)
	}
}

// forget forgets the state of an actor that was reset at a moment.
func (m *memory) forget(a actor, at int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e, ok := m.by[a]; ok && e.Value.(*memo).at <= at {
		m.removeLocked(e)
	}
}

// refused remembers what Redis has left an actor that it refused at a moment. A refusal brings no state, and tells only
// when the next request becomes available. So what is used counts as if all of it was used at that moment.
func (m *memory) refused(b *batch, ch *limit.Charge) {
	c := ch.Counters.(*counters)
	now := b.reply[0]
	used := c.meter.Peek(limit.State{}, now, 1).Remaining - ch.Outcome.Remaining
	a, until := actor{c.name, string(ch.Key)}, now+ch.Outcome.Reset
	m.mu.Lock()
	defer m.mu.Unlock()
	e, ok := m.by[a]
	if ok && e.Value.(*memo).at > now {
		return
	}
	if !ok || e.Value.(*memo).end != until { // equal: a window, of which all ends then
		until = c.meter.Expiry(accountOf(c, now, used).state)
	}
	if !ok {
		m.addLocked(&memo{actor: a, at: now, base: -1, epoch: b.epoch, used: used, seen: now, end: until})
		return
	}
	n := e.Value.(*memo)
	n.used, n.seen, n.end, n.told = used, now, until, nil
}

// Left tells what a limit leaves an actor by what Redis confirmed last. It does nothing if that is not remembered, counts no
// longer, or the same counters have it already. So a caller that decides alone reduces its own counter once. Calls
// for one counter wait until reduce has returned, so that none uses its counter before. reduce returns when it has
// reduced the counter, or 0 if it need not.
func (s *Store) Left(h any, key []byte, told any, reduce func(left int64) (at int64)) {
	c := h.(*counters)
	now := s.now()
	s.memory.mu.Lock()
	defer s.memory.mu.Unlock()
	e, ok := s.memory.by[actor{c.name, string(key)}]
	if !ok {
		return
	}
	n := e.Value.(*memo)
	if n.told == told || n.end != 0 && n.end <= now {
		return
	}
	n.told = told
	if at := reduce(max(c.meter.Peek(limit.State{}, now, 1).Remaining-n.usedAt(c, now), 0)); at != 0 {
		n.cut = at
	}
}

// Unreduced calls do, unless Left has let a caller reduce its counter of an actor at since or later. Calls of Left wait
// until do has returned.
func (s *Store) Unreduced(h any, key []byte, since int64, do func()) {
	s.memory.mu.Lock()
	defer s.memory.mu.Unlock()
	if e, ok := s.memory.by[actor{h.(*counters).name, string(key)}]; ok && e.Value.(*memo).cut >= since {
		return
	}
	do()
}

// lost returns the state of an actor if Redis had it in an earlier epoch only, or nil.
func (m *memory) lost(a actor, epoch int64) *memo {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e, ok := m.by[a]; ok && e.Value.(*memo).value != "" && e.Value.(*memo).epoch < epoch {
		return e.Value.(*memo)
	}
	return nil
}

// allLost returns the actors whose states Redis had in earlier epochs only. The last used of each rule come first.
// epoch returns that of an actor.
func (m *memory) allLost(epoch func(actor) int64) (all []actor) {
	m.mu.Lock()
	defer m.mu.Unlock()
	next := make([]*list.Element, 0, len(m.rules))
	for _, r := range m.rules {
		next = append(next, r.memos.Front())
	}
	for len(next) > 0 {
		rest := next[:0]
		for _, e := range next {
			if n := e.Value.(*memo); n.value != "" && n.epoch < epoch(n.actor) {
				all = append(all, n.actor)
			}
			if e = e.Next(); e != nil {
				rest = append(rest, e)
			}
		}
		next = rest
	}
	return all
}

// restore is a state that a batch puts back.
type restore struct {
	key, limit int32
	memo       *memo
}

// addRestores adds what the gateway remembers of the batch's counters. The batcher's lock is held.
func (b *batch) addRestores() {
	m := b.batcher.store.memory
	for i := range b.keys {
		k := &b.keys[i]
		if n := m.lost(k.actor, b.epoch); n != nil {
			b.restores = append(b.restores, restore{int32(i + 1), b.limit(k.c), n})
		}
	}
}

// restoreAll puts back all states that Redis has lost. It returns when the first ones are back, and does the rest in
// the background, in at most a fifth of the time.
func (s *Store) restoreAll() error {
	lost := s.memory.allLost(func(a actor) int64 {
		c := s.newest(a)
		if c == nil {
			return 0
		}
		return s.batchers.batcher(&limit.Charge{Counters: c, Key: []byte(a.key)}).receipts.epoch.Load()
	})
	first := min(len(lost), restoreFirst)
	if err := s.restore(lost[:first]); err != nil {
		return err
	}
	end := time.Now().Add(restoreTime)
	s.done.Go(func() {
		for rest := lost[first:]; len(rest) > 0 && time.Now().Before(end); {
			some := rest[:min(len(rest), renewAtOnce)]
			begin := time.Now()
			if s.restore(some) != nil {
				break // the probe that follows puts back what is left
			}
			rest = rest[len(some):]
			select {
			case <-time.After(4 * time.Since(begin)):
			case <-s.stop:
				return
			}
		}
	})
	return nil
}

// restoreFirst is how many states go back before requests ask Redis again. It takes Redis a few milliseconds.
const restoreFirst = 1024

// newest returns the handle of an actor's counters, or nil if no rule has them any more.
func (s *Store) newest(a actor) *counters {
	if c, ok := s.named.Load(a.name.Value()); ok {
		return c.(*counters)
	}
	return nil
}

// restore puts back the states of some actors.
func (s *Store) restore(some []actor) error {
	batches := map[*batch]bool{}
	for _, a := range some {
		c := s.newest(a)
		if c == nil {
			continue // no rule has it any more
		}
		ch := limit.Charge{Counters: c, Key: []byte(a.key)}
		if b := s.batchers.batcher(&ch).add(func(b *batch) {
			b.urgent = true
			b.key(&ch)
			b.reminds++
		}); b != nil {
			batches[b] = true
		}
	}
	return wait(batches)
}
