// SPDX-License-Identifier: MIT

package admin

import (
	"fmt"
	"net/http"
	"net/netip"
	"slices"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/cmd/diana/internal/adminapi"
	"github.com/diana-limiter/diana/cmd/diana/internal/command"
	"github.com/diana-limiter/diana/limit"
)

// PeekRequest is the body of POST /api/v1/peek: a request as a client would send it. Its body is not sent, only the
// actors that rules read from it.
type PeekRequest struct {
	Request string            `json:"request"` // the request line and the header
	Actors  map[string]string `json:"actors"`  // as rule.Request has them
	From    netip.Addr        `json:"from"`
}

// PeekAnswer is the body of the answer.
type PeekAnswer struct {
	Rules    []PeekedRule `json:"rules"`
	Excepted []string     `json:"excepted"` // says which rules skip the request, and why
	Version  string       `json:"version"`  // of the configuration in force
	Degraded bool         `json:"degraded"` // Redis is unavailable, so the gateway counts global rules by itself
}

// PeekedRule is a rule that evaluates the request, with what it has left for its actor.
type PeekedRule struct {
	command.Explained
	Remaining    *int64   `json:"remaining"`     // nil: unknown
	ResetSeconds *float64 `json:"reset_seconds"` // until the counter is as if the actor had sent nothing; nil: never, or unknown
}

// mostPeek is the longest body of POST /api/v1/peek, in bytes.
const mostPeek = 64 << 10

// RegisterPeek returns what adds the route that evaluates a request and changes nothing. GET /api/v1/actor asks for a
// key, which does not say which class or override the client has.
func RegisterPeek(limiter *diana.Limiter) func(*http.ServeMux) {
	return func(mux *http.ServeMux) {
		mux.HandleFunc("POST /api/v1/peek", func(w http.ResponseWriter, r *http.Request) {
			const expected = `{"request": "GET /PATH HTTP/1.1\r\nHost: NAME\r\n\r\n", "from": "IP"}`
			var body PeekRequest
			if !adminapi.Read(w, r, expected, mostPeek, &body) {
				return
			}
			if body.Request == "" || !body.From.IsValid() {
				adminapi.Problem(w, http.StatusBadRequest, "expected "+expected)
				return
			}
			version := limiter.Config().Version
			what, err := command.ReadRequest(body.Request, body.From)
			var d diana.Decision
			var explained []diana.Explanation
			if err == nil {
				what.Actors = body.Actors
				d, err = limiter.Peek(r.Context(), *what)
			}
			if err == nil {
				explained, err = limiter.Explain(*what)
			}
			if err != nil {
				adminapi.Problem(w, http.StatusBadRequest, fmt.Sprintf("The request is not evaluated: %v", err))
				return
			}
			adminapi.Answer(w, answerOf(version, &d, explained))
		})
	}
}

// answerOf returns the answer for a decision of Peek and the explanation of its rules.
func answerOf(version string, d *diana.Decision, explained []diana.Explanation) PeekAnswer {
	answer := PeekAnswer{Rules: []PeekedRule{}, Excepted: []string{}, Version: version, Degraded: d.Degraded}
	for _, e := range explained {
		if e.Excepted {
			answer.Excepted = append(answer.Excepted, command.ExceptedBy(e))
			continue
		}
		i := slices.IndexFunc(d.Verdicts, func(v diana.Verdict) bool { return v.Rule.Name == e.Rule.Name })
		if i < 0 {
			continue // a reload has added the rule meanwhile
		}
		v := &d.Verdicts[i]
		of := PeekedRule{Explained: command.ExplainedBy(e)}
		if v.Remaining != limit.Unknown {
			of.Remaining = &v.Remaining
		}
		if v.Reset > 0 {
			seconds := float64(v.Reset) / 1e6
			of.ResetSeconds = &seconds
		}
		answer.Rules = append(answer.Rules, of)
	}
	return answer
}
