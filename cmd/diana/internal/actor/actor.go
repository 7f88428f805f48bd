// SPDX-License-Identifier: MIT

// Package actor shows the counters of one actor in every rule.
package actor

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/cmd/diana/internal/adminapi"
	"github.com/diana-limiter/diana/internal/plan"
	"github.com/diana-limiter/diana/limit"
	"github.com/diana-limiter/diana/rule"
)

// Limiter is what a View reads. A diana.Limiter is one.
type Limiter interface {
	EachRule(f func(name string, allowed, refused, shadowRefused, delayed int64))
	PeekActor(ctx context.Context, rule string, actor ...string) ([]diana.Explanation, []diana.Verdict, error)
}

// View answers GET /api/v1/actor. It is safe for concurrent use.
type View struct{ Limiter Limiter }

// Register adds the route to mux.
func (v *View) Register(mux *http.ServeMux) { mux.HandleFunc("GET /api/v1/actor", v.show) }

// Counter is what one rule has counted of an actor under one key.
type Counter struct {
	Rule         string     `json:"rule"`
	Key          string     `json:"key"`     // as diana explain prints it; "" if the rule counts all clients together
	Allowed      *bool      `json:"allowed"` // whether a request would be allowed now; nil: unknown
	Limit        int64      `json:"limit"`
	Remaining    *int64     `json:"remaining"`          // nil: unknown, or the rule excepts the actor
	ResetSeconds *float64   `json:"reset_seconds"`      // until the counter is as if the actor had sent nothing; nil: never, or unknown
	Spent        *int64     `json:"spent,omitempty"`    // nil: unknown, or the rule knows costs before
	Reserved     *int64     `json:"reserved,omitempty"` // by requests in flight of this gateway; nil as Spent
	Excepted     bool       `json:"excepted"`
	Override     bool       `json:"override"`
	Until        *time.Time `json:"until,omitempty"` // when the exception or the override ends; nil: never

	unused int64 // what remains of a counter that has counted nothing
}

const (
	mostCounters = 500
	mostAsked    = 64              // rules that are asked at once, most of them wait for Redis
	longest      = 5 * time.Second // for all rules together
)

// show answers with the counters of the actor in a rule, or in all rules that can count it.
func (v *View) show(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	names, only := query["actor"], query.Get("rule")
	if len(names) == 0 || names[0] == "" {
		adminapi.Problem(w, http.StatusBadRequest, "expected actor=NAME")
		return
	}
	var rules []string
	wrong := http.StatusNotFound
	v.Limiter.EachRule(func(name string, _, _, _, _ int64) {
		if rules = append(rules, name); name == only {
			wrong = http.StatusBadRequest // it is about the names
		}
	})
	if only != "" {
		rules = []string{only}
	}
	ctx, cancel := context.WithTimeout(r.Context(), longest)
	defer cancel()
	list, refused, unknown := v.counters(ctx, rules, names)
	if only != "" && refused != nil {
		adminapi.Problem(w, wrong, refused.Error())
		return
	}
	answer := struct {
		Rules   []Counter `json:"rules"`
		Total   int       `json:"total"`
		Unknown string    `json:"unknown"`
	}{list[:min(len(list), mostCounters)], len(list), ""}
	if unknown != nil {
		answer.Unknown = fmt.Sprintf("Some counters are unknown: %v", unknown)
	}
	adminapi.Answer(w, answer)
}

// counters asks the rules. Those that have counted the actor, or treat it in another way than others, come first.
// refused is why a rule cannot count such an actor, and unknown why some counters are unknown.
func (v *View) counters(ctx context.Context, rules, names []string) (list []Counter, refused, unknown error) {
	found := make([][]Counter, len(rules))
	var mu sync.Mutex
	var asking sync.WaitGroup
	next := make(chan int)
	for range min(mostAsked, len(rules)) {
		asking.Go(func() {
			for i := range next {
				explained, verdicts, err := v.Limiter.PeekActor(ctx, rules[i], names...)
				found[i] = countersOf(explained, verdicts)
				mu.Lock()
				if len(verdicts) == 0 {
					refused = cmp.Or(refused, err)
				} else {
					unknown = cmp.Or(unknown, err)
				}
				mu.Unlock()
			}
		})
	}
	for i := range rules {
		next <- i
	}
	close(next)
	asking.Wait()
	list = slices.Concat(found...)
	slices.SortStableFunc(list, func(a, b Counter) int { return cmp.Compare(b.interest(), a.interest()) })
	return append([]Counter{}, list...), refused, unknown
}

// countersOf returns the counters of one rule. Of several keys under which it has counted nothing, the first is
// enough.
func countersOf(explained []diana.Explanation, verdicts []diana.Verdict) (list []Counter) {
	for i := range verdicts {
		e := &explained[i]
		c := Counter{Rule: e.Rule.Name, Key: plan.ActorText(e.Key), Limit: e.Rule.Limit.N, Excepted: e.Excepted, Override: !e.Excepted && e.By != rule.Who{}, unused: unused(e.Rule)}
		if !e.Until.IsZero() {
			c.Until = &e.Until
		}
		v := &verdicts[i]
		if e.Excepted || v.Remaining != limit.Unknown {
			c.Allowed = &v.Allowed
		}
		if v.Remaining != limit.Unknown {
			c.Remaining = &v.Remaining
			if e.Rule.Cost.Answer != "" {
				// Reservations of requests in flight do not remain either, but nobody has spent them.
				spent := max(c.unused-v.Remaining-e.Reserved, 0)
				c.Spent, c.Reserved = &spent, &e.Reserved
			}
		}
		if v.Reset > 0 {
			seconds := float64(v.Reset) / 1e6
			c.ResetSeconds = &seconds
		}
		list = append(list, c)
	}
	counted := slices.DeleteFunc(slices.Clone(list), func(c Counter) bool { return c.interest() == 0 })
	if len(counted) > 0 || len(list) == 0 {
		return counted
	}
	return list[:1]
}

// unused returns what remains of a rule's counter that has counted nothing. A token bucket has its burst.
func unused(r *rule.Rule) int64 {
	meter, err := r.Algorithm.New(r.Limit)
	if err != nil { // the rule is in force, so its limit is valid
		return r.Limit.N
	}
	return meter.Peek(limit.State{}, 0, 0).Remaining
}

// interest is higher for a counter that an operator looks for.
func (c *Counter) interest() int {
	switch {
	case c.Allowed == nil, !*c.Allowed:
		return 3
	case c.Excepted, c.Override:
		return 2
	case c.Remaining != nil && *c.Remaining < c.unused:
		return 1
	}
	return 0
}
