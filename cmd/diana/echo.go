// SPDX-License-Identifier: MIT

package main

import (
	"encoding/json"
	"net/http"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/internal/plan"
)

// echo returns the handler that stands in for an upstream where there is none. It
// answers with the request, and with what each rule has counted it under.
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
		a := answer{Method: r.Method, Path: r.URL.EscapedPath(), Actors: []actor{}}
		explained, _ := limiter.Explain(diana.Request{Method: a.Method, Path: a.Path, HTTP: r}) // none of a path that a new configuration refuses
		for _, e := range explained {
			if !e.Excepted {
				a.Actors = append(a.Actors, actor{e.Rule.Name, plan.ActorText(e.Key)})
			}
		}
		w.Header().Set("Content-Type", "application/json")
		encoder := json.NewEncoder(w)
		encoder.SetEscapeHTML(false) // no browser takes this type for HTML
		_ = encoder.Encode(a)        // a client that is gone needs no answer
	})
}
