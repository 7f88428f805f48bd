// SPDX-License-Identifier: MIT

package decide

import (
	"context"
	"net/http"

	"github.com/diana-limiter/diana/internal/plan"
	"github.com/diana-limiter/diana/internal/requestbody"
)

// BodyReader answers a query about a request's body. It may wait for the client the first time that it is called for
// a request. Each call has the same result for the same query.
type BodyReader func(r *http.Request, q *requestbody.Query) (requestbody.Reading, error)

// needsBody reports whether a rule in force may need the body of the request.
func (e *Evaluation) needsBody() bool {
	return e.limits.Set.ReadsBodies && !e.named && e.request.HTTP != nil
}

// readBody completes the request by what its rules read from its body. If the local rules that do not need
// the body refuse the request, it is not read: refused is set, and the evaluation has the outcome.
//
// A client may send its body slowly. So the Limits may have changed when it is there, and then those in
// force decide.
func (e *Evaluation) readBody(ctx context.Context, now int64, read BodyReader) (refused bool, err error) {
	reading := e.bodyReading()
	if len(reading.Pointers) == 0 {
		return false, nil
	}
	if refused, err := e.refuseBefore(ctx, now, (*plan.Rule).ReadsBody); refused || err != nil {
		return refused, err
	}
	for len(reading.Pointers) > 0 {
		body, err := read(e.request.HTTP, &reading.Query)
		limits, down := e.decider.inForce()
		if e.down = down; limits != e.limits {
			e.limits = limits
			if strange := e.find(); strange != nil {
				return false, strange
			}
			reading = e.bodyReading()
			continue
		}
		if err != nil && reading.Enforced {
			return false, err
		}
		reading.Complete(&e.request, &body)
		break
	}
	return false, nil
}

func (e *Evaluation) bodyReading() plan.BodyReading {
	return e.limits.Set.BodyReading(&e.match, &e.client)
}

// refuseBefore evaluates the request by the local rules that do not need what later does, such as its body. If one
// refuses, so that a flood of requests costs no memory for bodies, it makes the outcome and returns true. Otherwise it has
// changed nothing.
func (e *Evaluation) refuseBefore(ctx context.Context, now int64, needs func(*plan.Rule) bool) (refused bool, err error) {
	all := e.match.Rules
	e.bodiless = e.bodiless[:0]
	for _, r := range all {
		if !needs(r) && r.Wait == 0 { // a request over the limit waits under a rule with a wait
			e.bodiless = append(e.bodiless, r)
		}
	}
	if len(e.bodiless) == 0 {
		return false, nil
	}
	e.match.Rules = e.bodiless
	defer func() { e.match.Rules = all }()
	e.fill(now)
	local := e.sets[0].list
	if len(local) == 0 {
		return false, nil
	}
	if err := e.decider.local.Peek(ctx, now, local); err != nil {
		return false, cause(ctx, err)
	}
	for i := range local {
		refused = refused || !local[i].Outcome.Allowed && !local[i].Shadow
	}
	if !refused {
		return false, nil
	}
	e.Allowed = false
	e.refuseAt(0)
	if e.Degraded {
		e.decider.degraded.Add(1)
	}
	e.report(now, true)
	return true, nil
}
