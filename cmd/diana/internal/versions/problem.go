// SPDX-License-Identifier: MIT

package versions

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strings"

	"github.com/diana-limiter/diana/config"
)

// invalid is the error of a text that is not a valid document.
type invalid struct{ error }

func (i invalid) Unwrap() error { return i.error }

// missing is the error of a version that is not kept.
type missing string

func (m missing) Error() string {
	return fmt.Sprintf("there is no version %q, expected one of diana rollback --list", string(m))
}

// mistake is a mistake in a text.
type mistake struct {
	Line    int    `json:"line"`
	Column  int    `json:"column"`
	Message string `json:"message"`
}

// Refuse answers with the problem that an error is.
func Refuse(w http.ResponseWriter, err error) {
	var conflict Conflict
	var none missing
	var bad invalid
	switch {
	case errors.As(err, &conflict):
		Problem(w, http.StatusConflict, err.Error(), map[string]any{"found": conflict.Found})
	case errors.As(err, &bad):
		Problem(w, http.StatusUnprocessableEntity, "The text is not valid: "+firstLine(bad.error), map[string]any{"errors": mistakes(bad.error)})
	case errors.As(err, &none):
		Problem(w, http.StatusNotFound, err.Error(), nil)
	case errors.Is(err, ErrNone), errors.Is(err, errors.ErrUnsupported):
		Problem(w, http.StatusConflict, err.Error(), nil)
	default:
		Problem(w, http.StatusServiceUnavailable, err.Error(), nil)
	}
}

// Problem answers with a problem of RFC 9457, which has more members besides.
func Problem(w http.ResponseWriter, status int, detail string, more map[string]any) {
	body := map[string]any{"title": http.StatusText(status), "status": status, "detail": detail}
	maps.Copy(body, more)
	w.Header().Set("Content-Type", "application/problem+json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // a client that has disconnected needs no answer
}

// answer answers with a value.
func answer(w http.ResponseWriter, value any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	_ = json.NewEncoder(w).Encode(value) // as above
}

func mistakes(err error) []mistake {
	list := []mistake{}
	var of config.Errors
	if !errors.As(err, &of) {
		return append(list, mistake{1, 1, err.Error()})
	}
	for _, e := range of {
		list = append(list, mistake{e.Line, e.Column, e.Message})
	}
	return list
}

func firstLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return line
}
