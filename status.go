// SPDX-License-Identifier: MIT

package diana

import (
	"context"
	"errors"
	"time"

	"github.com/diana-limiter/diana/internal/decide"
	"github.com/diana-limiter/diana/internal/follow"
	"github.com/diana-limiter/diana/internal/minutes"
	"github.com/diana-limiter/diana/internal/plan"
	"github.com/diana-limiter/diana/rule"
)

// Status is what an operator sees of a Limiter.
type Status struct {
	Config        ConfigStatus `json:"config"`
	Degraded      bool         `json:"degraded"`                 // some rules are evaluated without their store
	DegradedSince *time.Time   `json:"degraded_since,omitempty"` // nil if it is not
	Fallback      int64        `json:"fallback"`                 // requests that were evaluated without Redis since the start
	LateDebits    int64        `json:"late_debits"`              // the sum of charges that were made without Redis and that it has received since
	UnknownCalls  int64        `json:"unknown_calls"`            // calls that failed, and whose outcome nobody can learn; they are not repeated
	LateCalls     int64        `json:"late_calls"`               // calls to Redis that had no answer in time
	Gateways      int          `json:"gateways"`                 // last seen alive, this one included
	Keys          int          `json:"keys"`                     // actors that the local store remembers
	MaxKeys       int          `json:"max_keys"`
	Evictions     int64        `json:"evictions"`
	Rules         []RuleStatus `json:"rules"`

	// SuggestedTimeout is twice the time in which Redis has answered 999 of 1,000 calls, such as "4ms". A redis.timeout
	// below it would often be too short. It and LateCalls count from when the gateway connected to Redis.
	SuggestedTimeout string `json:"suggested_timeout,omitempty"`
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

	// UnitSeconds is the unit in seconds; 0 under concurrency, which has none, and for a total. A unit
	// of the calendar, or one with a time zone, has the length of its present window.
	UnitSeconds float64 `json:"unit_seconds,omitempty"`

	Except    int `json:"except,omitempty"`          // how many entries it has
	Overrides int `json:"overrides,omitempty"`       // the same
	Ended     int `json:"overrides_ended,omitempty"` // how many of the overrides have ended

	Classes map[string]int64 `json:"classes,omitempty"` // limit of each class

	// Under adaptive concurrency Limit is that of this moment, if the rule counts all clients together, and Ceiling
	// is the largest. Baseline is the latency of the unloaded upstream in seconds, 0 if it is not known yet. Shed
	// is how many requests were refused, in shadow mode too, by the name of their priority.
	Ceiling  int64            `json:"ceiling,omitempty"`
	Baseline float64          `json:"baseline_seconds,omitempty"`
	Shed     map[string]int64 `json:"shed,omitempty"`

	// Decisions by their kind. A request that one rule refuses counts as refused under that
	// rule and under no other.
	Allowed       int64 `json:"allowed"`
	Refused       int64 `json:"refused"`
	ShadowRefused int64 `json:"shadow_refused"` // would have been refused
	Delayed       int64 `json:"delayed"`        // allowed after waiting

	// Overflow is how many requests the rule's overflow counter has evaluated, because max_keys left
	// no room for their actors. It includes requests that another rule refused.
	Overflow int64 `json:"overflow"`

	// Answer is the place of the cost in a response, see rule.Cost. DebtSaturated is
	// how many debits were larger than the counter could hold, and Unsettled how many responses had
	// no cost that could be read. RefusedReserved is how many requests it refused only because of what requests in
	// flight had reserved. All are empty if the rule knows the cost before.
	Answer        string `json:"answer,omitempty"`
	DebtSaturated int64  `json:"debt_saturated,omitempty"`
	Unsettled     int64  `json:"unsettled,omitempty"`

	RefusedReserved int64 `json:"refused_reserved,omitempty"`

	// Cost is what the rule was charged since the start. Reserved is what requests in flight of this process have
	// reserved. SpentRatio is the share of its limit, 0 to 1, that the fullest actor has spent, and SpentBy is the key of
	// this actor. This process knows it by its own requests. All are empty without Answer. In shadow mode only Cost is
	// known.
	Cost       int64   `json:"cost,omitempty"`
	Reserved   int64   `json:"reserved,omitempty"`
	SpentRatio float64 `json:"spent_ratio,omitempty"`
	SpentBy    string  `json:"spent_by,omitempty"`

	// TopRefused are the actors that the rule has refused most, in shadow mode too, the most
	// frequent first: at most 10.
	TopRefused []TopRefused `json:"top_refused"`
}

