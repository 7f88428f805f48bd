// SPDX-License-Identifier: MIT

package diana

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"sync/atomic"

	"github.com/diana-limiter/diana/internal/paths"
	"github.com/diana-limiter/diana/rule"
)

// Handler rejects a request that it cannot evaluate: with 414 if the path is longer than
// paths.MaxLength, with 400 if it is strange, and with 408 if a body that it needs does not arrive.
// No rule counts it.

// rejected counts the requests that are rejected, by reason.
type rejected struct{ path, length atomic.Int64 }

// Rejected returns how many requests were rejected because of their path, by reason: "path" for
// one that no honest client sends, "path_length" for one that is too long.
func (l *Limiter) Rejected() map[string]int64 {
	return map[string]int64{"path": l.rejected.path.Load(), "path_length": l.rejected.length.Load()}
}

// reject counts a request that is rejected because of err, and returns err.
func (l *Limiter) reject(err *rule.PathError) error {
	if err == rule.ErrPathLong {
		l.rejected.length.Add(1)
	} else {
		l.rejected.path.Add(1)
	}
	return err
}

// pathOf returns the path that a request is evaluated by: escaped, as it was sent.
func pathOf(r *http.Request) (string, *rule.PathError) {
	path := r.URL.EscapedPath()
	switch {
	case r.URL.Opaque != "": // what a server makes of it cannot be known
		return "", paths.Check(r.URL.Opaque)
	case path == "" || path == "*" && r.Method == http.MethodOptions:
		return "/", nil
	case path[0] != '/':
		return "", paths.Check(path)
	}
	return path, nil
}

// refusedPath returns what a client is told of a path that is refused.
func refusedPath(err *rule.PathError) string {
	return "This request was refused because " + err.Error() + "."
}

// answerError answers a request that could not be evaluated because of the client, and reports
// whether err, of Take, is such an error.
func answerError(w http.ResponseWriter, err error) bool {
	var strange *rule.PathError
	switch {
	case errors.As(err, &strange):
		answerProblem(w, strange.Status(), refusedPath(strange))
	case errors.Is(err, os.ErrDeadlineExceeded): // of the connection: that of a context is another
		answerProblem(w, http.StatusRequestTimeout, "The request's body did not arrive in time.")
	default:
		return false
	}
	return true
}

// answerProblem answers with a problem of RFC 9457.
func answerProblem(w http.ResponseWriter, status int, detail string) {
	h := w.Header()
	h["Cache-Control"], h["Content-Type"] = noStore, problemJSON
	w.WriteHeader(status)
	_, _ = fmt.Fprintf(w, "{\"type\":\"about:blank\",\"title\":%q,\"status\":%d,\"detail\":%q}\n",
		http.StatusText(status), status, detail) // a client that is gone needs no answer
}
