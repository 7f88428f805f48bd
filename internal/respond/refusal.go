// SPDX-License-Identifier: MIT

// Package respond writes what a limiter answers in place of the next handler: a refusal, a
// diversion or the rejection of a request that cannot be evaluated. It also watches the status of
// the next handler's response and paces its bytes.
//
// The package works on plain values. It does not know how a request is evaluated.
package respond

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/diana-limiter/diana/internal/fields"
)

// Refusal is the response to a request that the limits refuse. Its memory can be used again for
// another response.
type Refusal struct {
	Status     int           // of the problem: 429, 503, or another
	RetryAfter time.Duration // after which the client may repeat the request
	Never      bool          // no wait helps
	Policies   []string      // the names of those that refuse the request, as RateLimit-Policy has them
	Diversion  *Diversion    // is written in place of the problem; may be nil
	Form       string        // see rule.Entry.Refusal; never "auto"
	CallStatus int           // see rule.Entry.CallStatus
	Tokens     bool          // one of the policies counts what the response costs
	Left       int64         // what a smaller request may cost; 0: none is allowed
	Bodies     *Bodies       // of the limiter; nil: the request's body cannot be read

	body []byte
}

// The values of header fields that are always the same. Responses share them; they have no spare
// capacity, so appending to one copies it.
var (
	noStore     = []string{"no-store"}
	problemJSON = []string{"application/problem+json"}
)

// SetFields sets Cache-Control, and Retry-After unless no wait helps. It must be called before
// the response is written.
func (f *Refusal) SetFields(h http.Header, w *fields.Writer) {
	if !f.Never {
		w.SetRetryAfter(h, f.RetryAfter)
	}
	h["Cache-Control"] = noStore
	if f.Form != "" {
		setRetryFields(h, f.RetryAfter, f.Never)
	}
}

// ServeHTTP writes the diversion, or else the refusal in its form. A client of gRPC gets a status of gRPC.
func (f *Refusal) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if f.Diversion != nil {
		f.Diversion.ServeHTTP(w, r)
		return
	}
	if overGRPC(r) {
		f.serveGRPC(w)
		return
	}
	switch {
	case f.Form == "":
	case f.Form != asJSONRPC:
		e := apiError{f.Status, f.message(), f.RetryAfter, f.Tokens}
		e.write(w, f.Form)
		return
	case f.serveJSONRPC(w, r):
		return
	}
	h := w.Header()
	h["Content-Type"] = problemJSON
	w.WriteHeader(f.Status)

	kind, title := problemType(f.Status)
	b := append(f.body[:0], `{"type":"https://iana.org/assignments/http-problem-types#`...)
	b = append(b, kind...)
	b = append(b, `","title":"`...)
	b = append(b, title...)
	b = append(b, `","status":`...)
	b = strconv.AppendInt(b, int64(f.Status), 10)
	if f.Never {
		b = append(b, `,"detail":"The limits never allow this request. Repeating it does not help.`...)
	} else {
		b = append(b, `,"detail":"This request is more than the limits allow. It may be repeated in `...)
		b = strconv.AppendInt(b, fields.Seconds(f.RetryAfter), 10)
		b = append(b, " s."...)
	}
	b = append(b, `","violated-policies":[`...)
	for i, name := range f.Policies {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendJSON(b, name)
	}
	f.body = append(b, "]}\n"...)
	_, _ = w.Write(f.body) // a client that has disconnected needs no response
}

// problemType returns the type and title of a refusal, as the registry of HTTP problem types has
// them (draft-ietf-httpapi-ratelimit-headers-11, section 6).
func problemType(status int) (kind, title string) {
	if status == http.StatusServiceUnavailable {
		return "temporary-reduced-capacity", "Request cannot be satisfied due to temporary server capacity constraints"
	}
	return "quota-exceeded", "Request cannot be satisfied as assigned quota has been exceeded"
}

// appendJSON appends text as a string in JSON. It allocates only for text that must be escaped.
func appendJSON(b []byte, text string) []byte {
	for i := range len(text) {
		switch c := text[i]; {
		case c < ' ', c > '~', c == '"', c == '\\', c == '<', c == '>', c == '&':
			escaped, _ := json.Marshal(text) // which cannot fail for a string
			return append(b, escaped...)
		}
	}
	b = append(append(b, '"'), text...)
	return append(b, '"')
}

// Problem writes a problem of RFC 9457 that has no type of its own.
func Problem(w http.ResponseWriter, status int, detail string) {
	h := w.Header()
	h["Cache-Control"], h["Content-Type"] = noStore, problemJSON
	w.WriteHeader(status)
	_, _ = fmt.Fprintf(w, "{\"type\":\"about:blank\",\"title\":%q,\"status\":%d,\"detail\":%q}\n",
		http.StatusText(status), status, detail) // a client that has disconnected needs no response
}
