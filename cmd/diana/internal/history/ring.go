// SPDX-License-Identifier: MIT

// Package history remembers the latest requests of a gateway with their decisions, so that a change of the
// configuration can be tried on them.
//
// # Memory
//
// A [Ring] has chunks of 64 KiB, in which requests are encoded one behind the other. The garbage collector
// does not look into them. When the ring is full, the oldest chunk makes room for the newest requests. So a
// ring for 100,000 requests with short paths takes about 15 MB, and no ring takes more than 64 MiB. It keeps the
// configurations of its requests too: as many of the earlier ones as have [mostRules] rules together.
//
// A request carries what it has met under its rules. So a reader knows what the dropped requests have used.
//
// # Cost
//
// A request is encoded outside of the lock, into memory that is used again. The lock is held for one copy,
// and once more when the request has ended.
package history

import (
	"encoding/binary"
	"hash/maphash"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/config"
)

const (
	chunkSize = 64 << 10
	mostBytes = 64 << 20
	mostSize  = 32 << 10 // of a request
	mostRules = 64 << 10 // of earlier configurations, which take about 1 KiB each

	covered    = 60 * time.Second // what a ring covers before it takes a share of the clients only
	mostHalved = 16               // the smallest share is 1/65536
)

// Options configure a Ring.
type Options struct {
	Requests   int  // remembered at most
	Plain      bool // clients are remembered by their names and addresses, and not by a hash
	Vocabulary config.Vocabulary
	Config     func() *config.Config // in force
	Now        func() time.Time      // nil: time.Now
}

// Ring remembers requests. It is safe for concurrent use. The zero value of a pointer remembers nothing.
type Ring struct {
	options Options
	veil    *veil
	seed    maphash.Seed
	started int64
	reads   atomic.Pointer[reads] // of the configuration in force
	next    atomic.Pointer[reads] // of the one that was accepted last
	halved  atomic.Uint32         // the share of the clients is 1/2^halved
	latest  atomic.Int64          // moment of the latest request
	scratch sync.Pool

	mu        sync.Mutex // guards the rest, and all chunks
	chunks    []*chunk   // the oldest first
	spare     *chunk     // was dropped
	count     int
	wrapped   bool // it was full
	dropped   bool // requests were dropped
	oversized int64
	steady    int      // chunks that were filled since halved has changed
	known     []*reads // of the requests in the ring
	events    []event
}

// chunk has encoded requests.
type chunk struct {
	data  []byte // of chunkSize bytes at most
	n     int    // requests
	first int64  // moment of the first one
	use   uint32 // grows when the chunk is used again
}

// event is what a reader of the ring must know beside the requests.
type event struct {
	at   int64 // microseconds since the Unix epoch
	kind string
}

// The kinds of events.
const (
	Reset   = "reset"   // the counters of an actor were reset
	Changed = "changed" // the configuration has changed
)

const mostEvents = 100

// New returns an empty Ring.
func New(o Options) *Ring {
	if o.Now == nil {
		o.Now = time.Now
	}
	r := &Ring{options: o, seed: maphash.MakeSeed(), started: o.Now().UnixMicro()}
	if !o.Plain {
		r.veil = newVeil()
	}
	r.scratch.New = func() any { return &encoder{ring: r} }
	return r
}

// place is where a request is in the ring. The zero value is nowhere.
type place struct {
	chunk  *chunk
	use    uint32
	offset uint32
}

// decided remembers a decision, which has not ended.
func (r *Ring) decided(d *diana.Decision) place {
	if r == nil || d.Request() == nil {
		return place{}
	}
	of := r.inForce()
	if key, ok := of.keyOf(d); ok && r.outside(maphash.Bytes(r.seed, key), d) { // without any memory
		return place{}
	}
	e := r.scratch.Get().(*encoder)
	defer r.scratch.Put(e)
	if !e.encode(d, of) {
		return place{}
	}
	return r.add(e)
}

// Whole reports whether the ring takes the requests of all clients, and not those of a share.
func (r *Ring) Whole() bool { return r.halved.Load() == 0 }

// outside reports whether the client with that hash does not belong to the share.
func (r *Ring) outside(hash uint64, d *diana.Decision) bool {
	if hash&(1<<r.halved.Load()-1) == 0 {
		return false
	}
	r.passed(r.moment(d))
	return true
}

// moment returns when a request was decided.
func (r *Ring) moment(d *diana.Decision) int64 {
	if charged, _, _, _ := d.Moments(); charged != 0 {
		return charged
	}
	return r.options.Now().UnixMicro()
}

// complete completes what the ring has of a request that has ended.
func (r *Ring) complete(t place, d *diana.Decision, status int, bytes int64) {
	if t.chunk == nil {
		return
	}
	_, statusAt, settled, released := d.Moments()
	if released == 0 {
		released = r.options.Now().UnixMicro()
	}
	if r := d.Request().HTTP; statusAt == 0 && r != nil && r.Context().Err() != nil {
		status = 0 // no rule has got it, because the client has disconnected
	}
	cost, unit := settledBy(d)
	r.mu.Lock()
	defer r.mu.Unlock()
	if t.chunk.use != t.use { // the chunk has other requests now
		return
	}
	one := record(t.chunk.data[t.offset:])
	one.set(atRefunded, statusAt)
	one.set(atSettled, settled)
	one.set(atReleased, released)
	one.set(atBytes, bytes)
	one.set(atCost, cost)
	binary.LittleEndian.PutUint16(one[atStatus:], uint16(status)) //nolint:gosec // a status has three digits
	one[atFlags] |= ended | unit
}

