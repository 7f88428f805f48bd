// SPDX-License-Identifier: MIT

package envoy

import (
	"slices"
	"testing"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

const debitLimits = `
domain: shop
descriptors:
- key: tokens
  rate_limit: {unit: day, requests_per_unit: 10, debit: true}
- key: bucket
  rate_limit: {unit: day, requests_per_unit: 10, algo: TB, debit: true}
- key: requests
  rate_limit: {unit: day, requests_per_unit: 100}
- key: users
  rate_limit: {unit: day, requests_per_unit: 5}
`

// A request that a limit with debit refuses is charged to that limit and to no other. A request that
// another limit refuses is charged to none, and nothing is refunded for it.
func TestDebitBesideOthers(t *testing.T) {
	t.Parallel()
	onBothStores(t, debitLimits, func(t *testing.T, open func(...func(*RateLimitOptions)) *RateLimit) {
		s := open()
		hits := func(n uint32, texts ...string) string {
			r := request(texts...)
			r.HitsAddend = n
			return ask(t, s, r)
		}
		for i, row := range []struct{ got, want string }{
			{hits(11, "tokens=1"), "over | over 0 of 10/day"},
			{hits(1, "tokens=1", "requests=1"), "over | over 0 of 10/day | ok 100 of 100/day"},
			{hits(100, "requests=1"), "ok | ok 0 of 100/day"},
			{hits(1, "tokens=2", "requests=1"), "over | ok 10 of 10/day | over 0 of 100/day"},
			{hits(10, "tokens=2"), "ok | ok 0 of 10/day"},
			{hits(4, "users=1"), "ok | ok 1 of 5/day"},
			{hits(1, "tokens=1", "requests=1", "users=1")[:4], "over"}, // a remembered refusal leaves out what remains
			{hits(1, "users=1"), "ok | ok 0 of 5/day"},
		} {
			if row.got != row.want {
				t.Errorf("%d: %s, want %s", i, row.got, row.want)
			}
		}
	})
}

// A refusal by a limit with debit says after how long the limit is open again, and so does one of a request
// that only looks.
func TestRetryAfterOfADebit(t *testing.T) {
	t.Parallel()
	onBothStores(t, debitLimits, func(t *testing.T, open func(...func(*RateLimitOptions)) *RateLimit) {
		s := open()
		for _, text := range []string{"tokens=1", "bucket=1"} {
			for _, n := range []uint64{100, 1, 0} {
				r := request(text)
				r.Descriptors[0].HitsAddend = wrapperspb.UInt64(n)
				answer, err := s.ShouldRateLimit(t.Context(), r)
				if err != nil {
					t.Fatal(err)
				}
				has := slices.ContainsFunc(answer.GetResponseHeadersToAdd(), func(h *core.HeaderValue) bool { return h.GetKey() == "Retry-After" })
				if answer.GetOverallCode() != rls.RateLimitResponse_OVER_LIMIT || !has && n != 100 {
					t.Errorf("%s, %d hits: %v", text, n, answer)
				}
			}
		}
	})
}