// TopRefused is an actor and how often a rule has refused it.
type TopRefused struct {
	Actor string `json:"actor"` // its key, as `diana explain` and the log write it
	Count int64  `json:"count"` // since the program started, or since the rule has its name

	// Exact reports whether Count is exact. It is an estimate if the rule has refused more actors than
	// it remembers. It is also one if a core has refused more than 32 requests in a millisecond,
	// because the rule then counts a sample.
	Exact bool `json:"exact"`
}

// Reload is a kind of event: a configuration of Source became active ("ok"), or was not valid
// or could not be read ("error").
type Reload struct{ Source, Result string }

// Refusal is the argument of Options.OnRefusal. It is called for the first refusal, or shadow refusal, of
// an actor under a rule, and then at most once a minute for the same, with the count since. In all
// it is called at most ten times a second; LeftOut counts the refusals without a call.
type Refusal struct {
	Rule   string // its name
	Actor  string // its key, as `diana explain` and the log write it
	Method string // of the latest request that is counted
	Path   string // the same, as it was sent
	Shadow bool   // the rule is in shadow mode: it has not refused the request

	// Degraded says that on_error of the rule has refused the request: Redis is unavailable, or was until just now.
	Degraded bool

	// Count is how many requests were refused since the call before for the same rule and
	// actor. It is an estimate while a core refuses more than 32 requests in a millisecond.
	Count int64

	// LeftOut is how many refusals are in no call, because there were too many. A Refusal with a
	// LeftOut has nothing else.
	LeftOut int64
}

// Summary returns the Status without its Rules. It costs little, however many rules there are.
func (l *Limiter) Summary() Status { return summary(l, l.decider.Limits()) }

// EachRule calls f for each rule, in the order of the configuration, with what RuleStatus counts since the
// program started. It costs far less than Status.
func (l *Limiter) EachRule(f func(name string, allowed, refused, shadowRefused, delayed int64)) {
	limits := l.decider.Limits()
	for i, r := range limits.Set.Rules {
		c := l.decider.Tally(limits, i)
		f(r.Name, c.Allowed, c.Refused, c.ShadowRefused, c.Delayed)
	}
}

// RuleStatus returns the state of the rule with that name. ok is false if there is none.
func (l *Limiter) RuleStatus(name string) (s RuleStatus, ok bool) {
	limits := l.decider.Limits()
	r, err := limits.Set.Named(name)
	if err != nil {
		return s, false
	}
	return newRuleStatus(l, limits, r.Index), true
}

// newStatus returns the state of a Limiter.
func newStatus(l *Limiter) Status {
	limits := l.decider.Limits()
	s := summary(l, limits)
	s.Rules = []RuleStatus{}
	for i := range limits.Set.Rules {
		s.Rules = append(s.Rules, newRuleStatus(l, limits, i))
	}
	return s
}

// summary returns the state of a Limiter without its rules.
func summary(l *Limiter, limits *decide.Limits) Status {
	a := limits.Attached.(*active)
	late, suggested := l.redis.calls()
	return Status{
		Config:        newConfigStatus(l.follower, a),
		Degraded:      limits.DegradedSince != nil,
		DegradedSince: limits.DegradedSince,
		Fallback:      l.decider.Degraded(),
		LateDebits:    l.redis.lateDebits.Load(),
		UnknownCalls:  l.redis.unknownCalls.Load(),
		LateCalls:     late,
		Gateways:      l.redis.gateways(),
		Keys:          l.local.Keys(),
		MaxKeys:       a.config.MaxKeys,
		Evictions:     l.local.Evictions(),

		SuggestedTimeout: suggested,
	}
}

