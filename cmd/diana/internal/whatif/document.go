// SPDX-License-Identifier: MIT

package whatif

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/diana-limiter/diana/config"
	"github.com/diana-limiter/diana/internal/plan"
)

const (
	mostBody = 2 << 20
	proposed = "proposed" // the name of a proposed document
)

// Mistake is a mistake in a proposed document, or something that its author probably did not mean.
type Mistake struct {
	Line    int    `json:"line"`
	Column  int    `json:"column"`
	Message string `json:"message"`
}

// Validity is what POST /api/v1/validate answers.
type Validity struct {
	Valid    bool      `json:"valid"`
	Errors   []Mistake `json:"errors"`
	Warnings []Mistake `json:"warnings"`
	Rules    int       `json:"rules"`
	Version  string    `json:"version"`
}

func (w *WhatIf) validate(out http.ResponseWriter, r *http.Request) {
	text, ok := textOf(out, r)
	if !ok {
		return
	}
	c, rules, err := w.parse(text)
	if errors.Is(err, errBusy) {
		refuse(out, http.StatusTooManyRequests, err.Error(), nil)
		return
	}
	v := Validity{Valid: err == nil, Errors: mistakes(err), Warnings: []Mistake{}}
	if err == nil {
		v.Warnings, v.Rules, v.Version = mistakes(c.Warnings), rules, c.Version
	}
	answer(out, v)
}

func (w *WhatIf) whatIf(out http.ResponseWriter, r *http.Request) {
	text, ok := textOf(out, r)
	if !ok {
		return
	}
	c, _, err := w.parse(text)
	switch {
	case errors.Is(err, errBusy):
		refuse(out, http.StatusTooManyRequests, err.Error(), nil)
		return
	case err != nil:
		refuse(out, http.StatusUnprocessableEntity, "The proposed configuration is not valid.", mistakes(err))
		return
	}
	result, err := w.Compute(r.Context(), c)
	var late unfinished
	switch {
	case err == nil:
		answer(out, result)
	case errors.Is(err, errBusy):
		refuse(out, http.StatusTooManyRequests, err.Error(), nil)
	case errors.Is(err, errNone):
		refuse(out, http.StatusConflict, err.Error(), nil)
	case errors.As(err, &late), errors.Is(err, context.Canceled):
		refuse(out, http.StatusServiceUnavailable, err.Error(), nil)
	default:
		refuse(out, http.StatusUnprocessableEntity, err.Error(), mistakes(err))
	}
}

// parse returns the configuration that a text would put in force, and its number of rules. The text is a whole
// configuration or, if the gateway follows a remote configuration, a document of that.
func (w *WhatIf) parse(text string) (c *config.Config, rules int, err error) {
	if !w.parsing.TryLock() {
		return nil, 0, errBusy
	}
	defer w.parsing.Unlock()
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
	if err != nil {
		return nil, 0, err
	}
	if w.options.Accept != nil {
		if err := w.options.Accept(c); err != nil {
			return nil, 0, err
		}
	}
	set, err := plan.Compile(c.Limits, c.Identity, c.Paths, v.Actors)
	if err != nil {
		return nil, 0, err
	}
	return c, len(set.Rules), nil
}

// mistakes returns the mistakes of an error, which may be nil.
func mistakes(err error) []Mistake {
	list := []Mistake{}
	var of config.Errors
	switch {
	case err == nil:
	case errors.As(err, &of):
		for _, e := range of {
			list = append(list, Mistake{e.Line, e.Column, e.Message})
		}
	default:
		list = append(list, Mistake{1, 1, err.Error()})
	}
	return list
}

// textOf returns the text in the body of a request. Otherwise it answers the request.
func textOf(w http.ResponseWriter, r *http.Request) (text string, ok bool) {
	const expected = `expected {"text": "..."}`
	var body struct {
		Text *string `json:"text"`
	}
	decoder := json.NewDecoder(http.MaxBytesReader(w, r.Body, mostBody))
	decoder.DisallowUnknownFields()
	err := decoder.Decode(&body)
	if err == nil {
		if _, more := decoder.Token(); !errors.Is(more, io.EOF) {
			err = errors.New("found more after it")
		}
	}
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		refuse(w, http.StatusRequestEntityTooLarge, fmt.Sprintf("expected a body of at most %d bytes", mostBody), nil)
	case err != nil:
		refuse(w, http.StatusBadRequest, expected+": "+err.Error(), nil)
	case body.Text == nil:
		refuse(w, http.StatusBadRequest, expected, nil)
	default:
		return *body.Text, true
	}
	return "", false
}

func answer(w http.ResponseWriter, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	_ = json.NewEncoder(w).Encode(body) // a client that has disconnected needs no answer
}

// refuse answers with a problem of RFC 9457.
func refuse(w http.ResponseWriter, status int, detail string, found []Mistake) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(struct {
		Title  string    `json:"title"`
		Status int       `json:"status"`
		Detail string    `json:"detail"`
		Errors []Mistake `json:"errors,omitempty"`
	}{http.StatusText(status), status, detail, found})
}
