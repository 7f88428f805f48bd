// SPDX-License-Identifier: MIT

package admin

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"

	"github.com/diana-limiter/diana/cmd/diana/internal/adminapi"
	"github.com/diana-limiter/diana/cmd/diana/internal/command"
	"github.com/diana-limiter/diana/config"
	"github.com/diana-limiter/diana/internal/plan"
)

// Resetter forgets what a rule has counted under a key.
type Resetter func(ctx context.Context, rule string, actor ...string) error

// ResetRequest is the body of POST /reset. The actor is written as for plan.Set.ActorKeys.
type ResetRequest struct {
	Rule  string         `json:"rule"`
	Actor adminapi.Texts `json:"actor"`
}

// ResetAnswer is the body of the answer.
type ResetAnswer struct {
	Rule   string   `json:"rule"`
	Actors []string `json:"actors"` // the keys, as plan.ActorText writes them
}

// mostReset is the longest body of POST /reset, in bytes.
const mostReset = 64 << 10

// Reset returns the handler of POST /reset, which forgets what a rule has counted of an actor.
func Reset(active func() *config.Config, reset Resetter, logger *slog.Logger) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		const expected = `{"rule": "NAME", "actor": "VALUE"}`
		var body ResetRequest
		if !adminapi.Read(w, r, expected, mostReset, &body) {
			return
		}
		if body.Rule == "" || len(body.Actor) == 0 {
			adminapi.Problem(w, http.StatusBadRequest, "expected "+expected)
			return
		}
		set, err := command.Compile(active())
		if err != nil {
			adminapi.Problem(w, http.StatusInternalServerError, err.Error())
			return
		}
		of, err := set.Named(body.Rule)
		if err != nil {
			adminapi.Problem(w, http.StatusNotFound, err.Error())
			return
		}
		keys, err := plan.ActorKeys(set, of, body.Actor)
		if err != nil {
			adminapi.Problem(w, http.StatusBadRequest, err.Error())
			return
		}
		answer := ResetAnswer{Rule: of.Name, Actors: []string{}}
		for _, key := range keys {
			if err := reset(r.Context(), of.Name, plan.ActorText(key)); err != nil {
				logger.Error("counter not reset", "rule", of.Name, "actor", key, "error", err)
				adminapi.Problem(w, http.StatusServiceUnavailable, fmt.Sprintf("The counter could not be reset: %v", err))
				return
			}
			logger.Info("counter reset", "rule", of.Name, "actor", key)
			answer.Actors = append(answer.Actors, plan.ActorText(key))
		}
		adminapi.Answer(w, answer)
	})
}
