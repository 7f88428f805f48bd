// SPDX-License-Identifier: MIT

package diana

import (
	"errors"
	"reflect"
	"time"

	"github.com/diana-limiter/diana/config"
	"github.com/diana-limiter/diana/internal/credentials"
	"github.com/diana-limiter/diana/internal/decide"
	"github.com/diana-limiter/diana/internal/plan"
	"github.com/diana-limiter/diana/internal/respond"
	"github.com/diana-limiter/diana/memstore"
	"github.com/diana-limiter/diana/rule"
)

// active is what a configuration in force has beside its limits. Only its policies change, with time.
type active struct {
	config      *config.Config
	set         *plan.Set
	since       time.Time
	local       *memstore.Store
	shared      []any // by plan.Bandwidth.Index; nil: each response has it for itself
	policies    *plan.Policies
	diversions  map[*rule.Divert]*respond.Diversion
	credentials *credentials.Checker // nil: there are none
}

// compile returns the compiled form of a configuration. o is filled, and so is c. before is what is in force, or nil.
func compile(c *config.Config, before *active, o Options, local *memstore.Store) (*active, error) {
	if err := errors.Join(c.Check(), o.checkScopes(c.Limits)); err != nil {
		return nil, err
	}
	if o.Accept != nil {
		if err := o.Accept(c); err != nil {
			return nil, err
		}
	}
	set, err := plan.Compile(c.Limits, c.Identity, c.Paths, o.Vocabulary.Actors)
	if err != nil {
		return nil, err
	}
	a := &active{config: c, set: set, since: o.now(), local: local, policies: set.Policies(local.Now())}
	if a.diversions, err = respond.Diversions(c.Limits, o.Upstream); err != nil {
		return nil, err
	}
	if before != nil && reflect.DeepEqual(before.config.Credentials, c.Credentials) {
		a.credentials = before.credentials // with the keys that it has fetched
	} else if a.credentials, err = newCredentials(&c.Credentials, o); err != nil {
		return nil, err
	}
	return a, nil
}

// bind makes the counters of the bandwidths that responses share.
func (a *active) bind() (err error) {
	for _, b := range a.set.Bandwidths {
		var c any
		if b.Shared() {
			c, err = a.local.Counters(b.Counters, respond.Bandwidth(b.Rate))
		}
		a.shared = append(a.shared, c)
		if err != nil {
			a.retire()
			return err
		}
	}
	return nil
}

// retire tells the store that the counters of bind are no longer used.
func (a *active) retire() {
	for _, c := range a.shared {
		if c != nil {
			a.local.Retire(c)
		}
	}
}

// paces returns the bandwidths of the response to an evaluated request.
func (a *active) paces(e *decide.Evaluation) (paces []respond.Pace) {
	for _, b := range e.Bandwidths() {
		p := respond.Pace{Rate: respond.Bandwidth(b.Rate)}
		if b.Shared() {
			p.Counters, p.Key = a.shared[b.Index], b.AppendKey(nil, e.Client())
		}
		paces = append(paces, p)
	}
	return paces
}
