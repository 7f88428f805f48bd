// SPDX-License-Identifier: MIT

// Package calls has what the adapters for gRPC and Connect share: what a decision means for a call, and the charges
// of the messages of a stream.
package calls

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/rule"
)

// statuses are the HTTP statuses of the codes from OK to UNAUTHENTICATED, as google/rpc/code.proto lists them. The
// Connect protocol sends the same for unary calls. adapters/grpc/README.md has them by name.
var statuses = [...]int{200, 499, 500, 400, 504, 404, 409, 403, 429, 400, 409, 400, 501, 500, 503, 500, 401}

// Settle refunds a call under the rules that count other statuses than that of its code. The call stays charged if
// its context has ended; otherwise a client could avoid a charge by disconnecting.
func Settle(ctx context.Context, d *diana.Decision, code uint32) {
	switch {
	case ctx.Err() != nil:
	case code < uint32(len(statuses)):
		d.SetStatus(statuses[code])
	default:
		d.SetStatus(http.StatusInternalServerError)
	}
}

// Rejected returns the code of a call for which Take has returned err, and the reason. The code is 0 if err is that of
// a context.
func Rejected(err error) (code uint32, reason string) {
	const invalidArgument, resourceExhausted, unavailable, unauthenticated = 3, 8, 14, 16
	if strange, ok := errors.AsType[*rule.PathError](err); ok {
		return invalidArgument, strange.Error()
	}
	credential, ok := errors.AsType[*rule.CredentialError](err)
	if !ok {
		return 0, ""
	}
	switch credential.Status {
	case http.StatusUnauthorized:
		code = unauthenticated
	case http.StatusTooManyRequests:
		code = resourceExhausted
	default:
		code = unavailable
	}
	return code, credential.Reason
}

// Refusing returns the names of the rules that refuse a call, in valid UTF-8 as protobuf wants it.
func Refusing(d *diana.Decision) (names []string) {
	for i := range d.Verdicts {
		if v := &d.Verdicts[i]; v.Refused() {
			names = append(names, strings.ToValidUTF8(v.Rule.Name, "\uFFFD"))
		}
	}
	return names
}
