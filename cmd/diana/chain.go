// SPDX-License-Identifier: MIT

package main

import "net/http"

// filter is a link of a chain of responsibility. It answers a request or passes it to the next
// link.
type filter func(next http.Handler) http.Handler

// chain puts filters in front of a handler. The first filter receives a request first.
func chain(last http.Handler, filters ...filter) http.Handler {
	for i := len(filters) - 1; i >= 0; i-- {
		last = filters[i](last)
	}
	return last
}
