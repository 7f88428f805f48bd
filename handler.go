// SPDX-License-Identifier: MIT

package diana

import (
	"bytes"
	"io"
	"net/http"
	"time"

	"github.com/diana-limiter/diana/internal/decide"
	"github.com/diana-limiter/diana/internal/fields"
	"github.com/diana-limiter/diana/internal/respond"
	"github.com/diana-limiter/diana/limit"
)

// handler is what Limiter.Handler returns.
type handler struct {
	limiter *Limiter
	next    http.Handler
}

// ServeHTTP evaluates a request, and answers it or calls next.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path, strange := respond.Path(r)
	if strange != nil {
		_ = h.limiter.rejected.count(strange)
		respond.Reject(w, strange)
		return
	}
	var beforeWait func(*http.Request) error
	if hasSmallBody(r) {
		beforeWait = readBody
	}
	var d Decision
	e, err := h.limiter.take(r.Context(), &Request{Method: r.Method, Path: path, HTTP: r}, beforeWait)
	d.set(e)
	defer d.Done()
	if err == nil && h.limiter.options.OnDecision != nil {
		observe(h.limiter.options.OnDecision, d)
	}
	a := d.handle.Evaluation().Limits().Attached.(*active)
	h.setFields(w.Header(), &d, a)
	switch {
	case err == nil && d.Allowed:
		h.serve(w, r, &d, a)
	case err == nil || !respond.Reject(w, err):
		h.refuse(w, r, &d, a, err != nil)
	}
}

// responseMemory is the memory that writing a response takes. The evaluation keeps it for other requests.
type responseMemory struct {
	fields  fields.Writer
	refusal respond.Refusal
}

// memoryOf returns the memory for the response to an evaluated request.
func memoryOf(e *decide.Evaluation) *responseMemory {
	if e.Memory == nil {
		e.Memory = &responseMemory{}
	}
	return e.Memory.(*responseMemory)
}

// setFields sets the RateLimit fields, with one member for each rule that evaluated the request.
// They leave out shadow rules and rules that were not asked: global rules that are open because
// Redis is down, and global rules when a local rule has refused.
func (h *handler) setFields(header http.Header, d *Decision, a *active) {
	if a.config.Response.OmitHeaders || len(d.Verdicts) == 0 {
		return
	}
	e := d.handle.Evaluation()
	out := memoryOf(e)
	for i := range d.Verdicts {
		v := &d.Verdicts[i]
		if !v.Rule.Shadow && v.Remaining != limit.Unknown {
			out.fields.Add(&a.policies, e.Rule(i).Slot, v.Remaining, time.Duration(v.Reset)*time.Microsecond)
		}
	}
	out.fields.Set(header, &a.policies)
}

// serve has next answer a request that is allowed.
func (h *handler) serve(w http.ResponseWriter, r *http.Request, d *Decision, a *active) {
	e := d.handle.Evaluation()
	var watch respond.Watch
	if e.NeedsStatus() {
		handle := d.handle
		watch.SetStatus = func(status int) { handle.SetStatus(status) } // allocates less than d.SetStatus
	}
	// With Options.Now there is no timer that keeps a bandwidth.
	if len(e.Bandwidths()) > 0 && r.Method != http.MethodHead && h.limiter.options.Now == nil {
		watch.Paces, watch.Store = a.paces(e), h.limiter.local
	}
	if watch.SetStatus == nil && watch.Paces == nil {
		h.next.ServeHTTP(w, r)
		return
	}
	watch.Serve(h.next, w, r)
}

// refuse answers a request that is not allowed. ended says that its context ended while it waited.
func (h *handler) refuse(w http.ResponseWriter, r *http.Request, d *Decision, a *active, ended bool) {
	out := memoryOf(d.handle.Evaluation())
	f := &out.refusal
	f.Status, f.RetryAfter, f.Never = a.config.Response.Status, d.RetryAfter, d.RetryAfter == 0 && !ended
	f.Policies, f.Diversion = f.Policies[:0], nil
	for i := range d.Verdicts {
		v := &d.Verdicts[i]
		if !v.Refused() {
			continue
		}
		f.Policies = append(f.Policies, v.Rule.Name)
		if divert := d.handle.Evaluation().Rule(i).Divert; f.Diversion == nil && divert != nil && !ended {
			f.Diversion = a.diversions[divert]
		}
	}
	f.SetFields(w.Header(), &out.fields)
	if h.limiter.options.Refuse != nil && f.Diversion == nil {
		refused := *d // a copy, so that only a request that gets here allocates
		h.limiter.options.Refuse(w, r, &refused)
		return
	}
	f.ServeHTTP(w, r)
}

// smallBody is the largest body that is read before a request waits.
const smallBody = 64 << 10

func hasSmallBody(r *http.Request) bool {
	return r.Body != nil && r.ContentLength > 0 && r.ContentLength <= smallBody && r.Header.Get("Expect") == ""
}

// readBody reads the body, so that net/http watches whether the client disconnects. A client that
// sends it slowly holds up nobody else.
func readBody(r *http.Request) error {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	r.Body = struct {
		io.Reader
		io.Closer
	}{bytes.NewReader(body), r.Body}
	return nil
}
