// SPDX-License-Identifier: MIT

package versions

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/diana-limiter/diana/cmd/diana/internal/adminapi"
)

// invalid is the error of a text that is not a valid document.
type invalid struct{ error }

func (i invalid) Unwrap() error { return i.error }

// refusal is an error that has a status.
type refusal struct {
	status int
	error
}

func (r refusal) Unwrap() error { return r.error }

// impossible returns the error of an exemption that a document cannot have.
func impossible(format string, args ...any) error {
	return refusal{http.StatusUnprocessableEntity, fmt.Errorf(format, args...)}
}

// Refuse answers with the problem that an error is.
func Refuse(w http.ResponseWriter, err error) {
	var conflict Conflict
	var bad invalid
	var other refusal
	switch {
	case errors.As(err, &conflict):
		adminapi.ProblemWith(w, http.StatusConflict, err.Error(), map[string]any{"found": conflict.Found})
	case errors.As(err, &bad):
		adminapi.ProblemWith(w, http.StatusUnprocessableEntity, "The text is not valid: "+firstLine(bad.error), map[string]any{"errors": adminapi.Mistakes(bad.error)})
	case errors.As(err, &other):
		adminapi.Problem(w, other.status, err.Error())
	case errors.Is(err, errors.ErrUnsupported):
		adminapi.Problem(w, http.StatusConflict, err.Error())
	default:
		adminapi.Problem(w, http.StatusServiceUnavailable, err.Error())
	}
}

func firstLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return line
}
