// SPDX-License-Identifier: MIT

package diana

import (
	"maps"
	"math/bits"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/diana-limiter/diana/config"
	"github.com/diana-limiter/diana/rule"
)

// Status is what an operator sees of a Limiter.
type Status struct {
	Config        ConfigStatus `json:"config"`
	Degraded      bool         `json:"degraded"`                 // global rules are judged without Redis
	DegradedSince *time.Time   `json:"degraded_since,omitempty"` // nil if it is not
	Fallback      int64        `json:"fallback"`                 // requests that were evaluated without Redis since the start
	Gateways      int          `json:"gateways"`                 // last seen alive, this one included
	Keys          int          `json:"keys"`                     // actors that the local store remembers
	MaxKeys       int          `json:"max_keys"`
	Evictions     int64        `json:"evictions"`
	Rules         []RuleStatus `json:"rules"`
}

// ConfigStatus tells which configuration is active.
type ConfigStatus struct {
	Source  string    `json:"source"`
	Version string    `json:"version"` // of the text: equal for equal texts
	Since   time.Time `json:"since"`
	Reason  string    `json:"reason"` // why it is this one

	// LastReloadSuccessful is false while the file or the remote configuration is not valid, or
	// cannot be read: then an earlier configuration is active.
	LastReloadSuccessful bool      `json:"last_reload_successful"`
	LastReloadSuccess    time.Time `json:"last_reload_success"` // the start, if there was none since

	Remote *RemoteStatus `json:"centre,omitempty"` // nil: none is followed
}

// RemoteStatus is the state of the remote configuration.
type RemoteStatus struct {
	URL     string    `json:"url"` // without secrets
	Reached bool      `json:"reached"`
	Since   time.Time `json:"since"`             // of Reached
	Error   string    `json:"error,omitempty"`   // why it is not reached
	Refused string    `json:"refused,omitempty"` // why the document that it holds is not in force
}

// RuleStatus is a rule and what it has decided since the program started.
type RuleStatus struct {
	Name      string `json:"name"`
	URL       string `json:"url"`
	Algorithm string `json:"algo"`
	Scope     string `json:"scope"`
	Mode      string `json:"mode"`
	Limit     int64  `json:"limit"` // requests per unit; under concurrency, at once

	// UnitSeconds is the unit in seconds; 0 under concurrency, which has none.
	UnitSeconds float64 `json:"unit_seconds,omitempty"`

	Except    int `json:"except,omitempty"`    // how many entries it has
	Overrides int `json:"overrides,omitempty"` // the same
	Counts

	// Overflow is how many requests, among all these and those that another rule refused, were
	// judged by the rule's overflow counter, because max_keys left no room for their actors.
	Overflow int64 `json:"overflow"`

	// TopRefused are the actors that the rule has refused most, in shadow mode too, the most
	// frequent first: at most 10.
	TopRefused []TopRefused `json:"top_refused"`
}

// TopRefused is an actor and how often a rule has refused it.
type TopRefused struct {
	Actor string `json:"actor"` // its key, as rule.ActorText writes it
	Count int64  `json:"count"` // since the program started, or since the rule has its name

	// Exact reports whether Count is exact. It is not if the rule has refused more actors than
	// it remembers, or a core has refused more than 32 requests in a millisecond, of which it
	// then counts a sample.
	Exact bool `json:"exact"`
}

// Counts are decisions by their kind. A request that one rule refuses counts as
// refused under that rule and under no other.
type Counts struct {
	Allowed       int64 `json:"allowed"`
	Refused       int64 `json:"refused"`
	ShadowRefused int64 `json:"shadow_refused"` // would have been refused
	Delayed       int64 `json:"delayed"`        // allowed after waiting
}

// Reload is a kind of event: a configuration of Source became active ("ok"), or was not valid
// or could not be read ("error").
type Reload struct{ Source, Result string }

// record is what is remembered of the decisions of a rule. A rule keeps it from one
// configuration to the next, so that metrics do not fall.
type record struct {
	tally   tally
	refused refused
	warned  atomic.Int64 // the moment of the last warning that actors share the overflow counter
}

