// SPDX-License-Identifier: MIT

package diana

import (
	"bytes"
	"io"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"github.com/diana-limiter/diana/internal/answer"
	"github.com/diana-limiter/diana/internal/decide"
	"github.com/diana-limiter/diana/internal/plan"
	"github.com/diana-limiter/diana/internal/respond"
)

// handler is what Limiter.Handler returns.
type handler struct {
	limiter *Limiter
	next    http.Handler
}

// ServeHTTP evaluates a request, and answers it or calls next.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var q Request
	h.limiter.serve(w, r, &q, h.next, nil)
}

// serve is Serve. It completes q.
func (l *Limiter) serve(w http.ResponseWriter, r *http.Request, q *Request, next http.Handler, refuse func(http.ResponseWriter, *http.Request, *Decision)) {
	q.HTTP = r
	if q.Method == "" {
		q.Method = r.Method
	}
	if q.Path == "" {
		path, strange := respond.Path(r)
		if strange != nil {
			_ = l.rejected.Count(strange)
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
	e, err := l.take(r.Context(), q, nil, beforeWait, l.readBody)
	diverted := ""
	if err == nil && !e.Allowed {
		e, diverted = l.divertBody(r, q, e)
	}
	d.set(e)
	if done := l.options.OnDone; done == nil {
		defer d.Done()
	} else {
		defer finish(done, &d)
		memoryOf(e).writer = w
	}
	if respond.IsHeld(r.Body) {
		defer l.bodies.Release(r.Body)
	}
	if err == nil && l.options.OnDecision != nil {
		observe(l.options.OnDecision, &d)
	}
	a := activeOf(e)
	if err == nil && a.credentials != nil {
		r = proved(r, e, a)
	}
	d.setRateLimit(w.Header())
	if diverted != "" {
		w.Header().Set(respond.DivertedField, diverted)
	}
	switch {
	case err == nil && d.Allowed:
		l.pass(w, r, &d, next)
	case err == nil:
		l.refuse(w, r, &d, refuse, false)
	default:
		if form, _ := e.Refusal(); !respond.Reject(w, r, err, form) {
			l.refuse(w, r, &d, refuse, true)
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

// pass has next answer a request that is allowed.
func (l *Limiter) pass(w http.ResponseWriter, r *http.Request, d *Decision, next http.Handler) {
	e := d.handle.Evaluation()
	if !e.NeedsStatus() && !e.Adapts() && !e.Settles() && len(e.Bandwidths()) == 0 {
		next.ServeHTTP(w, r) // nothing watches the response
		return
	}
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
	if len(e.Bandwidths()) > 0 && r.Method != http.MethodHead && l.options.Now == nil {
		watch.Paces, watch.Store = activeOf(e).paces(e), l.local
	}
	if e.Settles() {
		watch.Bill = l.bill(d.handle)
		if e.ChangesBody() {
			l.bodies.Change(r, func(body []byte) []byte {
				body, watch.DropUsage = e.ChangeBody(body)
				return body
			})
		}
		if watch.DropUsage { // it cannot be found in a stream that is compressed
			r.Header.Set("Accept-Encoding", "identity")
		}
		if after := e.ReadsOn(); after > 0 {
			watch.Leave = l.leave(e, r, after)
		}
	}
	if watch.SetStatus == nil && watch.Paces == nil && watch.Bill == nil {
		next.ServeHTTP(w, r)
		return
	}
	watch.Serve(next, w, r)
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

// refuse answers a request that is not allowed, by answer unless it is nil. ended says that the request's context
// ended while it waited.
func (l *Limiter) refuse(w http.ResponseWriter, r *http.Request, d *Decision, answer func(http.ResponseWriter, *http.Request, *Decision), ended bool) {
	e := d.handle.Evaluation()
	f := d.refusal(e, ended)
	f.Bodies = &l.bodies
	for i := 0; i < len(d.Verdicts) && f.Diversion == nil && !ended; i++ {
		if divert := e.Rule(i).Divert; divert != nil && d.Verdicts[i].Refused() {
			f.Diversion = activeOf(e).diversions[divert]
		}
	}
	f.SetFields(w.Header(), &memoryOf(e).fields)
	if answer == nil {
		answer = l.options.Refuse
	}
	if answer != nil && f.Diversion == nil {
		refused := *d // a copy, so that only a request that gets here allocates
		answer(w, r, &refused)
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

// bill returns the bill of the response to an allowed request, by which its rules settle their costs.
func (l *Limiter) bill(h decide.Handle) *respond.Bill {
	var rules []*plan.Rule
	var sources []answer.Source
	e := h.Evaluation()
	for i := range e.Verdicts {
		if r := e.Rule(i); r.Cost.Answer != "" {
			rules, sources = append(rules, r), append(sources, r.Source())
		}
	}
	began := l.local.Now()
	return &respond.Bill{
		Sources:  sources,
		Decoders: l.options.Decoders,
		Settle: func(read *answer.Reader, status int, complete, last bool) bool {
			return h.Settle(func(r *plan.Rule) (n int64, known, concerned bool) {
				if r.Source() == answer.Duration {
					return (l.local.Now() - began + 999) / 1000, true, true
				}
				free := r.Free(status)
				if read == nil {
					return 0, free, true
				}
				u, ok := read.Usage(slices.Index(rules, r))
				n, known = r.CostOfUsage(e.Request(), u), ok && (complete || read.Over(slices.Index(rules, r)))
				switch {
				case known:
				case free && n == 0:
					known = true
				default:
					n = max(n, read.Unread(), r.CostOfUnknown(e.Request(), read.Content()))
				}
				return n, known, true
			}, last)
		},
	}
}

// leave returns how the response to a request is read on after its client has disconnected.
func (l *Limiter) leave(e *decide.Evaluation, r *http.Request, after time.Duration) *respond.Leave {
	account, _, ip := e.Limits().Set.Identify(e.Request())
	if account == "" {
		account = ip.String()
	}
	return &respond.Leave{
		After: after, Among: &l.left, Account: account, Until: l.closing,
		Gone: func() { l.bodies.Release(r.Body) },
	}
}
