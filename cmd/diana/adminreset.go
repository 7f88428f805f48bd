// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/config"
	"github.com/diana-limiter/diana/rule"
)

// resetter forgets what a rule has counted under a key.
type resetter func(ctx context.Context, rule, key string) error

// resetterOf returns the resetter of a limiter.
func resetterOf(limiter *diana.Limiter) resetter {
	l, ok := any(limiter).(interface {
		Reset(ctx context.Context, rule, actor string) error
	})
	if !ok {
		return func(context.Context, string, string) error { return errors.ErrUnsupported }
	}
	return l.Reset
}

// resetRequest is the body of POST /reset. The actor is written as for actorKeys.
type resetRequest struct {
	Rule  string `json:"rule"`
	Actor texts  `json:"actor"`
}

// resetAnswer is the body of the answer.
type resetAnswer struct {
	Rule   string   `json:"rule"`
	Actors []string `json:"actors"` // the keys, as rule.ActorText writes them
}

// texts is a text in JSON, or a list of texts.
type texts []string

// UnmarshalJSON implements json.Unmarshaler.
func (t *texts) UnmarshalJSON(data []byte) error {
	var one string
	if json.Unmarshal(data, &one) == nil {
		*t = texts{one}
		return nil
	}
	return json.Unmarshal(data, (*[]string)(t))
}

// mostReset is the longest body of POST /reset, in bytes.
const mostReset = 64 << 10

// newReset returns the handler of POST /reset, which forgets what a rule has counted of an actor.
func newReset(active func() *config.Config, reset resetter, logger *slog.Logger) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := readReset(http.MaxBytesReader(w, r.Body, mostReset))
		if err != nil {
			adminProblem(w, http.StatusBadRequest, err.Error())
			return
		}
		of, err := ruleNamed(active(), body.Rule)
		if err != nil {
			adminProblem(w, http.StatusNotFound, err.Error())
			return
		}
		keys, err := actorKeys(of, &active().Identity, vocabulary(), body.Actor)
		if err != nil {
			adminProblem(w, http.StatusBadRequest, err.Error())
			return
		}
		answer := resetAnswer{Rule: of.Name, Actors: []string{}}
		for _, key := range keys {
			if err := reset(r.Context(), of.Name, key); err != nil {
				logger.Error("counter not reset", "rule", of.Name, "actor", key, "error", err)
				adminProblem(w, http.StatusServiceUnavailable, fmt.Sprintf("The counter could not be reset: %v", err))
				return
			}
			logger.Info("counter reset", "rule", of.Name, "actor", key)
			answer.Actors = append(answer.Actors, rule.ActorText(key))
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "no-store")
		_ = json.NewEncoder(w).Encode(answer) // a client that has disconnected needs no answer
	})
}

// readReset reads the body of POST /reset.
func readReset(body io.Reader) (r resetRequest, err error) {
	const expected = `expected {"rule": "NAME", "actor": "VALUE"}`
	decoder := json.NewDecoder(body)
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&r); err != nil {
		return r, fmt.Errorf("%s: %w", expected, err)
	}
	if _, err := decoder.Token(); err != io.EOF {
		return r, errors.New(expected + ", found more after it")
	}
	if r.Rule == "" || len(r.Actor) == 0 {
		return r, errors.New(expected)
	}
	return r, nil
}

// mostNamed is how many rules an error names.
const mostNamed = 20

// ruleNamed returns the rule of a configuration that has a name.
func ruleNamed(c *config.Config, name string) (*rule.Rule, error) {
	set, err := compile(c)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, r := range set.Rules {
		if r.Name == name {
			return r, nil
		}
		names = append(names, strconv.Quote(r.Name))
	}
	slices.Sort(names)
	if len(names) > mostNamed {
		names = append(names[:mostNamed], "...")
	}
	return nil, fmt.Errorf("no rule has the name %q, expected one of %s", name, strings.Join(names, ", "))
}
