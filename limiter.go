// SPDX-License-Identifier: MIT

package diana

import (
	"context"
	"log/slog"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/diana-limiter/diana/config"
	"github.com/diana-limiter/diana/limit"
	"github.com/diana-limiter/diana/memstore"
	"github.com/diana-limiter/diana/rule"
)

// Options are what a program decides about a Limiter, beside its configuration. The
// zero value is ready to use.
type Options struct {
	// Vocabulary is what the words of configurations mean. The zero value is
	// rule.Default().
	Vocabulary rule.Vocabulary

	// Logger gets one line for each change of state. Nil means slog.Default().
	Logger *slog.Logger
}

func (o Options) filled() Options {
	if len(o.Vocabulary.Algorithms) == 0 {
		o.Vocabulary = rule.Default()
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	return o
}

// Limiter judges requests by the rules of the configuration that is active. It is
// safe for concurrent use. Close ends it.
type Limiter struct {
	options    Options
	local      *memstore.Store
	active     atomic.Pointer[active]
	judgements sync.Pool

	mu      sync.Mutex        // guards the rest, and changes of active
	tallies map[string]*tally // by rule; a rule keeps its own across configurations
	reloads map[Reload]int64
	file    *watchedFile // nil if not from a file
}

// active is a configuration in force. It never changes.
type active struct {
	config   *config.Config
	set      *rule.Set
	enforced []enforced // by rule.Index
	since    time.Time
	degraded *time.Time // since when global rules are judged without Redis; nil: they are not
}

// enforced is how a rule is kept.
type enforced struct {
	counters limit.Counters // nil: it is not, every request passes
	tally    *tally
	policy   string // its member of RateLimit-Policy
	quoted   string // its name as a String of structured fields
	json     string // its name in JSON
}

// New returns a Limiter for a configuration that the caller has read.
func (o Options) New(c *config.Config) (*Limiter, error) {
	l := &Limiter{
		options: o.filled(),
		local:   memstore.New(memstore.Options{MaxKeys: c.MaxKeys}),
		reloads: map[Reload]int64{},
	}
	l.judgements.New = func() any { return &judgement{limiter: l} }
	if err := l.use(c); err != nil {
		return nil, err
	}
	return l, nil
}

// Close ends the watching of the configuration. Requests can still be judged.
func (l *Limiter) Close() error {
	l.mu.Lock()
	file := l.file
	l.file = nil
	l.mu.Unlock()
	if file != nil {
		file.close() // without the lock, which it waits for if it is just changing the configuration
	}
	return nil
}

// use makes a configuration the active one. Counters go on that mean the same.
func (l *Limiter) use(c *config.Config) error {
	set, err := rule.Compile(c.Limits, c.Identity, l.options.Vocabulary)
	if err != nil {
		return err
	}
	a := &active{config: c, set: set, since: time.Now()}
	l.mu.Lock()
	defer l.mu.Unlock()
	tallies := map[string]*tally{}
	for _, r := range set.Rules {
		tallies[r.Name] = l.tallies[r.Name]
		if tallies[r.Name] == nil {
			tallies[r.Name] = &tally{}
		}
		e := enforced{
			tally:  tallies[r.Name],
			policy: policyMember(r),
			quoted: quote(r.Name),
			json:   jsonString(r.Name),
		}
		if e.counters, err = l.counters(r); err != nil {
			l.retire(a)
			return err
		}
		a.enforced = append(a.enforced, e)
		if r.Scope == rule.Global {
			a.degraded = &a.since
		}
	}
	old := l.active.Load()
	if a.degraded != nil && old != nil && old.degraded != nil {
		a.degraded = old.degraded
	}
	l.tallies = tallies
	l.local.SetMaxKeys(c.MaxKeys)
	l.active.Store(a)
	if old != nil {
		l.retire(old)
	}
	return nil
}

func (l *Limiter) retire(a *active) {
	for _, e := range a.enforced {
		if e.counters != nil {
			l.local.Retire(e.counters)
		}
	}
}

// counters returns what a rule is counted by.
func (l *Limiter) counters(r *rule.Rule) (limit.Counters, error) {
	if r.Scope == rule.Local {
		return l.local.Counters(r.Counters, r.Meter)
	}
	// Redis is out of reach: as the only gateway seen alive, our share is the whole.
	switch r.OnError {
	case rule.Open:
		return nil, nil
	case rule.Closed:
		none := r.Limit
		none.N = 0
		m, err := r.Algorithm.New(none)
		if err != nil {
			return nil, err
		}
		return l.local.Counters("closed "+r.Counters, m)
	}
	return l.local.Counters("global "+r.Counters, r.Meter)
}

// Take judges a request and counts it, under all rules that cover it or, if one
// refuses, under none. Where a leaky bucket says so it waits for the request's turn.
//
// The error is ctx's, if ctx ended while the request waited, or that of reading the body
// of Request.HTTP. Then the request is counted nowhere, and the Decision is a refusal. The Decision must be ended with
// Done, also after an error. Take does not allocate, unless the request waits, its
// path is spelled strangely, or a cookie or query parameter is read.
func (l *Limiter) Take(ctx context.Context, r Request) (Decision, error) {
	a := l.active.Load()
	j := l.judgements.Get().(*judgement)
	j.active, j.request, j.held = a, r, false
	j.verdicts = j.verdicts[:0]
	d := Decision{Allowed: true, j: j, use: j.use.Load()}
	a.set.Find(&j.match, r.Method, r.Path)
	if len(j.match.Rules) == 0 {
		return d, nil
	}
	d.Degraded = j.fill()
	if len(j.charges) == 0 { // all rules are open
		d.Verdicts = j.verdicts
		return d, nil
	}
	if j.queues {
		if err := readSmallBody(r.HTTP); err != nil {
			d.Allowed = false
			return d, err
		}
	}
	now := l.local.Now()
	var err error
	d.Allowed, err = l.local.Take(ctx, now, j.charges)
	if err == nil && d.Allowed {
		err = j.await(ctx, now, &d)
	}
	j.report(&d, err != nil)
	return d, err
}

// Explain returns which rules would judge the request now, in their order, and the
// keys that it would be counted under. It counts nothing.
func (l *Limiter) Explain(r Request) []rule.Explanation { return l.active.Load().set.Explain(&r) }

// fill makes the charges of the request. It reports whether a global rule is
// judged without Redis.
func (j *judgement) fill() (degraded bool) {
	j.charges, j.keys, j.ends, j.judged = j.charges[:0], j.keys[:0], j.ends[:0], j.judged[:0]
	j.queues = false
	var ip netip.Addr
	haveIP := false
	for i, r := range j.match.Rules {
		degraded = degraded || r.Scope == rule.Global
		j.verdicts = append(j.verdicts, Verdict{Rule: r, Outcome: limit.Outcome{Allowed: true}})
		counters := j.active.enforced[r.Index].counters
		if counters == nil {
			continue
		}
		if _, ok := r.Meter.(limit.Queue); ok && r.Mode == rule.Enforce {
			j.queues = true
		}
		if !r.CountsAll() {
			if !haveIP {
				ip, haveIP = j.active.set.ClientIP(&j.request), true
			}
			j.keys = r.AppendKey(j.keys, &j.request, ip)
		}
		j.ends = append(j.ends, len(j.keys))
		j.judged = append(j.judged, i)
		j.charges = append(j.charges, limit.Charge{Counters: counters, Cost: 1, Shadow: r.Mode == rule.Shadow})
	}
	start := 0
	for i, end := range j.ends {
		j.charges[i].Key = j.keys[start:end]
		start = end
	}
	return degraded
}

// await waits until the request's turns have come.
func (j *judgement) await(ctx context.Context, now int64, d *Decision) error {
	for i := range j.charges {
		if j.charges[i].Outcome.Wait == 0 || j.charges[i].Shadow {
			continue
		}
		if err := j.limiter.local.Await(ctx, j.charges); err != nil {
			j.limiter.local.Give(j.charges)
			d.Allowed = false
			return err
		}
		d.Delayed = time.Duration(j.limiter.local.Now()-now) * time.Microsecond
		break
	}
	return nil
}

// report fills in the decision from the charges, and the tallies. A request whose
// caller left is in none.
func (j *judgement) report(d *Decision, left bool) {
	for i := range j.charges {
		ch := &j.charges[i]
		v := &j.verdicts[j.judged[i]]
		v.Outcome = ch.Outcome
		if left {
			continue
		}
		wait := time.Duration(v.Wait) * time.Microsecond
		t := j.active.enforced[v.Rule.Index].tally
		switch {
		case v.Refused():
			d.RetryAfter = max(d.RetryAfter, wait)
			t.refused.Add(1)
		case !v.Allowed:
			t.shadowRefused.Add(1)
		case !d.Allowed: // another rule refused: this one has not been charged
		case v.Wait > 0 && !ch.Shadow:
			t.delayed.Add(1)
		default:
			t.allowed.Add(1)
		}
		j.held = j.held || d.Allowed && v.Allowed && v.Rule.Algorithm.Held
	}
	d.Verdicts = j.verdicts
}
