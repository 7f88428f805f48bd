// SPDX-License-Identifier: MIT

package dianagrpc

import (
	"context"
	"net/http"

	"google.golang.org/grpc/status"

	"github.com/diana-limiter/diana"
)

// statuses are the HTTP statuses of the codes from OK to UNAUTHENTICATED, as google/rpc/code.proto lists
// them. README.md has them by name.
var statuses = [...]int{200, 499, 500, 400, 504, 404, 409, 403, 429, 400, 409, 400, 501, 500, 503, 500, 401}

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
