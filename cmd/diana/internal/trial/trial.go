// SPDX-License-Identifier: MIT

// Package trial judges requests by a configuration at moments of the past, and counts what
// would become of them.
package trial

import (
	"container/heap"
	"context"
	"log/slog"
	"strings"
	"time"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/config"
	"github.com/diana-limiter/diana/rule"
)

// Trial is a configuration and the time. Nobody waits in it: who would is told for how long.
// Global rules are counted in it as well, as by one gateway that has the whole limit; so no
// Redis is asked, and no configuration centre.
type Trial struct {
	limiter *diana.Limiter
	keeps   bool // requests may stay inside
	now     time.Time
	inside  stays
	early   int64 // how many have been sent away before their time
}

// New returns a Trial of a configuration.
func New(c *config.Config, v config.Vocabulary) (*Trial, error) {
	t := &Trial{}
	for _, r := range rulesOf(c) {
		t.keeps = t.keeps || keeps(&r)
	}
	l, err := diana.Options{
		Vocabulary: v,
		Logger:     slog.New(slog.DiscardHandler),
		Now:        func() time.Time { return t.now },
	}.New(alone(c))
	t.limiter = l
	return t, err
}

// alone returns a configuration in which everything is counted by this process.
func alone(c *config.Config) *config.Config {
	a := *c
	a.Redis, a.Remote, a.Limits = nil, nil, nil
	for _, e := range c.Limits {
		rules := append([]rule.Rule(nil), e.Rules...)
		for i := range rules {
			rules[i].Scope = rule.Local
		}
		e.Rules = rules
		if e.Divert != nil { // nobody reads the file, which may be elsewhere
			d := *e.Divert
			d.File = ""
			e.Divert = &d
		}
		a.Limits = append(a.Limits, e)
	}
	return &a
}

// Take judges a request at a moment, in microseconds since the Unix epoch. It must be
// followed by Leave, before the next Take.
func (t *Trial) Take(at int64, r diana.Request) (diana.Decision, error) {
	for len(t.inside) > 0 && t.inside[0].until <= at {
		t.endFirst()
	}
	t.now = time.UnixMicro(at)
	if t.keeps { // the Decision holds on to these, which are parts of a block of the log
		r.Method, r.Path = strings.Clone(r.Method), strings.Clone(r.Path)
	}
	return t.limiter.Take(context.Background(), r) // fails only where something waits
}

// Leave tells how long a request lasts once it has waited, in microseconds, and with which
// status it is answered; 0 if that is not known.
func (t *Trial) Leave(d *diana.Decision, lasts int64, status int) {
	until := t.now.UnixMicro() + d.Delayed.Microseconds() + lasts
	if until <= t.now.UnixMicro() || !holds(d) {
		end(d, status)
		return
	}
	if len(t.inside) >= mostInside {
		t.endFirst()
		t.early++
	}
	heap.Push(&t.inside, stay{until, *d, status})
}

func (t *Trial) endFirst() {
	s := heap.Pop(&t.inside).(stay)
	end(&s.decision, s.status)
}

func end(d *diana.Decision, status int) {
	if status != 0 {
		d.SetStatus(status)
	}
	d.Done()
}

// holds reports whether a request holds something until it is finished.
func holds(d *diana.Decision) bool {
	for i := range d.Verdicts {
		if v := &d.Verdicts[i]; v.Allowed && keeps(v.Rule) {
			return d.Allowed
		}
	}
	return false
}

// keeps reports whether requests hold something under a rule until they are finished.
func keeps(r *rule.Rule) bool { return r.Algorithm.Held || len(r.Charge) > 0 }

// mostInside bounds how many requests hold places at a time; each takes some hundred bytes.
const mostInside = 1 << 16

// stay is a request that holds a place.
type stay struct {
	until    int64
	decision diana.Decision
	status   int
}

// stays is a heap, the first to end on top.
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
