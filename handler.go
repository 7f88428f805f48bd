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

// Handler returns a handler that evaluates each request and calls next if the request is allowed.
// A refused request gets the configured refusal, or what Options.Refuse writes, or what its entry
// diverts it to. Handler belongs in front of all other filters, except those that call WithActor or
// WithCost: then a refused request costs nothing but the refusal. Slots under rules of concurrency
// are released when next returns or panics.
//
// A request that has to wait for its scheduled time waits in Handler, until its context ends.
// net/http notices that a client has disconnected only after the request's body has been read. So
// Handler reads a body of up to 64 KiB before the request waits. A client keeps its place after it
// disconnects if its body is larger and unread, has no known length, or is sent only on demand
// (Expect).
//
// Under rules that count only certain statuses, a request is charged first, and refunded as soon as
// its status is known to be another. It stays charged if next panics before that, or if the client
// has disconnected by then. A connection that next takes over (Hijack) counts as 101.
//
// The status is known when next writes it through the ResponseWriter that Handler passes to it. A
// request stays charged if next returns without writing. Some frameworks, such as echo, write the
// response to an error through another ResponseWriter, after next has returned. A handler that
// succeeds without a body must call WriteHeader.
//
// If an entry has a bandwidth, writes of next block to keep it, until the request's context ends. A
// connection after Hijack has no bandwidth. As in net/http, small writes are gathered until next
// calls Flush or returns. A WriteTimeout of the server must be long enough.
//
// A client that sends its body slowly, or reads the response slowly, holds its slots for as long as
// the http.Server allows. By default a server allows it forever: set ReadHeaderTimeout, ReadTimeout
// and WriteTimeout. If a body that Handler reads does not arrive in time, the client gets 408.
//
// A request with a path that no honest client sends gets 400, and one with a path of more than
// rule.MaxPath bytes gets 414. No rule counts these requests. See rule.CheckPath, and rule.Paths for
// the setting under which such paths are evaluated.
func (l *Limiter) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path, strange := respond.Path(r)
		if strange != nil {
			_ = l.countRejected(strange)
			respond.Reject(w, strange)
			return
		}
		var beforeWait func(*http.Request) error
		if hasSmallBody(r) {
			beforeWait = readBody
		}
		d, err := l.take(r.Context(), Request{Method: r.Method, Path: path, HTTP: r}, beforeWait)
		defer d.Done()
		if err == nil && l.options.OnDecision != nil {
			l.observe(d)
		}
		a := d.handle.Evaluation().Limits().Attached.(*active)
		l.setFields(w.Header(), &d, a)
		switch {
		case err == nil && d.Allowed:
			l.serve(next, w, r, &d, a)
		case err == nil || !respond.Reject(w, err):
			l.refuse(w, r, &d, a, err != nil)
		}
	})
}

// responding is the memory that writing a response takes. It is used again for other requests.
type responding struct {
	fields  fields.Writer
	refusal respond.Refusal
}

// setFields sets the RateLimit fields, with one member for each rule that evaluated the request.
// They leave out shadow rules and rules that were not asked: global rules that are open because
// Redis is down, and global rules when a local rule has refused.
func (l *Limiter) setFields(h http.Header, d *Decision, a *active) {
	if a.config.Response.OmitHeaders || len(d.Verdicts) == 0 {
		return
	}
	out := l.responding.Get().(*responding)
	defer l.responding.Put(out)
	e := d.handle.Evaluation()
	for i := range d.Verdicts {
		v := &d.Verdicts[i]
		if !v.Rule.Shadow && v.Remaining != limit.Unknown {
			out.fields.Add(&a.policies, e.Rule(i).Slot, v.Remaining, time.Duration(v.Reset)*time.Microsecond)
		}
	}
	out.fields.Set(h, &a.policies)
}

// serve has next answer a request that is allowed.
func (l *Limiter) serve(next http.Handler, w http.ResponseWriter, r *http.Request, d *Decision, a *active) {
	e := d.handle.Evaluation()
	var watch respond.Watch
	if e.NeedsStatus() {
		handle := d.handle
		watch.SetStatus = func(status int) { handle.SetStatus(status) } // allocates less than d.SetStatus
	}
	// With Options.Now there is no timer that keeps a bandwidth.
	if len(e.Bandwidths()) > 0 && r.Method != http.MethodHead && l.options.Now == nil {
		watch.Paces, watch.Store = a.paces(e), l.local
	}
	if watch.SetStatus == nil && watch.Paces == nil {
		next.ServeHTTP(w, r)
		return
	}
	watch.Serve(next, w, r)
}

// paces returns the bandwidths of the response to an evaluated request.
func (a *active) paces(e *decide.Evaluation) (paces []respond.Pace) {
	ip := e.Limits().Set.ClientIP(e.Request())
	for _, b := range e.Bandwidths() {
		p := respond.Pace{Rate: respond.Bandwidth(b.Rate)}
		if b.Shared() {
			p.Counters, p.Key = a.shared[b.Index], b.AppendKey(nil, e.Request(), ip)
		}
		paces = append(paces, p)
	}
	return paces
}

// refuse answers a request that is not allowed. ended says that its context ended while it waited.
func (l *Limiter) refuse(w http.ResponseWriter, r *http.Request, d *Decision, a *active, ended bool) {
	out := l.responding.Get().(*responding)
	defer l.responding.Put(out)
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
	if l.options.Refuse != nil && f.Diversion == nil {
		refused := *d // a copy, so that only a request that gets here allocates
		l.options.Refuse(w, r, &refused)
		return
	}
	f.ServeHTTP(w, r)
}

// observe calls Options.OnDecision. If that panics, the request releases what it holds.
func (l *Limiter) observe(d Decision) {
	returned := false
	defer func() {
		if !returned {
			d.Done()
		}
	}()
	l.options.OnDecision(&d)
	returned = true
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
