// SPDX-License-Identifier: MIT

package dianaconnect

import (
	"context"
	"errors"
	"net/http"

	"connectrpc.com/connect"

	"github.com/diana-limiter/diana"
)

// statuses are the HTTP statuses of the codes, as google/rpc/code.proto lists them, and as the Connect
// protocol sends them for unary calls.
var statuses = [...]int{
	0:                              http.StatusOK,
	connect.CodeCanceled:           499, // the client has disconnected
	connect.CodeUnknown:            http.StatusInternalServerError,
	connect.CodeInvalidArgument:    http.StatusBadRequest,
	connect.CodeDeadlineExceeded:   http.StatusGatewayTimeout,
	connect.CodeNotFound:           http.StatusNotFound,
	connect.CodeAlreadyExists:      http.StatusConflict,
	connect.CodePermissionDenied:   http.StatusForbidden,
	connect.CodeResourceExhausted:  http.StatusTooManyRequests,
	connect.CodeFailedPrecondition: http.StatusBadRequest,
	connect.CodeAborted:            http.StatusConflict,
	connect.CodeOutOfRange:         http.StatusBadRequest,
	connect.CodeUnimplemented:      http.StatusNotImplemented,
	connect.CodeInternal:           http.StatusInternalServerError,
	connect.CodeUnavailable:        http.StatusServiceUnavailable,
	connect.CodeDataLoss:           http.StatusInternalServerError,
	connect.CodeUnauthenticated:    http.StatusUnauthorized,
}

// codeOf returns the code that a handler sends for an error.
func codeOf(err error) connect.Code {
	var coded *connect.Error
	switch {
	case err == nil:
		return 0
	case errors.As(err, &coded):
		return coded.Code()
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
