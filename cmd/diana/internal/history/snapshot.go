// SPDX-License-Identifier: MIT

package history

import (
	"cmp"
	"encoding/binary"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/diana-limiter/diana/cmd/diana/internal/weblog"
	"github.com/diana-limiter/diana/config"
	"github.com/diana-limiter/diana/internal/plan"
)

// Status is what GET /api/v1/recent answers.
type Status struct {
	Requests int       `json:"requests"`
	Capacity int       `json:"capacity"`
	From     time.Time `json:"from"` // the first request
	To       time.Time `json:"to"`   // and the last
	Sampled  float64   `json:"sampled"`
	Bytes    int64     `json:"bytes"`
}

// Status returns the state of the ring.
func (r *Ring) Status() Status {
	if r == nil {
		return Status{Sampled: 1}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	s := Status{
		Requests: r.count, Capacity: r.options.Requests, Bytes: int64(len(r.chunks)) * chunkSize,
		Sampled: 1 / float64(uint64(1)<<r.halved.Load()),
	}
	if n := len(r.chunks); n > 0 {
		first, last := record(r.chunks[0].data), record(r.chunks[n-1].data)
		for len(last) > last.size() {
			last = last[last.size():]
		}
		s.From, s.To = time.UnixMicro(first.at()).UTC(), time.UnixMicro(last.at()).UTC()
	}
	return s
}

// Snapshot is a copy of a ring, whose requests are in the order of their decisions.
type Snapshot struct {
	Whole     bool    // the ring has every request since the gateway has started
	Share     float64 // of the clients
	Since     int64   // the first request since the gateway takes this share
	Hashed    bool
	Oversized int64  // requests that were too large
	Running   int    // requests that have not ended
	Degraded  int    // decisions without Redis
	Started   int64  // when the gateway has started
	Client    string // the actors by which shares are chosen

	records []record
	known   map[uint64]*reads
	sets    map[*reads]*plan.Set // made by Set
	words   config.Vocabulary
	names   *weblog.Names
	labels  map[string]string // of hidden values that a configuration names
	taken   int64
	events  []event

	entry weblog.Entry // of the last call of Entry
}

// Snapshot copies the ring. It holds the lock for the copy of one chunk at a time.
func (r *Ring) Snapshot() *Snapshot {
	r.mu.Lock()
	chunks := slices.Clone(r.chunks)
	uses := make([]uint32, len(chunks))
	for i, c := range chunks {
		uses[i] = c.use
	}
	s := &Snapshot{Hashed: r.veil != nil, Started: r.started, known: map[uint64]*reads{}, sets: map[*reads]*plan.Set{}, words: r.options.Vocabulary}
	r.mu.Unlock()
	halved := uint8(0)
	for i, c := range chunks {
		r.mu.Lock()
		if c.use != uses[i] { // it has made room meanwhile
			r.mu.Unlock()
			continue
		}
		data := slices.Clone(c.data)
		r.mu.Unlock()
		for len(data) > 0 {
			one := record(data[:record(data).size()])
			halved = max(halved, one[atHalved])
			s.records, data = append(s.records, one), data[len(one):]
		}
	}
	r.mu.Lock()
	for _, of := range r.known {
		s.known[of.id] = of
	}
	halved = max(halved, uint8(r.halved.Load())) //nolint:gosec // at most mostHalved
	s.Whole, s.Oversized, s.events = !r.dropped && halved == 0 && r.oversized == 0, r.oversized, slices.Clone(r.events)
	s.taken = r.options.Now().UnixMicro()
	r.mu.Unlock()
	s.records = slices.DeleteFunc(s.records, func(one record) bool { return !one.sampled(halved) || s.known[one.reads()] == nil })
	s.Share = 1 / float64(uint64(1)<<halved)
	s.finish(r, halved)
	return s
}

// finish sorts the requests, and counts what notes are about.
func (s *Snapshot) finish(r *Ring, halved uint8) {
	s.Since = s.taken
	slices.SortStableFunc(s.records, func(a, b record) int { return cmp.Compare(a.at(), b.at()) })
	for _, one := range s.records {
		if one[atHalved] == halved {
			s.Since = min(s.Since, one.at())
		}
		if !one.has(ended) && one.has(allowed) {
			s.Running++
		}
		if one.has(degraded) {
			s.Degraded++
		}
	}
	var headers []string
	for _, of := range s.known {
		headers = append(headers, of.headers...)
	}
	slices.Sort(headers)
	s.names, s.Client = weblog.NewNames(headers), "ip"
	if of := r.reads.Load(); of != nil && of.client != nil {
		s.Client = of.client.ActorText()
	}
}

// Label has hidden values appear by the names that a configuration has for them. A network that no
// configuration in force has named stays hidden.
func (s *Snapshot) Label(r *Ring, c *config.Config) {
	s.labels = map[string]string{}
	if r.veil == nil {
		return
	}
	of := &reads{named: map[string]bool{}}
	for _, e := range c.Limits {
		for i := range e.Rules {
			of.addNames(&e.Rules[i], r.options.Vocabulary)
		}
	}
	for value := range of.named {
		s.labels[string(r.veil.appendValue(nil, value))] = value
	}
}

// Names returns the headers of the entries.
func (s *Snapshot) Names() *weblog.Names { return s.names }

// Len returns the number of requests.
func (s *Snapshot) Len() int { return len(s.records) }

// Config returns the configuration that the request with that number was decided by.
func (s *Snapshot) Config(i int) *config.Config { return s.known[s.records[i].reads()].config }

// Set returns the plan that the request with that number was decided by. It compiles the plan of each configuration
// once, so the ring needs none.
func (s *Snapshot) Set(i int) *plan.Set {
	of := s.known[s.records[i].reads()]
	if s.sets[of] == nil {
		set, err := plan.Compile(of.config.Limits, of.config.Identity, of.config.Paths, s.words.Actors)
		if err != nil {
			panic(err) // it was in force
		}
		s.sets[of] = set
	}
	return s.sets[of]
}

// Entry returns the request with that number. It is valid until the next call.
func (s *Snapshot) Entry(i int) *weblog.Entry {
	one := s.records[i]
	of := s.known[one.reads()]
	text := texts(one[fixed:])
	e := &s.entry
	actors, costs, headers, met := e.Actors, e.Costs, e.Headers, e.Met[:0]
	if actors == nil {
		actors, costs, headers = map[string]string{}, map[string]int64{}, make([]string, len(s.names.Headers))
	}
	clear(actors)
	clear(costs)
	clear(headers)
	*e = weblog.Entry{
		Start: one.at(), Response: weblog.Response{Duration: weblog.Unknown, Bytes: weblog.Unknown, Cost: weblog.Unknown}, Line: i + 1,
		Method: text.next(), Target: text.next(), Host: text.next(), Remote: text.next(),
		Actors: actors, Costs: costs, Headers: headers, Allowed: one.has(allowed),
	}
	if address := text.next(); address != "" {
		actors["ip"] = address
	}
	for _, source := range of.sources {
		if value := text.next(); value != "" {
			if label := s.labels[value]; label != "" {
				value = label
			}
			actors[source.text] = value
		}
	}
	for _, c := range of.costs {
		if n, err := strconv.ParseInt(text.next(), 10, 64); err == nil {
			costs[c.name] = n
		}
	}
	for _, name := range of.headers {
		headers[slices.Index(s.names.Headers, name)] = text.next()
	}
	if !one.has(degraded) { // otherwise the request met the limit of a gateway that is alone
		for e.Met = met; len(text) > 0; {
			n := text.number()
			e.Met = append(e.Met, weblog.Met{Allowed: n&1 > 0, Remaining: n>>1 - 1, Wait: text.number()})
		}
	}
	if one.has(allowed) {
		s.response(one)
	} else {
		e.StatusAfter = weblog.Unknown // nobody knows the latency of the upstream
	}
	return e
}

// response adds how an allowed request has ended. A refused request has no response of the upstream.
func (s *Snapshot) response(one record) {
	e := &s.entry
	e.Delayed = one.number(atDelayed)
	began := one.at() + e.Delayed
	if !one.has(ended) {
		e.Duration = max(s.taken-began, 0) + time.Second.Microseconds() // after the last request
		return
	}
	e.Duration = max(one.number(atReleased)-began, 0)
	e.Status, e.Bytes = int(binary.LittleEndian.Uint16(one[atStatus:])), one.number(atBytes)
	if at := one.number(atRefunded); at > 0 {
		e.StatusAfter = max(at-began, 1)
	}
	if at := one.number(atSettled); at > 0 {
		e.SettledAfter = max(at-began, 1)
	}
	switch n := one.number(atCost); {
	case one.has(inMilliseconds):
		e.Milliseconds = n
	case one.has(inBytes):
		e.Bytes = n
	case n > 0, e.SettledAfter > 0:
		e.Cost = n
	}
}

// texts are the texts of a record that were not read yet.
type texts []byte

func (t *texts) next() string {
	n := int(binary.LittleEndian.Uint16(*t))
	text := string((*t)[2 : 2+n])
	*t = (*t)[2+n:]
	return text
}

// number returns a number that met has written.
func (t *texts) number() int64 {
	n, size := binary.Uvarint(*t)
	*t = (*t)[size:]
	return int64(n) //nolint:gosec // it was an int64
}

// First returns when the first request was decided. Without one it returns false.
func (s *Snapshot) First() (at int64, some bool) {
	if len(s.records) == 0 {
		return math.MinInt64, false
	}
	return s.records[0].at(), true
}

// Happened returns how often an event of that kind has happened since the first request, and when at last.
func (s *Snapshot) Happened(kind string) (n int, latest int64) {
	from, _ := s.First()
	for _, e := range s.events {
		if e.kind == kind && e.at >= from {
			n, latest = n+1, e.at
		}
	}
	return n, latest
}
