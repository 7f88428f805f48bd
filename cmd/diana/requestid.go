// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"net/http"
	"strings"
)

// requestIDField is the field with the ID of a request, by which logs on both sides of the gateway
// name it. The name is canonical, so it is a key of http.Header.
const requestIDField = "X-Request-Id"

type requestIDKey struct{}

// requestID is a filter that gives each request an ID. It keeps the client's ID if that is safe to
// write to a log and a header, and makes a new one otherwise. The filter sets the ID in the answer,
// and the proxy sends it to the upstream.
func requestID(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var id string
		if values := r.Header[requestIDField]; len(values) > 0 {
			id = values[0]
		}
		if !saneID(id) {
			id = newID()
		}
		w.Header()[requestIDField] = []string{id}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), requestIDKey{}, id)))
	})
}

// requestIDOf returns the ID of the request with this context; "" if it has none.
func requestIDOf(ctx context.Context) string {
	id, _ := ctx.Value(requestIDKey{}).(string)
	return id
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
