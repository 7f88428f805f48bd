// SPDX-License-Identifier: MIT

package whatif

import (
	"context"
	"errors"
	"net/http"

	"github.com/diana-limiter/diana/cmd/diana/internal/adminapi"
	"github.com/diana-limiter/diana/config"
	"github.com/diana-limiter/diana/config/diff"
	"github.com/diana-limiter/diana/internal/plan"
)

// proposed is the name of a proposed document.
const proposed = "proposed"

// Validity is what POST /api/v1/validate answers.
type Validity struct {
	Valid    bool               `json:"valid"`
	Errors   []adminapi.Mistake `json:"errors"`
	Warnings []adminapi.Mistake `json:"warnings"`
	Rules    int                `json:"rules"`
	Version  string             `json:"version"`
}

// Comparison is what POST /api/v1/compare answers.
type Comparison struct {
	Diff  []string `json:"diff"`  // from the configuration in force
	Risks []string `json:"risks"` // those that diana push asks about
}

// proposed returns the configuration in the body of a request, and its number of rules, or why it is not valid. It
// answers itself if that is not known.
func (w *WhatIf) proposed(out http.ResponseWriter, r *http.Request) (c *config.Config, rules int, known bool, err error) {
	const expected = `{"text": "..."}`
	var body struct {
		Text *string `json:"text"`
	}
	if !adminapi.Read(out, r, expected, adminapi.MostBody, &body) {
		return nil, 0, false, nil
	}
	if body.Text == nil {
		adminapi.Problem(out, http.StatusBadRequest, "expected "+expected)
		return nil, 0, false, nil
	}
	if c, rules, err = w.parse(r, *body.Text); errors.Is(err, errBusy) {
		adminapi.Problem(out, http.StatusTooManyRequests, err.Error())
		return nil, 0, false, nil
	}
	return c, rules, true, err
}

// valid returns the configuration in the body of a request. It answers if there is none that is valid.
func (w *WhatIf) valid(out http.ResponseWriter, r *http.Request) (*config.Config, bool) {
	c, _, known, err := w.proposed(out, r)
	if err != nil {
		adminapi.ProblemWith(out, http.StatusUnprocessableEntity, "The proposed configuration is not valid.", map[string]any{"errors": adminapi.Mistakes(err)})
	}
	return c, known && err == nil
}

func (w *WhatIf) validate(out http.ResponseWriter, r *http.Request) {
	c, rules, known, err := w.proposed(out, r)
	switch {
	case !known:
	case err != nil:
		adminapi.Answer(out, Validity{Errors: adminapi.Mistakes(err), Warnings: []adminapi.Mistake{}})
	default:
		adminapi.Answer(out, Validity{true, adminapi.Mistakes(nil), adminapi.Mistakes(c.Warnings), rules, c.Version})
	}
}

// compare answers POST /compare.
func (w *WhatIf) compare(out http.ResponseWriter, r *http.Request) {
	if to, ok := w.valid(out, r); ok {
		now := w.options.Config()
		adminapi.Answer(out, Comparison{append([]string{}, diff.Configs(now, to)...), append([]string{}, diff.Risks(now, to)...)})
	}
}

func (w *WhatIf) whatIf(out http.ResponseWriter, r *http.Request) {
	c, ok := w.valid(out, r)
	if !ok {
		return
	}
	result, err := w.Compute(r.Context(), c, !w.options.Stranger(r))
	var late unfinished
	switch {
	case err == nil:
		adminapi.Answer(out, result)
	case errors.Is(err, errBusy):
		adminapi.Problem(out, http.StatusTooManyRequests, err.Error())
	case errors.Is(err, errNone):
		adminapi.Problem(out, http.StatusConflict, err.Error())
	case errors.As(err, &late), errors.Is(err, context.Canceled):
		adminapi.Problem(out, http.StatusServiceUnavailable, err.Error())
	default:
		adminapi.ProblemWith(out, http.StatusUnprocessableEntity, err.Error(), map[string]any{"errors": adminapi.Mistakes(err)})
	}
}

// parse returns the configuration that a text would put in force, and its number of rules. The text is a whole
// configuration. If the gateway follows a remote configuration, the text can be a document of that too, and is read
// as one first.
func (w *WhatIf) parse(r *http.Request, text string) (c *config.Config, rules int, err error) {
	if !w.parsing.enter(r.Context(), !w.options.Stranger(r)) {
		return nil, 0, errBusy
	}
	defer w.parsing.leave()
	v, now := w.options.Vocabulary, w.options.Config()
	if now.Remote == nil {
		c, err = v.Parse(proposed, []byte(text))
	} else if c, err = v.ParseRemote(proposed, []byte(text)); err == nil {
		c = now.WithRemote(c)
	} else if whole, failed := v.Parse(proposed, []byte(text)); failed == nil && whole.HasSettings() {
		if c, err = whole, nil; len(whole.Limits) == 0 {
			c.Limits = now.Limits // which the remote configuration has
		}
	}
	if err == nil {
		err = w.options.Accept(c)
	}
	if err != nil {
		return nil, 0, err
	}
	set, err := plan.Compile(c.Limits, c.Identity, c.Paths, v.Actors)
	if err != nil {
		return nil, 0, err
	}
	return c, len(set.Rules), nil
}
