// SPDX-License-Identifier: MIT

package diana

import (
	"net/http"
	"time"

	"github.com/diana-limiter/diana/internal/decide"
	"github.com/diana-limiter/diana/internal/fields"
	"github.com/diana-limiter/diana/internal/respond"
	"github.com/diana-limiter/diana/limit"
)

// SetFields sets the fields that tell the client about its limits. They are RateLimit and
// RateLimit-Policy, unless the configuration leaves them out; and for a refusal Cache-Control and
// Retry-After, unless no wait helps. It is for programs that answer requests without Handler. It must be
// called before Done; after that, and for a Decision of Peek, it does nothing.
func (d *Decision) SetFields(h http.Header) {
	e := d.handle.Evaluation()
	if e == nil {
		return
	}
	d.setRateLimit(h)
	if !d.Allowed {
		d.refusal(e, false).SetFields(h, &memoryOf(e).fields)
	}
}

// Refuse answers a request that is not allowed with a problem of RFC 9457, after SetFields. The status
// 0 stands for the one of the configuration. Refuse does not divert the request. It must be called
// before Done; after that, and for a Decision of Peek, it writes a problem without details.
func (d *Decision) Refuse(w http.ResponseWriter, status int) {
	d.SetFields(w.Header())
	f := &respond.Refusal{Status: http.StatusServiceUnavailable, RetryAfter: d.RetryAfter, Never: d.RetryAfter == 0}
	if e := d.handle.Evaluation(); e != nil {
		f = d.refusal(e, false)
	}
	if status != 0 {
		f.Status = status
	}
	f.ServeHTTP(w, nil)
}

// responseMemory is the memory that writing a response takes. The evaluation keeps it for other requests.
type responseMemory struct {
	fields  fields.Writer
	refusal respond.Refusal

	decision Decision            // for Options.OnDecision and OnDone, so that it costs no allocation
	writer   http.ResponseWriter // of Handler, with Options.OnDone
}

// memoryOf returns the memory for the response to an evaluated request.
func memoryOf(e *decide.Evaluation) *responseMemory {
	if e.Memory == nil {
		e.Memory = &responseMemory{}
	}
	return e.Memory.(*responseMemory)
}

// activeOf returns the configuration that a request was evaluated by.
func activeOf(e *decide.Evaluation) *active { return e.Limits().Attached.(*active) }

// setRateLimit sets the RateLimit fields, with one member for each rule that evaluated the request.
// They leave out shadow rules and rules that were not asked: global rules that are open because
// Redis is down, and global rules when a local rule has refused.
func (d *Decision) setRateLimit(header http.Header) {
	e := d.handle.Evaluation()
	a := activeOf(e)
	if a.config.Response.OmitHeaders || len(d.Verdicts) == 0 {
		return
	}
	out, policies := memoryOf(e), a.policies.At(a.local.Now)
	for i := range d.Verdicts {
		v := &d.Verdicts[i]
		if !v.Rule.Shadow && v.Remaining != limit.Unknown {
			out.fields.Add(policies, e.Rule(i).Slot, v.Remaining, time.Duration(v.Reset)*time.Microsecond)
		}
	}
	out.fields.Set(header, policies)
}

// refusal returns the refusal of a request. ended says that its context ended while it waited.
func (d *Decision) refusal(e *decide.Evaluation, ended bool) *respond.Refusal {
	a, f := activeOf(e), &memoryOf(e).refusal
	f.Status, f.RetryAfter, f.Never = a.config.Response.Status, d.RetryAfter, d.RetryAfter == 0 && !ended
	f.Policies, f.Diversion, f.Tokens, f.Left = f.Policies[:0], nil, false, 0
	if form, calls := e.Refusal(); form != "" {
		f.Status, f.CallStatus = http.StatusTooManyRequests, calls
		f.Form = respond.FormOf(form, e.HTTP())
	} else {
		f.Form = ""
	}
	for i := range d.Verdicts {
		if v := &d.Verdicts[i]; v.Refused() {
			left := int64(0)
			if v.Rule.Cost.Answer != "" {
				f.Tokens, left = true, max(v.Remaining, 0)
			}
			if len(f.Policies) == 0 || left < f.Left {
				f.Left = left
			}
			if v.Rule.Algorithm.Uses("measure") {
				f.Status = respond.Overloaded(f.Form) // the client has done nothing wrong
			}
			f.Policies = append(f.Policies, a.policies.At(a.local.Now).Name(e.Rule(i).Slot))
		}
	}
	return f
}
