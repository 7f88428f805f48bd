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

// missing is the error of a version that is not kept.
type missing string

func (m missing) Error() string {
	return fmt.Sprintf("there is no version %q, expected one of diana rollback --list", string(m))
}

// Refuse answers with the problem that an error is.
func Refuse(w http.ResponseWriter, err error) {
	var conflict Conflict
	var none missing
	var bad invalid
	switch {
	case errors.As(err, new(unknown)):
		adminapi.Problem(w, http.StatusNotFound, err.Error())
	case errors.As(err, new(Impossible)):
		adminapi.Problem(w, http.StatusUnprocessableEntity, err.Error())
	case errors.As(err, &conflict):
		adminapi.ProblemWith(w, http.StatusConflict, err.Error(), map[string]any{"found": conflict.Found})
	case errors.As(err, &bad):
		adminapi.ProblemWith(w, http.StatusUnprocessableEntity, "The text is not valid: "+firstLine(bad.error), map[string]any{"errors": adminapi.Mistakes(bad.error)})
	case errors.As(err, &none):
		adminapi.Problem(w, http.StatusNotFound, err.Error())
	case errors.Is(err, ErrNone), errors.Is(err, errors.ErrUnsupported):
		adminapi.Problem(w, http.StatusConflict, err.Error())
	default:
		adminapi.Problem(w, http.StatusServiceUnavailable, err.Error())
	}
}

func firstLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return line
}
