// SPDX-License-Identifier: MIT

package diana

import (
	"bytes"
	"io"
	"net/http"
	"strconv"
	"time"
)

// Handler returns a handler that judges each request and calls next for those that
// are allowed. Others get a refusal, or what their entry diverts them to. It belongs in
// front of all other filters: what is refused has then cost nothing but the refusal. Places
// held under rules of concurrency are free again when next returns, or panics.
//
// A request that must wait for its turn waits here, until its context ends. net/http
// notices that a client has gone only once the request's body has been read. So under a
// leaky bucket, or where a rule's wait lets the request wait, a body of up to 64 KiB is
// read before the request joins the queue; one that leaves while a larger body is still
// unread, or one whose length is not known or that is sent only when it is asked for
// (Expect), keeps its place.
//
// Under rules that count certain statuses alone, a request is charged before and given back
// as soon as its status is known. It stays charged if next panics before that, or if the
// client is gone by then. A connection that next takes over (Hijack) counts as 101.
//
// The status is known when next writes it through the ResponseWriter that Handler gives it. A
// request stays charged if next returns without writing. Some frameworks, such as echo,
// write the answer to an error through a ResponseWriter of their own, after next has returned. A
// handler that succeeds without a body must call WriteHeader.
//
// Where an entry has a bandwidth, what next writes is held up to keep it, until the request's
// context ends; not so after Hijack. As in net/http, small pieces are gathered until next
// calls Flush or returns. A WriteTimeout of the server must leave time for it.
//
// A client that sends its body slowly, or reads the answer slowly, holds its slots for as long as the
// http.Server lets it, which by default is for ever: set ReadHeaderTimeout, ReadTimeout and
// WriteTimeout. A body that Handler itself reads too late is answered with 408.
//
// A request with a path that no honest client sends is answered with 400, and one with a path of
// more than paths.MaxLength bytes with 414. No rule counts them. See rule.CheckPath, and rule.Paths
// for the setting that has such paths evaluated.
func (l *Limiter) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path, strange := pathOf(r)
		if strange != nil {
			_ = l.reject(strange)
			answerProblem(w, strange.Status(), refusedPath(strange))
			return
		}
		d, err := l.Take(r.Context(), Request{Method: r.Method, Path: path, HTTP: r})
		defer d.Done()
		if !d.j.active.config.Response.OmitHeaders && len(d.Verdicts) > 0 {
			d.j.setFields(w.Header())
		}
		if err != nil && answerError(w, err) {
			return
		}
		if err != nil || !d.Allowed {
			h := w.Header()
			never := err == nil && d.RetryAfter == 0
			if !never {
				d.j.body = strconv.AppendInt(d.j.body[:0], seconds(d.RetryAfter), 10)
				h["Retry-After"] = d.j.values.of(d.j.body)
			}
			h["Cache-Control"] = noStore
			if v := d.diversion(); v != nil && err == nil {
				v.ServeHTTP(w, r)
				return
			}
			d.refuse(w, never)
			return
		}
		if !d.j.owed && !d.paces(r) {
			next.ServeHTTP(w, r)
			return
		}
		a := d.answer(w, r)
		next.ServeHTTP(a.abilities(), r)
		a.finish()
	})
}

// smallBody is the largest body that is read before a request waits.
const smallBody = 64 << 10

// readSmallBody reads a body that is small, so that net/http watches whether the client
// is still there. A client that sends it slowly keeps nobody waiting but itself.
func readSmallBody(r *http.Request) error {
	if !hasSmallBody(r) {
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

func hasSmallBody(r *http.Request) bool {
	return r != nil && r.Body != nil && r.ContentLength > 0 && r.ContentLength <= smallBody && r.Header.Get("Expect") == ""
}

// refuse answers a request that is not allowed, with a problem of RFC 9457. never says that no
// wait helps.
func (d *Decision) refuse(w http.ResponseWriter, never bool) {
	j := d.j
	status := j.active.config.Response.Status
	h := w.Header()
	h["Content-Type"] = problemJSON
	w.WriteHeader(status)

	kind, title := problem(status)
	b := append(j.body[:0], `{"type":"https://iana.org/assignments/http-problem-types#`...)
	b = append(b, kind...)
	b = append(b, `","title":"`...)
	b = append(b, title...)
	b = append(b, `","status":`...)
	b = strconv.AppendInt(b, int64(status), 10)
	if never {
		b = append(b, `,"detail":"The limits never allow this request. Repeating it does not help.`...)
	} else {
		b = append(b, `,"detail":"This request is more than the limits allow. It may be repeated in `...)
		b = strconv.AppendInt(b, seconds(d.RetryAfter), 10)
		b = append(b, " s."...)
	}
	b = append(b, `","violated-policies":[`...)
	comma := false
	for i := range d.Verdicts {
		v := &d.Verdicts[i]
		if !v.Refused() {
			continue
		}
		if comma {
			b = append(b, ',')
		}
		b = append(b, j.active.enforced[v.compiled.Index].json...)
		comma = true
	}
	j.body = append(b, "]}\n"...)
	_, _ = w.Write(j.body) // a client that is gone needs no answer
}

// The values of fields that are always the same. They are shared, and have no room to append.
var (
	noStore     = []string{"no-store"}
	problemJSON = []string{"application/problem+json"}
)

// problem returns the type and title of a refusal, as the registry of HTTP problem
// types has them (draft-ietf-httpapi-ratelimit-headers-11, section 6).
func problem(status int) (kind, title string) {
	if status == http.StatusServiceUnavailable {
		return "temporary-reduced-capacity", "Request cannot be satisfied due to temporary server capacity constraints"
	}
	return "quota-exceeded", "Request cannot be satisfied as assigned quota has been exceeded"
}

// seconds rounds up to whole seconds, and to one at least.
func seconds(d time.Duration) int64 {
	return max(int64((d+time.Second-1)/time.Second), 1)
}
