// SPDX-License-Identifier: MIT

package envoy

import (
	"strings"
	"testing"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/encoding/protojson"
)

const quotas = limits + `- key: both
  quota_mode: true
  shadow_mode: true
  rate_limit: {unit: year, requests_per_unit: 1}
- key: endless
  quota_mode: true
  rate_limit: {unlimited: true}
`

// The metadata of a response name the descriptors that are over a limit with quota_mode.
func TestQuotaMetadata(t *testing.T) {
	t.Parallel()
	onBothStores(t, quotas, func(t *testing.T, open func(...func(*RateLimitOptions)) *RateLimit) {
		s := open()
		for i, row := range []struct {
			request *rls.RateLimitRequest
			want    string
		}{
			{request("user=ann"), ""},
			{request("none=1"), ""},
			{request("quota=1"), `{"quotaModeEnabled":true}`},
			{request("quota=1"), `{"quotaModeEnabled":true, "quotaModeViolations":[0]}`},
			{request("user=ann", "quota=1", "quota=2"), `{"quotaModeEnabled":true, "quotaModeViolations":[1]}`},
			{request("quota=2", "path=/free", "quota=1"), `{"quotaModeEnabled":true, "quotaModeViolations":[0, 2]}`},
			{request("both=1"), `{"quotaModeEnabled":true}`},
			{request("both=1"), `{"quotaModeEnabled":true}`},
			{request("path=/try"), ""},
			{request("path=/try"), ""},
			{request("endless=1"), ""},
			{request("endless=1", "user=ann"), ""},
		} {
			a, err := s.ShouldRateLimit(t.Context(), row.request)
			if err != nil || a.GetOverallCode() != rls.RateLimitResponse_OK {
				t.Fatalf("%d: %v, %v", i, a, err)
			}
			got := ""
			if m := a.GetDynamicMetadata(); m != nil {
				got = protojson.MarshalOptions{}.Format(m)
			}
			if compact(got) != compact(row.want) {
				t.Errorf("%d: the metadata of %v are %s, want %s", i, row.request, got, row.want)
			}
		}
	})
}

// compact returns a text without spaces, because protojson sets them at random.
func compact(text string) string { return strings.ReplaceAll(text, " ", "") }
