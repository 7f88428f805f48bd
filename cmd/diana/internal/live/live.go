// SPDX-License-Identifier: MIT

// Package live knows what the gateway decides now, and what it has decided in the last ten minutes.
//
// A [Live] reads the counts of all rules once a second:
//
//	rates.go     seconds, minutes, and ten minutes of each rule that refuses
//	events.go    the time line: changes of the configuration, of Redis and of the remote configuration
//	refused.go   the most refused actors of all rules
//	tightest.go  what is left for the actor of a rule that has least
//	fleet.go     the minutes of the last day, of all gateways
//	snapshot.go  the rest as JSON
//	stream.go    a snapshot each second, as server-sent events
//
// Its memory has a bound: 1.5 MB, about 170 bytes for each rule, and 240 more for each that has refused a request
// within ten minutes. Rules that are gone count too, up to as many as there are and 1,000 more.
package live

import (
	"context"
	"sync"
	"time"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/config"
)

// Limiter is what a Live reads. A diana.Limiter is one.
type Limiter interface {
	Summary() diana.Status
	EachRule(f func(name string, allowed, refused, shadowRefused, delayed int64))
	EachMinute(ctx context.Context, since time.Time, f func(at time.Time, gateways int, allowed, refused, shadowRefused, delayed int64)) error
	RuleStatus(name string) (diana.RuleStatus, bool)
	PeekActor(ctx context.Context, rule string, actor ...string) ([]diana.Explanation, []diana.Verdict, error)
	Config() *config.Config
}

// Options say what a Live shows beside the decisions.
type Options struct {
	Limiter Limiter
	Version string       // of the program
	Memory  func() int64 // bytes of the process
	Recent  func() any   // of the requests that the gateway remembers, as JSON; nil: none
}

// Live is what an operator sees of a gateway now. Make one with New. It is safe for concurrent use.
type Live struct {
	options Options
	streams streams
	fleet   fleet

	mu      sync.Mutex // guards the rest
	history history
	events  events
	refused refused
	before  *config.Config // in force at the latest sample
	state   diana.Status   // of the latest sample
}

// New returns a Live. It samples nothing before Run.
func New(o Options) *Live { return &Live{options: o} }

// Run samples the limiter once a second until ctx ends, and then ends all streams.
func (l *Live) Run(ctx context.Context) {
	defer l.streams.close()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	l.sample(time.Now())
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			l.sample(now)
			l.streams.send(l.encoded)
		}
	}
}

// sample reads all counts.
func (l *Live) sample(now time.Time) {
	state, inForce := l.options.Limiter.Summary(), l.options.Limiter.Config()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.history.begin(now)
	l.options.Limiter.EachRule(func(name string, allowed, refused, shadow, delayed int64) {
		l.history.count(name, counts{Allowed: allowed, Refused: refused, ShadowRefused: shadow, Delayed: delayed})
	})
	l.history.end()
	l.events.compare(now, &l.state, &state, l.before, inForce)
	l.state, l.before = state, inForce
	if l.streams.any() || l.refused.due(now) {
		l.refused.measure(now, l.history.refusing(), l.options.Limiter.RuleStatus)
	}
}

// Reset notes in the time line that the counter of an actor was reset.
func (l *Live) Reset(rule, actor string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events.add(time.Now(), "reset", rule+": "+actor)
}