// newRuleStatus returns the state of one rule.
func newRuleStatus(l *Limiter, limits *decide.Limits, index int) RuleStatus {
	r := limits.Set.Rules[index]
	counts, overflow, most := l.decider.Counts(limits, index)
	top := make([]TopRefused, len(most))
	for i, t := range most {
		top[i] = TopRefused(t)
	}
	s := RuleStatus{
		Name: r.Name, URL: r.URL.String(), Algorithm: r.Algorithm.Name(),
		Scope: r.Scope.String(), Mode: r.Mode(),
		Limit: r.Limit.N, UnitSeconds: unitSeconds(r, l.local.Now()), Except: len(r.Except), Overrides: len(r.Overrides), Ended: ended(r, l.local.Now()), Classes: classLimits(r),
		Allowed: counts.Allowed, Refused: counts.Refused, ShadowRefused: counts.ShadowRefused, Delayed: counts.Delayed,
		TopRefused: top, Overflow: overflow,
		Answer: r.Cost.Answer, DebtSaturated: counts.Saturated, Unsettled: counts.Unsettled, RefusedReserved: counts.Reserved,
	}
	if s.Answer != "" {
		s.Cost, s.Reserved, s.SpentRatio, s.SpentBy = l.decider.Spent(limits, index)
	}
	if shed := l.decider.Shed(limits, index); shed != nil {
		s.Ceiling, s.Shed = r.Limit.N, shed
		if len(r.Actor) == 0 || r.Actor[0] == rule.All {
			var base int64
			s.Limit, base = l.decider.LimitOf(limits, index)
			s.Baseline = float64(base) / 1e6
		}
	}
	return s
}

// classLimits returns the limit of each class of a rule, by its name, or nil.
func classLimits(r *plan.Rule) map[string]int64 {
	if len(r.Classes) == 0 {
		return nil
	}
	limits := make(map[string]int64, len(r.Classes))
	for _, c := range r.Classes {
		limits[c.Who.Value] = c.N
	}
	return limits
}

// unitSeconds returns the unit of a rule at a moment, or 0.
func unitSeconds(r *plan.Rule, now int64) float64 {
	unit, _ := r.UnitAt(now)
	return unit.Seconds()
}

// newConfigStatus returns where the configuration in force is from, and why.
func newConfigStatus(follower *follow.Follower, a *active) ConfigStatus {
	s := ConfigStatus{Source: a.config.Source, Version: a.config.Version, Since: a.since}
	if follower == nil {
		s.Reason, s.LastReloadSuccessful, s.LastReloadSuccess = "the program has given it", true, a.since
		return s
	}
	f := follower.Status()
	s.Reason, s.LastReloadSuccessful, s.LastReloadSuccess = f.Reason, f.Valid, f.Loaded
	s.Remote = (*RemoteStatus)(f.Remote)
	return s
}

// ended returns how many overrides of a rule have ended at a moment, in microseconds since 1970.
func ended(r *plan.Rule, now int64) (n int) {
	for _, o := range r.Overrides {
		if !o.Until.IsZero() && o.Until.UnixMicro() <= now {
			n++
		}
	}
	return n
}

// EachMinute calls f for each minute from since on, but at most for the last day, the newest first. f gets what
// all gateways with the same Redis have decided in the minute, and how many gateways have reported it. The
// counts are those of EachRule, for all rules together. So a request that several rules allow counts under
// each of them. A gateway reports within a second, and from its first decision on.
//
// The error says why there are no such counts: no Redis is configured, or it is unavailable. f may then have
// been called. EachMinute asks Redis, so it is for operators and not for requests.
func (l *Limiter) EachMinute(ctx context.Context, since time.Time, f func(at time.Time, gateways int, allowed, refused, shadowRefused, delayed int64)) error {
	n := l.redis.inUse()
	if n.store == nil {
		return errNoRedis
	}
	return n.store.EachMinute(ctx, since, f)
}

var errNoRedis = errors.New("diana: no redis is configured")

// minutes is redisstore.Options.Minutes of all stores of this gateway.
func (l *redisLink) minutes(now time.Time, f func(at time.Time, allowed, refused, shadowRefused, delayed int64)) {
	l.ledger.Note(now, l.decider.Totals())
	l.ledger.Each(now, func(at time.Time, c minutes.Counts) {
		f(at, c.Allowed, c.Refused, c.ShadowRefused, c.Delayed)
	})
}
