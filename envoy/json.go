// SPDX-License-Identifier: MIT

package envoy

import (
	"errors"
	"io"
	"net/http"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
)

// mostJSON is the size of the largest request in JSON, in bytes.
const mostJSON = 4 << 20

// ServeHTTP answers a RateLimitRequest in JSON, as POST /json of envoyproxy/ratelimit does. The status is
// 200, or 429 if a limit is used up. A request that cannot be understood gets 400 and a text.
func (s *RateLimit) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		http.Error(w, "expected POST", http.StatusMethodNotAllowed)
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, mostJSON))
	if err != nil {
		http.Error(w, err.Error(), badBody(err))
		return
	}
	var q rls.RateLimitRequest
	if err := protojson.Unmarshal(body, &q); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	answer, err := s.ShouldRateLimit(r.Context(), &q)
	switch {
	case status.Code(err) == codes.InvalidArgument:
		http.Error(w, status.Convert(err).Message(), http.StatusBadRequest)
		return
	case err != nil:
		http.Error(w, status.Convert(err).Message(), http.StatusInternalServerError)
		return
	}
	text, err := protojson.Marshal(answer)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if answer.GetOverallCode() == rls.RateLimitResponse_OVER_LIMIT {
		w.WriteHeader(http.StatusTooManyRequests)
	}
	_, _ = w.Write(text) // a client that has disconnected needs no answer
}

// badBody returns the status for a body that cannot be read.
func badBody(err error) int {
	var large *http.MaxBytesError
	if errors.As(err, &large) {
		return http.StatusRequestEntityTooLarge
	}
	return http.StatusBadRequest
}
