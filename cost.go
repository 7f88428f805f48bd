// SPDX-License-Identifier: MIT

package diana

import (
	"context"
	"maps"
	"net/http"
	"strconv"
)

// WithCost returns r with a header that says what it costs under the rules that go by that
// header ("cost: header:NAME"), in place of what the client may have written there. It is
// for filters in front of [Limiter.Handler], which believes it; they pass on the request
// that is returned. n below 1 counts as 1, and above 1,000,000 as that.
func WithCost(r *http.Request, header string, n int64) *http.Request {
	header = http.CanonicalHeaderKey(header)
	costs := maps.Clone(costsOf(r))
	if costs == nil {
		costs = map[string]int64{}
	}
	costs[header] = n
	r = r.WithContext(context.WithValue(r.Context(), costsKey{}, costs))
	r.Header = r.Header.Clone()
	r.Header.Set(header, strconv.FormatInt(n, 10))
	return r
}

// costsKey is the key of what filters have said with WithCost.
type costsKey struct{}

func costsOf(r *http.Request) map[string]int64 {
	costs, _ := r.Context().Value(costsKey{}).(map[string]int64)
	return costs
}

// withCosts returns r with what filters have said that it costs, unless its caller has.
func withCosts(r *Request) *Request {
	if r.Costs == nil && r.HTTP != nil {
		r.Costs = costsOf(r.HTTP)
	}
	return r
}
