// SPDX-License-Identifier: MIT

package envoy

import (
	"testing"

	"google.golang.org/protobuf/types/known/wrapperspb"
)

const zeroLimits = `
domain: shop
descriptors:
- key: user
  rate_limit: {unit: year, requests_per_unit: 5}
- key: zero
  rate_limit: {unit: year, requests_per_unit: 0}
- key: try
  shadow_mode: true
  rate_limit: {unit: year, requests_per_unit: 0}
- key: tried
  shadow_mode: true
  rate_limit: {unit: year, requests_per_unit: 1}
`

// With ChargeAll, each descriptor also counts beside one with the limit 0, and beside one that only looks.
func TestChargeAllBesideZero(t *testing.T) {
	t.Parallel()
	onBothStores(t, zeroLimits, func(t *testing.T, open func(...func(*RateLimitOptions)) *RateLimit) {
		s := open(func(o *RateLimitOptions) { o.ChargeAll = true })
		look := func(texts ...string) string {
			r := request(texts...)
			r.Descriptors[len(texts)-1].HitsAddend = wrapperspb.UInt64(0)
			return ask(t, s, r)
		}
		for i, row := range []struct{ got, want string }{
			{ask(t, s, request("user=a", "zero=1")), "over | ok 4 of 5/year | over 0 of 0/year"},
			{ask(t, s, request("user=a", "try=1")), "ok | ok 3 of 5/year | ok 0 of 0/year"},
			{look("user=a", "try=1"), "ok | ok 2 of 5/year | ok 0 of 0/year"},
			{look("user=a", "zero=1"), "over | ok 1 of 5/year | over 0 of 0/year"},
			{ask(t, s, request("tried=1")), "ok | ok 0 of 1/year"},
			{ask(t, s, request("tried=1")), "ok | ok 0 of 1/year"},
			{look("user=a", "tried=1"), "ok | ok 0 of 5/year | ok 0 of 1/year"},
			{look("user=a", "user=b"), "over | over 0 of 5/year | ok 5 of 5/year"},
			{look("tried=1", "user=a"), "over | ok 0 of 1/year | over 0 of 5/year"},
		} {
			if row.got != row.want {
				t.Errorf("%d: %s, want %s", i, row.got, row.want)
			}
		}
	})
}