// settledBy returns what the first rule whose cost has an answer was charged by, and a flag for its unit: 0 if
// the response said the cost.
func settledBy(d *diana.Decision) (cost int64, unit byte) {
	cost, _ = d.Settled()
	for i := 0; i < len(d.Verdicts) && cost > 0; i++ {
		switch d.Verdicts[i].Rule.Cost.Answer {
		case "":
			continue
		case "duration":
			unit = inMilliseconds
		case "bytes":
			unit = inBytes
		}
		break
	}
	return cost, unit
}

// Note remembers an event.
func (r *Ring) Note(kind string) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.noteLocked(kind)
}

func (r *Ring) noteLocked(kind string) {
	if len(r.events) == mostEvents {
		r.events = append(r.events[:0], r.events[1:]...)
	}
	r.events = append(r.events, event{r.options.Now().UnixMicro(), kind})
}

// inForce returns what the configuration in force reads of a request.
func (r *Ring) inForce() *reads {
	c := r.options.Config()
	now := r.reads.Load()
	if now != nil && now.config == c {
		return now
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if now = r.reads.Load(); now == nil || now.config != c {
		if now != nil {
			r.noteLocked(Changed)
		}
		next := r.next.Load()
		if next == nil || next.config != c { // a later one was accepted already
			var err error
			if next, err = newReads(c, r.options.Vocabulary); err != nil {
				panic(err) // it is in force
			}
		}
		next.id = 1
		if n := len(r.known); n > 0 {
			next.id = r.known[n-1].id + 1
		}
		r.known = append(r.known, next)
		r.dropConfigurations()
		r.reads.Store(next)
		now = next
	}
	return now
}

// add copies an encoded request into the ring.
func (r *Ring) add(e *encoder) place {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(e.text) > mostSize {
		r.oversized++
		return place{}
	}
	c := r.room(len(e.text), record(e.text).at())
	r.latest.Store(record(e.text).at())
	offset := len(c.data)
	c.data = append(c.data, e.text...)
	c.n++
	if r.count++; r.count > r.options.Requests {
		r.wrapped = true
		r.drop()
	}
	return place{c, c.use, uint32(offset)}
}

// room returns a chunk with room for a request.
func (r *Ring) room(size int, at int64) *chunk {
	n := len(r.chunks)
	if n > 0 {
		last := r.chunks[n-1]
		quiet := r.halved.Load() > 0 && at-last.first > tooQuiet
		// The ring drops whole chunks, so a chunk has an eighth of its requests at most.
		if !quiet && len(last.data)+size <= chunkSize && last.n <= r.options.Requests/8 {
			return last
		}
		r.fit(at)
	}
	if n >= mostBytes/chunkSize {
		r.wrapped = true
		r.drop()
	}
	c := r.spare
	if r.spare = nil; c == nil {
		c = &chunk{data: make([]byte, 0, chunkSize)}
	}
	c.first = at // a chunk that is quiet for long ends early, so that fit can take a larger share
	r.chunks = append(r.chunks, c)
	return c
}

// drop drops the oldest chunk, unless it is the only one.
func (r *Ring) drop() {
	if len(r.chunks) < 2 {
		return
	}
	c := r.chunks[0]
	r.chunks = append(r.chunks[:0], r.chunks[1:]...)
	r.count -= c.n
	r.dropped = true
	c.use, c.n, c.data = c.use+1, 0, c.data[:0]
	oldest := record(r.chunks[0].data).reads()
	r.known = slices.DeleteFunc(r.known, func(of *reads) bool { return of.id < oldest })
	r.spare = c
}

// dropConfigurations drops the oldest requests of earlier configurations until those have at most mostRules together.
func (r *Ring) dropConfigurations() {
	rules := 0
	for i := len(r.known) - 2; i >= 0; i-- {
		if rules += r.known[i].rules; rules <= mostRules {
			continue
		}
		last := r.known[i].id
		r.dropped, r.known = true, slices.Delete(r.known, 0, i+1) // no reader sees a request without its configuration
		for len(r.chunks) > 1 && record(r.chunks[1].data).reads() <= last {
			r.drop()
		}
		return
	}
}

// tooQuiet is how long a share is kept that has no requests or few, in microseconds.
var tooQuiet = 4 * covered.Microseconds()

// passed takes a larger share of the clients if none of the share has come for long. at is the moment of a
// request that does not belong to it.
func (r *Ring) passed(at int64) {
	last := r.latest.Load()
	if at-last < tooQuiet || !r.latest.CompareAndSwap(last, at) {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if halved := r.halved.Load(); halved > 0 {
		r.halved.Store(halved - 1)
		r.steady = 0
	}
}

// fit changes the share of the clients when a chunk is full, so that the ring covers the time it should.
func (r *Ring) fit(at int64) {
	r.steady++
	n := min(r.steady, 8, len(r.chunks)) // one alone could be a burst, and older ones say nothing about now
	recent := r.chunks[len(r.chunks)-n:]
	requests := 0
	for _, c := range recent {
		requests += c.n
	}
	if !r.wrapped || requests == 0 {
		return
	}
	whole := min(float64(r.options.Requests)/float64(requests), float64(mostBytes/chunkSize)/float64(n))
	covers := time.Duration(float64(at-recent[0].first)*whole) * time.Microsecond
	halved := r.halved.Load()
	switch {
	case covers < covered && halved < mostHalved:
		halved++
	case covers > 4*covered && halved > 0: // twice the share then covers half of that, and does not become less at once
		halved--
	default:
		return
	}
	r.halved.Store(halved)
	r.steady = 0
}
