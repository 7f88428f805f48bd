// SPDX-License-Identifier: MIT

package dianagrpc

import (
	"context"
	"net/http"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/diana-limiter/diana"
)

// statuses are the HTTP statuses of the codes, as google/rpc/code.proto lists them.
var statuses = [...]int{
	codes.OK:                 http.StatusOK,
	codes.Canceled:           499, // the client has disconnected
	codes.Unknown:            http.StatusInternalServerError,
	codes.InvalidArgument:    http.StatusBadRequest,
	codes.DeadlineExceeded:   http.StatusGatewayTimeout,
	codes.NotFound:           http.StatusNotFound,
	codes.AlreadyExists:      http.StatusConflict,
	codes.PermissionDenied:   http.StatusForbidden,
	codes.ResourceExhausted:  http.StatusTooManyRequests,
	codes.FailedPrecondition: http.StatusBadRequest,
	codes.Aborted:            http.StatusConflict,
	codes.OutOfRange:         http.StatusBadRequest,
	codes.Unimplemented:      http.StatusNotImplemented,
	codes.Internal:           http.StatusInternalServerError,
	codes.Unavailable:        http.StatusServiceUnavailable,
	codes.DataLoss:           http.StatusInternalServerError,
	codes.Unauthenticated:    http.StatusUnauthorized,
}

// settle refunds a call under the rules that count other statuses than that of its error. The call stays
// charged if its context has ended; otherwise a client could avoid a charge by disconnecting.
func settle(ctx context.Context, d *diana.Decision, err error) {
	if ctx.Err() != nil {
		return
	}
	s, ok := status.FromError(err)
	if !ok {
		s = status.FromContextError(err) // what grpc.Server makes of it
	}
	if code := int(s.Code()); code < len(statuses) {
		d.SetStatus(statuses[code])
		return
	}
	d.SetStatus(http.StatusInternalServerError)
}
