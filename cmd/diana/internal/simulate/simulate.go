// SPDX-License-Identifier: MIT

// Package simulate evaluates requests of the past under a configuration, and counts what it
// would have decided.
package simulate

import (
	"container/heap"
	"context"
	"log/slog"
	"strings"
	"time"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/cmd/diana/internal/weblog"
	"github.com/diana-limiter/diana/config"
	"github.com/diana-limiter/diana/rule"
)

// Simulation is a limiter with a clock of its own. No request waits: the Decision says for how
// long it would have. The simulation counts global rules itself, as one gateway with the whole
// limit. So it asks neither Redis nor a configuration centre.
type Simulation struct {
	limiter *diana.Limiter
	keeps   bool // some rule keeps something of a request until it ends, see keeps
	now     time.Time
	inside  stays
	early   int64 // how many were ended too early, because of mostInside
}

// New returns a Simulation of a configuration.
func New(c *config.Config, v config.Vocabulary) (*Simulation, error) {
	s := &Simulation{}
	for _, r := range rulesOf(c) {
		s.keeps = s.keeps || keeps(&r)
	}
	l, err := diana.Options{
		Vocabulary: v,
		Logger:     slog.New(slog.DiscardHandler),
		Now:        func() time.Time { return s.now },
	}.New(alone(c))
	s.limiter = l
	return s, err
}

// alone returns the configuration with every rule local, and without Redis and remote.
func alone(c *config.Config) *config.Config {
	a := *c
	a.Redis, a.Remote, a.Limits = nil, nil, nil
	for _, e := range c.Limits {
		rules := append([]rule.Rule(nil), e.Rules...)
		for i := range rules {
			rules[i].Scope = rule.Local
		}
		e.Rules = rules
		if e.Divert != nil && e.Divert.File != "" { // it is not needed, and may not exist on this machine
			d := *e.Divert
			d.File, d.Body = "", "in place of the file"
			e.Divert = &d
		}
		a.Limits = append(a.Limits, e)
	}
	return &a
}

// Take evaluates a request at a time in microseconds since the Unix epoch. The caller must call
// Leave before the next Take.
func (s *Simulation) Take(at int64, r diana.Request) (diana.Decision, error) {
	s.advance(at)
	if s.keeps { // the Decision keeps these, which are parts of a block of the log
		r.Method, r.Path = strings.Clone(r.Method), strings.Clone(r.Path)
	}
	return s.limiter.Take(context.Background(), r) // fails only if a request waits
}

// advance ends what ends before a moment, and sets the clock to it.
func (s *Simulation) advance(at int64) {
	for len(s.inside) > 0 && s.inside[0].until <= at {
		s.endFirst()
	}
	s.now = time.UnixMicro(at)
}

// Response is the response to a request, as far as it is known.
type Response struct {
	Lasts  int64 // microseconds that the request runs after its wait
	Status int   // 0: unknown
	Bytes  int64 // weblog.Unknown: unknown
	Cost   int64 // what the response says it has cost; weblog.Unknown: unknown

	Milliseconds int64 // the duration that the gateway has charged for; 0: what Lasts says

	// When the status and the cost were known, in microseconds; 0: at the end.
	StatusAfter, SettledAfter int64
}

// Leave ends a request with a response.
func (s *Simulation) Leave(d *diana.Decision, r Response) {
	until := s.now.UnixMicro() + d.Delayed.Microseconds() + r.Lasts
	if until <= s.now.UnixMicro() || !holds(d) {
		r.end(d)
		return
	}
	if len(s.inside) >= mostInside {
		s.endFirst()
		s.early++
	}
	began := until - r.Lasts
	heap.Push(&s.inside, stay{r.next(began, until), began, until, *d, r})
}

func (s *Simulation) endFirst() {
	first := heap.Pop(&s.inside).(stay)
	if now := time.UnixMicro(first.until); now.After(s.now) {
		s.now = now // the moment of what the response costs
	}
	r := &first.response
	switch {
	case r.StatusAfter > 0 && first.until == first.began+r.StatusAfter:
		r.setStatus(&first.decision)
		r.StatusAfter = 0
	case r.SettledAfter > 0 && first.until == first.began+r.SettledAfter:
		r.settle(&first.decision)
		r.SettledAfter = 0
	default:
		r.end(&first.decision)
		return
	}
	first.until = r.next(first.began, first.end)
	heap.Push(&s.inside, first)
}

// next returns when the next part of a response comes. began is when the wait of its request ended.
func (r *Response) next(began, end int64) int64 {
	next := end
	for _, after := range [...]int64{r.StatusAfter, r.SettledAfter} {
		if at := began + after; after > 0 && at < next {
			next = at
		}
	}
	return next
}

// end ends a request. Parts of the response that are not known yet come first.
func (r *Response) end(d *diana.Decision) {
	r.setStatus(d)
	r.settle(d)
	d.Done()
}

// setStatus tells the status. Telling it twice does nothing.
func (r *Response) setStatus(d *diana.Decision) {
	if r.Status != 0 {
		d.SetStatus(r.Status)
	}
}

// settle tells the cost. Telling it twice does nothing.
func (r *Response) settle(d *diana.Decision) {
	for i := range d.Verdicts {
		if of := d.Verdicts[i].Rule; of.Cost.Answer != "" {
			if n := r.cost(of.Cost.Answer); n != weblog.Unknown {
				d.Settle(n, of.Name)
			}
		}
	}
}

// cost returns the cost of a response, or weblog.Unknown. answer is that of a rule.Cost.
func (r *Response) cost(answer string) int64 {
	switch answer {
	case "duration":
		if r.Milliseconds > 0 {
			return r.Milliseconds
		}
		return (r.Lasts + 999) / 1000
	case "bytes":
		return r.Bytes
	}
	return r.Cost
}

// holds reports whether some rule keeps something of an allowed request until it ends.
func holds(d *diana.Decision) bool {
	for i := range d.Verdicts {
		if v := &d.Verdicts[i]; v.Allowed && keeps(v.Rule) {
			return d.Allowed
		}
	}
	return false
}

// keeps reports whether a rule keeps something of a request until it ends: a slot, or a charge
// that depends on the answer.
func keeps(r *rule.Rule) bool {
	return r.Algorithm.Held || len(r.Charge) > 0 || r.Cost.Answer != ""
}

// mostInside bounds the requests in flight, each of which takes a few hundred bytes.
const mostInside = 1 << 16

// stay is a request in flight.
type stay struct {
	until    int64 // when its next part comes
	began    int64
	end      int64
	decision diana.Decision
	response Response
}

// stays is a heap whose root ends first.
type stays []stay

func (s stays) Len() int           { return len(s) }
func (s stays) Less(i, j int) bool { return s[i].until < s[j].until }
func (s stays) Swap(i, j int)      { s[i], s[j] = s[j], s[i] }
func (s *stays) Push(x any)        { *s = append(*s, x.(stay)) }

func (s *stays) Pop() any {
	last := (*s)[len(*s)-1]
	*s = (*s)[:len(*s)-1]
	return last
}
