// SPDX-License-Identifier: MIT

package envoy

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"unicode"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
)

// mostJSON is the size of the largest request in JSON, in bytes.
const mostJSON = 4 << 20

// ServeHTTP answers a RateLimitRequest in JSON, as POST /json of envoyproxy/ratelimit does. The status is
// 200, or 429 if a limit is used up. A request that cannot be understood gets 400 and a text, as there.
func (s *RateLimit) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		s.answerInvalid(w, http.StatusMethodNotAllowed, fmt.Sprintf("the method: expected POST, found %.20q", r.Method))
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, mostJSON))
	if err != nil {
		code, text := badBody(err)
		s.answerInvalid(w, code, text)
		return
	}
	var q rls.RateLimitRequest
	if err := unmarshal(body, &q); err != nil {
		s.answerInvalid(w, http.StatusBadRequest, err.Error())
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

// answerInvalid answers a request that is not valid.
func (s *RateLimit) answerInvalid(w http.ResponseWriter, code int, text string) {
	_ = told(s.options.OnInvalid, status.Error(codes.InvalidArgument, text))
	http.Error(w, text, code)
}

// badBody returns the status and the text for a body that cannot be read.
func badBody(err error) (code int, text string) {
	var large *http.MaxBytesError
	if errors.As(err, &large) {
		return http.StatusRequestEntityTooLarge, fmt.Sprintf("the body: expected at most %d bytes, found more", mostJSON)
	}
	return http.StatusBadRequest, "the body: " + err.Error()
}

// example is a request as the text of an error shows it.
const example = `{"domain": "shop", "descriptors": [{"entries": [{"key": "user", "value": "ann"}]}]}`

// unmarshal reads a request. The text of an error says where the mistake is, and what a request looks like.
func unmarshal(body []byte, q *rls.RateLimitRequest) error {
	if len(bytes.TrimSpace(body)) == 0 {
		return errors.New("the body is empty, expected such as " + example)
	}
	err := protojson.Unmarshal(body, q)
	if err == nil {
		return nil
	}
	// The prefix of such errors is "proto:" and one of two kinds of space, by chance.
	text := strings.TrimLeftFunc(strings.TrimPrefix(err.Error(), "proto:"), unicode.IsSpace)
	return fmt.Errorf("the body: %s, expected such as %s", text, example)
}
