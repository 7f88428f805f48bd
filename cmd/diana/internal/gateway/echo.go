// SPDX-License-Identifier: MIT

package gateway

import (
	"encoding/json"
	"net/http"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/internal/paths"
	"github.com/diana-limiter/diana/internal/plan"
)

// echo returns the handler that answers requests if there is no upstream. The answer has the
// method, the path, and the key under which each rule counted the request.
func echo(limiter *diana.Limiter) http.Handler {
	type actor struct {
		Rule string `json:"rule"`
		Key  string `json:"key"`
	}
	type answer struct {
		Method string  `json:"method"`
		Path   string  `json:"path"`
		Actors []actor `json:"actors"`
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a := answer{Method: r.Method, Path: paths.Sent(r.URL), Actors: []actor{}}
		explained, _ := limiter.Explain(diana.Request{Method: a.Method, Path: a.Path, HTTP: r}) // no rule for a path that a new configuration refuses
		for _, e := range explained {
			if !e.Excepted {
				a.Actors = append(a.Actors, actor{e.Rule.Name, plan.ActorText(e.Key)})
			}
		}
		w.Header().Set("Content-Type", "application/json")
		encoder := json.NewEncoder(w)
		encoder.SetEscapeHTML(false) // the type is not HTML
		_ = encoder.Encode(a)        // a client that has disconnected needs no answer
	})
}
