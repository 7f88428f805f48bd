// SPDX-License-Identifier: MIT

package diana

import (
	"bytes"
	"io"
	"net/http"
	"sync/atomic"

	"github.com/diana-limiter/diana/internal/decide"
	"github.com/diana-limiter/diana/internal/respond"
)

// handler is what Limiter.Handler returns.
type handler struct {
	limiter *Limiter
	next    http.Handler
	request Request                                             // of Serve
	refused func(http.ResponseWriter, *http.Request, *Decision) // nil: Options.Refuse
}

// ServeHTTP evaluates a request, and answers it or calls next.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q := h.request
	q.HTTP = r
	if q.Method == "" {
		q.Method = r.Method
	}
	if q.Path == "" {
		path, strange := respond.Path(r)
		if strange != nil {
			_ = h.limiter.rejected.Count(strange)
			respond.Reject(w, r, strange, "")
			return
		}
		q.Path = path
	}
	var beforeWait func(*http.Request) error
	if hasSmallBody(r) {
		beforeWait = readBody
	}
	var d Decision
	e, err := h.limiter.take(r.Context(), &q, nil, beforeWait, h.limiter.readBody)
	diverted := ""
	if err == nil && !e.Allowed {
		e, diverted = h.limiter.divertBody(r, &q, e)
	}
	d.set(e)
	if done := h.limiter.options.OnDone; done == nil {
		defer d.Done()
	} else {
		defer finish(done, &d)
		memoryOf(e).writer = w
	}
	if respond.IsHeld(r.Body) {
		defer h.limiter.bodies.Release(r.Body)
	}
	if err == nil && h.limiter.options.OnDecision != nil {
		observe(h.limiter.options.OnDecision, &d)
	}
	a := d.handle.Evaluation().Limits().Attached.(*active)
	if err == nil && a.credentials != nil {
		r = proved(r, e, a)
	}
	d.setRateLimit(w.Header())
	if diverted != "" {
		w.Header().Set("Diana-Diverted", diverted)
	}
	switch {
	case err == nil && d.Allowed:
		h.serve(w, r, &d, a)
	case err == nil:
		h.refuse(w, r, &d, a, false)
	default:
		if form, _ := e.Refusal(); !respond.Reject(w, r, err, form) {
			h.refuse(w, r, &d, a, true)
		}
	}
}

// divertBody evaluates a refused request once more, if a divert puts other values into its body. It returns the
// evaluation that decides, and how clients call the rule that diverts the request if it is allowed now. If the rules
// reject the changed body, the refusal remains.
func (l *Limiter) divertBody(r *http.Request, q *Request, refused *decide.Evaluation) (e *decide.Evaluation, by string) {
	from := refused.Diverts()
	if from == nil || !l.bodies.Divert(r, from.Divert.Values) {
		return refused, ""
	}
	e, err := l.decider.Again(r.Context(), q, refused, l.readBody)
	unused := refused
	if err != nil {
		e, unused = refused, e
	} else if e.Allowed {
		by = activeOf(refused).policies.At(l.local.Now).Name(from.Slot)
	}
	h := unused.Handle()
	h.Done()
	return e, by
}

// serve has next answer a request that is allowed.
func (h *handler) serve(w http.ResponseWriter, r *http.Request, d *Decision, a *active) {
	e := d.handle.Evaluation()
	var watch respond.Watch
	if e.NeedsStatus() || e.Adapts() {
		handle := d.handle
		watch.SetStatus = func(status int) { handle.SetStatus(status) } // allocates less than d.SetStatus
		if e.MeasuresBody() {
			watch.FirstByte = func() { handle.FirstByte() }
		}
	}
	returned := !e.Adapts()
	defer func() {
		if !returned { // a panic says nothing of the upstream's latency
			d.handle.Answered(http.StatusInternalServerError)
		}
	}()
	if e.Adapts() && r.Body != nil && r.Body != http.NoBody && !respond.IsHeld(r.Body) {
		at, now := e.BodySent()
		r.Body = &sentBody{r.Body, at, now}
	}
	// With Options.Now there is no timer that keeps a bandwidth.
	if len(e.Bandwidths()) > 0 && r.Method != http.MethodHead && h.limiter.options.Now == nil {
		watch.Paces, watch.Store = a.paces(e), h.limiter.local
	}
	if e.Settles() {
		watch.Bill = h.limiter.bill(d.handle)
		if e.ChangesBody() {
			h.limiter.bodies.Change(r, func(body []byte) []byte {
				body, watch.DropUsage = e.ChangeBody(body)
				return body
			})
		}
		if watch.DropUsage { // it cannot be found in a stream that is compressed
			r.Header.Set("Accept-Encoding", "identity")
		}
		if after := e.ReadsOn(); after > 0 {
			watch.Leave = h.limiter.leave(e, r, after)
		}
	}
	if watch.SetStatus == nil && watch.Paces == nil && watch.Bill == nil {
		h.next.ServeHTTP(w, r)
		return
	}
	watch.Serve(h.next, w, r)
	returned = true
}

// sentBody is the body of a request that notes when the next handler has last read from it. A client that sends
// its body slowly must not make the upstream look slow.
type sentBody struct {
	io.ReadCloser
	at  *atomic.Int64
	now func() int64
}

func (b *sentBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.at.Store(b.now())
	return n, err
}

// refuse answers a request that is not allowed. ended says that its context ended while it waited.
func (h *handler) refuse(w http.ResponseWriter, r *http.Request, d *Decision, a *active, ended bool) {
	e := d.handle.Evaluation()
	f := d.refusal(e, ended)
	f.Bodies = &h.limiter.bodies
	for i := 0; i < len(d.Verdicts) && f.Diversion == nil && !ended; i++ {
		if divert := e.Rule(i).Divert; divert != nil && d.Verdicts[i].Refused() {
			f.Diversion = a.diversions[divert]
		}
	}
	f.SetFields(w.Header(), &memoryOf(e).fields)
	refuse := h.refused
	if refuse == nil {
		refuse = h.limiter.options.Refuse
	}
	if refuse != nil && f.Diversion == nil {
		refused := *d // a copy, so that only a request that gets here allocates
		refuse(w, r, &refused)
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
	if respond.IsHeld(r.Body) {
		return nil
	}
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
