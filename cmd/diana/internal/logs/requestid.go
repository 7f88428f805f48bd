// SPDX-License-Identifier: MIT

package logs

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"net/http"
	"strings"
)

// RequestIDField is the field with the ID of a request, by which logs on both sides of the gateway
// name it. The name is canonical, so it is a key of http.Header.
const RequestIDField = "X-Request-Id"

type requestIDKey struct{}

// identified is the ID of a request, and the header of its answer.
type identified struct {
	id     string
	answer http.Header
}

// WithRequestID is a filter that gives each request an ID. It keeps the client's ID if that is safe to
// write to a log and a header, and makes a new one otherwise. The proxy sends the ID to the upstream. The
// filter sets it in the answer, unless the upstream's answer has one of its own.
func WithRequestID(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var id string
		if values := r.Header[RequestIDField]; len(values) > 0 {
			id = values[0]
		}
		if !saneID(id) {
			id = newID()
		}
		w.Header()[RequestIDField] = []string{id}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), requestIDKey{}, identified{id, w.Header()})))
	})
}

// RequestIDOf returns the ID of the request with this context; "" if it has none.
func RequestIDOf(ctx context.Context) string {
	i, _ := ctx.Value(requestIDKey{}).(identified)
	return i.id
}

// PreferID lets the answer to the client have the ID that the upstream's answer has, in place of the gateway's.
func PreferID(answer *http.Response) {
	if i, ok := answer.Request.Context().Value(requestIDKey{}).(identified); ok {
		delete(i.answer, RequestIDField)
	}
}

// saneID reports whether the ID of a client is short, and has only letters, digits and the marks of
// common IDs.
func saneID(id string) bool {
	if id == "" || len(id) > 128 {
		return false
	}
	for i := range len(id) {
		switch c := id[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		case strings.IndexByte("-_.:/+=@~", c) >= 0:
		default:
			return false
		}
	}
	return true
}

func newID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}
