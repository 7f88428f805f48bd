// SPDX-License-Identifier: MIT

package envoy

import (
	"testing"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
)

// A domain that is called override has other counters than the limits that requests bring.
func TestDomainOverride(t *testing.T) {
	t.Parallel()
	const text = "domain: override\ndescriptors: [{key: year, descriptors: [{key: '5', rate_limit: {unit: year, requests_per_unit: 5}}]}]"
	onBothStores(t, text, func(t *testing.T, open func(...func(*RateLimitOptions)) *RateLimit) {
		s := open()
		r := request("year=1,5=2")
		r.Domain = "override"
		if got := ask(t, s, r); got != "ok | ok 4 of 5/year" {
			t.Error(got)
		}
		r.Descriptors[0].Limit = &common.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: 5, Unit: typev3.RateLimitUnit_YEAR}
		if got := ask(t, s, r); got != "ok | ok 4 of 5/year" {
			t.Error(got)
		}
	})
}
