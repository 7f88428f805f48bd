// SPDX-License-Identifier: MIT

//go:build !race

package envoy

import (
	"testing"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
)

// A request costs five allocations: the key, the path, and three of the response.
func TestAllocations(t *testing.T) {
	s := open(t, "domain: shop\ndescriptors: [{key: user, rate_limit: {unit: year, requests_per_unit: 1000000000}}]\n")
	r := &rls.RateLimitRequest{Domain: "shop", Descriptors: []*common.RateLimitDescriptor{{
		Entries: []*common.RateLimitDescriptor_Entry{{Key: "user", Value: "x"}},
	}}}
	got := testing.AllocsPerRun(1000, func() {
		if _, err := s.ShouldRateLimit(t.Context(), r); err != nil {
			t.Error(err)
		}
	})
	if got > 5 {
		t.Errorf("a request costs %v allocations, want 5", got)
	}
}
