// SPDX-License-Identifier: MIT

package diana

import (
	"fmt"
	"net/http"
	"sync/atomic"

	"github.com/diana-limiter/diana/rule"
)

// Handler rejects a request whose path it cannot evaluate: with 414 if the path is longer than
// rule.MaxPath, else with 400. No rule counts it.

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
		return "", rule.CheckPath(r.URL.Opaque)
	case path == "" || path == "*" && r.Method == http.MethodOptions:
		return "/", nil
	case path[0] != '/':
		return "", rule.CheckPath(path)
	}
	return path, nil
}

// answerRejected answers a request that is rejected because of err.
func answerRejected(w http.ResponseWriter, err *rule.PathError) {
	status := err.Status()
	h := w.Header()
	h["Cache-Control"], h["Content-Type"] = noStore, problemJSON
	w.WriteHeader(status)
	_, _ = fmt.Fprintf(w, "{\"type\":\"about:blank\",\"title\":%q,\"status\":%d,\"detail\":%q}\n",
		http.StatusText(status), status, "This request was refused because "+err.Error()+".") // a client that is gone needs no answer
}
