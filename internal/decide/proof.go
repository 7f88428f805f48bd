// SPDX-License-Identifier: MIT

package decide

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/diana-limiter/diana/internal/credentials"
	"github.com/diana-limiter/diana/internal/plan"
	"github.com/diana-limiter/diana/limit"
	"github.com/diana-limiter/diana/rule"
)

// mostFailures is how many credentials that are not valid an address may send in a minute. Then its credentials
// are not verified, so guessing keys, and tokens whose verification is dear, cost little.
const mostFailures = 20

// failures are the counters of credentials that were not valid, by address, in the local store.
type failures struct {
	once     sync.Once
	counters any
	err      error
}

// of returns the counters, which it makes at the first call.
func (f *failures) of(d *Decider) (any, error) {
	f.once.Do(func() {
		var m limit.Meter
		if m, f.err = limit.FixedWindow().New(limit.Limit{N: mostFailures, Unit: time.Minute, AlignFirst: true}); f.err == nil {
			f.counters, f.err = d.local.Counters("credentials that are not valid", m)
		}
	})
	return f.counters, f.err
}

// prove verifies the credentials of the request, and completes the request by what they prove. If the local rules
// that need no identity refuse the request, it verifies nothing: refused is set, and the evaluation has the
// outcome. The error is a *rule.CredentialError, or ctx's. With charge a failure counts.
//
// A verifier may wait for keys. So the Limits may have changed meanwhile, and then those in force decide.
func (e *Evaluation) prove(ctx context.Context, now int64, charge bool) (refused bool, err error) {
	c := e.limits.Credentials
	if c == nil || e.named || e.request.Proofs != nil {
		return false, nil
	}
	r := e.HTTP()
	if r == nil {
		return false, nil
	}
	given := c.Find(r.Header)
	if !given.Any() && !c.Required {
		return false, nil
	}
	if charge && len(e.match.Rules) > 0 {
		needs := func(r *plan.Rule) bool { return r.ReadsBody() || r.NeedsProof() }
		if refused, err := e.refuseBefore(ctx, now, needs); refused || err != nil {
			return refused, err
		}
	}
	if !given.Any() {
		return false, credentials.Missing()
	}
	proofs, err := e.verify(ctx, c, &given, now, charge)
	if err != nil {
		return false, err
	}
	e.request.Proofs, e.fields = proofs, given.Fields()
	if limits, down := e.decider.inForce(); limits != e.limits {
		e.limits, e.down = limits, down
		if strange := e.find(); strange != nil {
			return false, strange
		}
	}
	return false, nil
}

// verify verifies credentials, unless too many of the address were not valid.
func (e *Evaluation) verify(ctx context.Context, c *credentials.Checker, given *credentials.Given, now int64, charge bool) (map[string]rule.Proof, error) {
	counters, err := e.decider.failures.of(e.decider)
	if err != nil {
		return nil, err
	}
	charges := [1]limit.Charge{{Counters: counters, Key: e.client.AppendIP(nil), Cost: 1}}
	if err := e.decider.local.Peek(ctx, now, charges[:]); err != nil {
		return nil, err
	}
	if o := &charges[0].Outcome; !o.Allowed {
		return nil, tooManyFailures(o)
	}
	proofs, err := c.Verify(ctx, given)
	var failed *rule.CredentialError
	if errors.As(err, &failed) && failed.Status == http.StatusUnauthorized && charge {
		if _, err := e.decider.local.Take(ctx, e.decider.local.Now(), charges[:]); err != nil {
			return nil, err
		}
		if o := &charges[0].Outcome; !o.Allowed { // requests at the same time have used it up
			return nil, tooManyFailures(o)
		}
	}
	return proofs, err
}

func tooManyFailures(o *limit.Outcome) error {
	return &rule.CredentialError{
		Status: http.StatusTooManyRequests, RetryAfter: time.Duration(o.Wait) * time.Microsecond,
		Reason: "too many tokens or API keys from this address were not valid",
	}
}

// Proved returns what the request's credentials have proved, and the fields that had them.
func (e *Evaluation) Proved() (proofs map[string]rule.Proof, fields []string) {
	return e.request.Proofs, e.fields
}
