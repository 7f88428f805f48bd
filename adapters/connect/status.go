// SPDX-License-Identifier: MIT

package dianaconnect

import (
	"context"
	"errors"
	"net/http"

	"connectrpc.com/connect"

	"github.com/diana-limiter/diana"
)

// statuses are the HTTP statuses of no error and of the codes from canceled to unauthenticated, as
// google/rpc/code.proto lists them. The Connect protocol sends the same for unary calls.
var statuses = [...]int{200, 499, 500, 400, 504, 404, 409, 403, 429, 400, 409, 400, 501, 500, 503, 500, 401}

// codeOf returns the code that a handler sends for an error.
func codeOf(err error) connect.Code {
	if err == nil {
		return 0
	}
	if coded, ok := errors.AsType[*connect.Error](err); ok {
		return coded.Code()
	}
	switch {
	case errors.Is(err, context.Canceled):
		return connect.CodeCanceled
	case errors.Is(err, context.DeadlineExceeded):
		return connect.CodeDeadlineExceeded
	}
	return connect.CodeUnknown
}

// settle refunds a call under the rules that count other statuses than that of its error. The call stays
// charged if its context has ended; otherwise a client could avoid a charge by disconnecting.
func settle(ctx context.Context, d *diana.Decision, method string, err error) {
	switch code := int(codeOf(err)); {
	case ctx.Err() != nil:
	case method == http.MethodGet && connect.IsNotModifiedError(err):
		d.SetStatus(http.StatusNotModified)
	case code < len(statuses):
		d.SetStatus(statuses[code])
	default:
		d.SetStatus(http.StatusInternalServerError)
	}
}
