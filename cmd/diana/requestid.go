// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"net/http"
	"strings"
)

// requestIDField names a request in logs on both sides of the gateway.
const requestIDField = "X-Request-Id"

type requestIDKey struct{}

// requestID is a filter that gives each request an ID: the one that it came with, if
// that can be written to a log and a header without harm, or else a new one. The
// answer carries it, and the proxy passes it on.
func requestID(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := r.Header.Get(requestIDField)
		if !saneID(id) {
			id = newID()
		}
		w.Header().Set(requestIDField, id)
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), requestIDKey{}, id)))
	})
}

// requestIDOf returns the ID of the request with this context; "" if it has none.
func requestIDOf(ctx context.Context) string {
	id, _ := ctx.Value(requestIDKey{}).(string)
	return id
}

// saneID reports whether an ID made by others is one: a short text of letters,
// digits and the marks that IDs in use are written with.
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
