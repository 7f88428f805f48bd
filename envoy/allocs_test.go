// SPDX-License-Identifier: MIT

//go:build !race

package envoy

import (
	"fmt"
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

// Files that have not changed are not parsed again, because they are looked at every second.
func TestUnchangedFilesAreNotParsed(t *testing.T) {
	const levels = 1000
	text := limits
	for i := range levels {
		text += fmt.Sprintf("- key: extra%d\n  rate_limit: {unit: day, requests_per_unit: 1}\n", i)
	}
	s := open(t, text)
	if n := testing.AllocsPerRun(5, s.Reload); n > levels {
		t.Errorf("%v allocations to look at unchanged files of %d limits", n, levels)
	}
}
