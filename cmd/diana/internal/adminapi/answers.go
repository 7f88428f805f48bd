// SPDX-License-Identifier: MIT

// Package adminapi has what all routes of the administrators' listener share: how they read bodies, and answer.
package adminapi

import (
	"encoding/json"
	"errors"
	"maps"
	"net/http"

	"github.com/diana-limiter/diana/config"
)

// Answer answers with a value as JSON.
func Answer(w http.ResponseWriter, value any) { write(w, http.StatusOK, "application/json", value) }

// Problem answers with a problem of RFC 9457.
func Problem(w http.ResponseWriter, status int, detail string) { ProblemWith(w, status, detail, nil) }

// ProblemWith is Problem with more members.
func ProblemWith(w http.ResponseWriter, status int, detail string, more map[string]any) {
	body := map[string]any{"title": http.StatusText(status), "status": status, "detail": detail}
	maps.Copy(body, more)
	write(w, status, "application/problem+json", body)
}

func write(w http.ResponseWriter, status int, contentType string, body any) {
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // a client that has disconnected needs no answer
}

// Texts is a text in JSON, or a list of texts.
type Texts []string

// UnmarshalJSON implements json.Unmarshaler.
func (t *Texts) UnmarshalJSON(data []byte) error {
	var one string
	if json.Unmarshal(data, &one) == nil {
		*t = Texts{one}
		return nil
	}
	return json.Unmarshal(data, (*[]string)(t))
}

// Mistake is a mistake in a text, or something that its author probably did not mean.
type Mistake struct {
	Line    int    `json:"line"`
	Column  int    `json:"column"`
	Message string `json:"message"`
}

// Mistakes returns the mistakes of an error of a configuration, none if it is nil. Another error is one at the
// beginning of the text.
func Mistakes(err error) []Mistake {
	list := []Mistake{}
	var of config.Errors
	switch {
	case err == nil:
	case errors.As(err, &of):
		for i, e := range of {
			if e.Line == 0 { // the last one says how many more there are
				e.Line, e.Column = of[i-1].Line, of[i-1].Column
			}
			list = append(list, Mistake{e.Line, e.Column, e.Message})
		}
	default:
		list = append(list, Mistake{1, 1, err.Error()})
	}
	return list
}
