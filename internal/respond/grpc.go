// SPDX-License-Identifier: MIT

package respond

import (
	"net/http"
	"strconv"
	"strings"

	"github.com/diana-limiter/diana/internal/fields"
)

// mediaGRPC is the media type of gRPC over HTTP/2. Others begin with it, such as application/grpc+proto.
const mediaGRPC = "application/grpc"

// overGRPC reports whether a request is a call of gRPC. A nil request is none.
func overGRPC(r *http.Request) bool {
	if r == nil || r.ProtoMajor != 2 {
		return false
	}
	rest, ok := strings.CutPrefix(r.Header.Get("Content-Type"), mediaGRPC)
	return ok && (rest == "" || rest[0] == '+' || rest[0] == ';')
}

// serveGRPC writes the refusal of a call. It is RESOURCE_EXHAUSTED in the form that gRPC calls Trailers-Only: a
// header without a body. A client would read any other status of HTTP as UNAVAILABLE, and would often
// repeat the call at once. The fields that a refusal has over HTTP are metadata of the call.
func (f *Refusal) serveGRPC(w http.ResponseWriter) {
	message := "The limits never allow this call. Repeating it does not help."
	if !f.Never {
		message = "This call is more than the limits allow. It may be repeated in " + strconv.FormatInt(fields.Seconds(f.RetryAfter), 10) + " s."
	}
	h := w.Header()
	h.Set("Content-Type", mediaGRPC)
	h.Set("Grpc-Status", "8") // RESOURCE_EXHAUSTED
	h.Set("Grpc-Message", message)
	w.WriteHeader(http.StatusOK)
}