// tally holds the counts of a rule. It is in parts of a cache line each, or the cores would
// take turns to count; a judgement, which one core uses most of the time, counts in one of them.
type tally []part

type part struct {
	allowed, refused, shadowRefused, delayed, overflow atomic.Int64

	_ [64 - 5*8]byte
}

// newTally has more parts than there are cores, as they are dealt out by chance, and always
// a power of two.
func newTally() tally {
	return make(tally, 1<<bits.Len(uint(min(runtime.GOMAXPROCS(0), 32))))
}

func (t tally) counts() (c Counts) {
	for i := range t {
		p := &t[i]
		c.Allowed += p.allowed.Load()
		c.Refused += p.refused.Load()
		c.ShadowRefused += p.shadowRefused.Load()
		c.Delayed += p.delayed.Load()
	}
	return c
}

func (t tally) overflow() (n int64) {
	for i := range t {
		n += t[i].overflow.Load()
	}
	return n
}

// refusals returns how many requests were refused, in shadow mode too.
func (t tally) refusals() int64 {
	c := t.counts()
	return c.Refused + c.ShadowRefused
}

// Config returns the configuration that is active. It is shared, and must not be
// changed.
func (l *Limiter) Config() *config.Config { return l.active.Load().config }

// Status returns the state of the Limiter.
func (l *Limiter) Status() Status {
	a := l.active.Load()
	s := Status{
		Config:        l.configStatus(a),
		Degraded:      a.degraded != nil,
		DegradedSince: a.degraded,
		Fallback:      l.fallback.Load(),
		Gateways:      l.gateways(),
		Keys:          l.local.Keys(),
		MaxKeys:       a.config.MaxKeys,
		Evictions:     l.local.Evictions(),
		Rules:         []RuleStatus{},
	}
	for i, r := range a.set.Rules {
		s.Rules = append(s.Rules, RuleStatus{
			Name: r.Name, URL: r.URL.String(), Algorithm: r.Algorithm.Name(),
			Scope: r.Scope.String(), Mode: r.Mode.String(),
			Limit: r.Limit.N, UnitSeconds: unitSeconds(r), Except: len(r.Except), Overrides: len(r.Overrides),
			Counts: a.enforced[i].record.tally.counts(), TopRefused: l.topRefused(a.enforced[i].record),
			Overflow: a.enforced[i].record.tally.overflow(),
		})
	}
	return s
}

// unitSeconds returns the unit of a rule, or 0.
func unitSeconds(r *rule.Rule) float64 {
	if r.Algorithm.Held {
		return 0
	}
	return r.Limit.Unit.Seconds()
}

// configStatus returns where the configuration in force is from, and why.
func (l *Limiter) configStatus(a *active) ConfigStatus {
	s := ConfigStatus{Source: a.config.Source, Version: a.config.Version, Since: a.since}
	if l.follower == nil {
		s.Reason, s.LastReloadSuccessful, s.LastReloadSuccess = "the program has given it", true, a.since
		return s
	}
	f := l.follower.Status()
	s.Reason, s.LastReloadSuccessful, s.LastReloadSuccess = f.Reason, f.Valid, f.Loaded
	s.Remote = (*RemoteStatus)(f.Remote)
	return s
}

// Reloads returns how many configurations became active, or did not, by source and result.
// Each pair that is possible is in the map from the start, so that the first reload is an
// increase. A Limiter that follows no file has none.
func (l *Limiter) Reloads() map[Reload]int64 {
	reloads := map[Reload]int64{}
	if l.follower != nil {
		for r, n := range l.follower.Status().Reloads {
			reloads[Reload(r)] = n
		}
	}
	return reloads
}

// RedisErrors returns how many calls to Redis have failed, by their kind.
func (l *Limiter) RedisErrors() map[string]int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.redisErrors)
}

func (l *Limiter) gateways() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.redis.health.Gateways
}
