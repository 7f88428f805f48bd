// SPDX-License-Identifier: MIT

package respond

import (
	"errors"
	"net/http"
	"os"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/diana-limiter/diana/internal/fields"
	"github.com/diana-limiter/diana/internal/paths"
	"github.com/diana-limiter/diana/rule"
)

// Path returns the path by which a request is evaluated: escaped, as the client sent it. The error
// is for a request target without a path that starts with a slash.
func Path(r *http.Request) (string, *rule.PathError) {
	path := paths.Sent(r.URL)
	switch {
	case r.URL.Opaque != "": // it is unknown how the upstream reads it
		return "", paths.Check(r.URL.Opaque)
	case path == "" || path == "*" && r.Method == http.MethodOptions:
		return "/", nil
	case path[0] != '/':
		return "", paths.Check(path)
	}
	return path, nil
}

// Reject answers a request that cannot be evaluated, mostly because of a mistake of the client. The status is
// 400 or 414 if err is a *rule.PathError, that of a *BodyError or a *rule.CredentialError, and 408 if a body did not arrive in time. A mistake in
// the body is answered in a form. With another error Reject writes nothing and returns false.
func Reject(w http.ResponseWriter, r *http.Request, err error, form string) bool {
	// after is how long until the request may be repeated; 0: a wait does not help.
	problem := func(status int, detail string, after time.Duration) {
		if after > 0 {
			w.Header().Set("Retry-After", strconv.FormatInt(fields.Seconds(after), 10))
		}
		form := FormOf(form, r)
		if form == "" {
			Problem(w, status, detail)
			return
		}
		if after > 0 {
			setRetryFields(w.Header(), after, false)
			detail += " " + again(after)
		}
		if form == asJSONRPC {
			rejectJSONRPC(w, status, detail)
			return
		}
		e := apiError{status: status, message: detail, after: after}
		e.write(w, form)
	}
	var strange *rule.PathError
	var body *BodyError
	var credential *rule.CredentialError
	switch {
	case errors.As(err, &credential):
		after := setCredentialFields(w.Header(), credential)
		problem(credential.Status, "This request was refused because "+credential.Reason+".", after)
	case errors.As(err, &strange):
		RejectPath(w, strange, strange.Status())
	case errors.As(err, &body):
		after := time.Duration(0)
		switch body {
		case errBodySpace:
			after = time.Second
		case errBodyTime: // net/http would wait for the rest of the body before it answers
			_ = http.NewResponseController(w).SetReadDeadline(time.Unix(1, 0)) // not every server supports it
		}
		problem(body.Status, body.detail, after)
	case errors.Is(err, os.ErrDeadlineExceeded): // of the connection; a context has another error
		problem(http.StatusRequestTimeout, "The request's body did not arrive in time.", 0)
	default:
		return false
	}
	return true
}

// setCredentialFields sets the fields of a response to a request that is rejected because of its credential. It
// returns how long until the request may be repeated; 0: a wait does not help.
func setCredentialFields(h http.Header, e *rule.CredentialError) time.Duration {
	h["Cache-Control"] = noStore
	switch {
	case e.Status != http.StatusUnauthorized:
		return max(e.RetryAfter, time.Millisecond)
	case e.Missing:
		h.Set("WWW-Authenticate", `Bearer realm="diana"`)
	default:
		h.Set("WWW-Authenticate", `Bearer realm="diana", error="invalid_token"`)
	}
	return 0
}

// RejectPath answers a request whose path cannot be evaluated.
func RejectPath(w http.ResponseWriter, strange *rule.PathError, status int) {
	Problem(w, status, "This request was refused because "+strange.Error()+".")
}

// BelowServerError returns the status of a refusal for another gateway: status, or 429 if that is 500 or
// above. Envoy takes such a status for a failure of Diana, and may then allow the request.
func BelowServerError(status int) int {
	if status >= http.StatusInternalServerError {
		return http.StatusTooManyRequests
	}
	return status
}

// KeepBelow returns a handler that refuses a request whose path could climb out of the base path of
// an upstream, and passes other requests to next. Such a path arrives only if the setting
// paths.strange says so.
func KeepBelow(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if path := paths.Sent(r.URL); path != "" {
			if strange := paths.Check(path); strange != nil {
				Reject(w, r, strange, "")
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}

// Rejected counts the requests that are rejected before any rule counts them, by reason.
type Rejected struct {
	path, length, token atomic.Int64

	bodies [len(BodyReasons)]atomic.Int64 // by the index in BodyReasons
}

// ByReason returns the counts. Those about bodies are among them if bodies says that rules read some, or if
// there are any; that about credentials likewise.
func (n *Rejected) ByReason(bodies, tokens bool) map[string]int64 {
	counts := map[string]int64{"path": n.path.Load(), "path_length": n.length.Load()}
	if count := n.token.Load(); tokens || count > 0 {
		counts["token"] = count
	}
	for i, reason := range BodyReasons {
		if count := n.bodies[i].Load(); bodies || count > 0 {
			counts[reason] = count
		}
	}
	return counts
}

// Count counts a request that is rejected because of its path, its body or its credential, if err says so, and returns err.
func (n *Rejected) Count(err error) error {
	var strange *rule.PathError
	var body *BodyError
	var credential *rule.CredentialError
	switch {
	case errors.As(err, &credential):
		n.token.Add(1)
	case errors.As(err, &body):
		n.bodies[slices.Index(BodyReasons[:], body.Reason)].Add(1)
	case !errors.As(err, &strange):
	case strange.TooLong:
		n.length.Add(1)
	default:
		n.path.Add(1)
	}
	return err
}
