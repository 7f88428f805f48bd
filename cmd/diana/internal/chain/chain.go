// SPDX-License-Identifier: MIT

// Package chain puts filters in front of a handler.
package chain

import "net/http"

// Filter is a link of a chain of responsibility. It answers a request or passes it to the next
// link.
type Filter func(next http.Handler) http.Handler

// Of puts filters in front of a handler. The first filter receives a request first.
func Of(last http.Handler, filters ...Filter) http.Handler {
	for i := len(filters) - 1; i >= 0; i-- {
		last = filters[i](last)
	}
	return last
}
