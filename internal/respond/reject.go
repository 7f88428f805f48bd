// SPDX-License-Identifier: MIT

package respond

import (
	"errors"
	"net/http"
	"os"
	"slices"
	"sync/atomic"
	"time"

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
// 400 or 414 if err is a *rule.PathError, that of a *BodyError, and 408 if a body did not arrive in time.
// With another error Reject writes nothing and returns false.
func Reject(w http.ResponseWriter, err error) bool {
	var strange *rule.PathError
	var body *BodyError
	switch {
	case errors.As(err, &strange):
		RejectPath(w, strange, strange.Status())
	case errors.As(err, &body):
		switch body {
		case errBodySpace:
			w.Header().Set("Retry-After", "1")
		case errBodyTime: // net/http would wait for the rest of the body before it answers
			_ = http.NewResponseController(w).SetReadDeadline(time.Unix(1, 0)) // not every server supports it
		}
		Problem(w, body.Status, body.detail)
	case errors.Is(err, os.ErrDeadlineExceeded): // of the connection; a context has another error
		Problem(w, http.StatusRequestTimeout, "The request's body did not arrive in time.")
	default:
		return false
	}
	return true
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
				Reject(w, strange)
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}

// Rejected counts the requests that are rejected before any rule counts them, by reason.
type Rejected struct {
	path, length atomic.Int64
	bodies       [len(BodyReasons)]atomic.Int64 // by the index in BodyReasons
}

// ByReason returns the counts. Those about bodies are among them if bodies says that rules read some, or if
// there are any.
func (n *Rejected) ByReason(bodies bool) map[string]int64 {
	counts := map[string]int64{"path": n.path.Load(), "path_length": n.length.Load()}
	for i, reason := range BodyReasons {
		if count := n.bodies[i].Load(); bodies || count > 0 {
			counts[reason] = count
		}
	}
	return counts
}

// Count counts a request that is rejected because of its path or its body, if err says so, and returns err.
func (n *Rejected) Count(err error) error {
	var strange *rule.PathError
	var body *BodyError
	switch {
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
