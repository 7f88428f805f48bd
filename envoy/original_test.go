// SPDX-License-Identifier: MIT

package envoy

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// fieldsOf returns the fields of a response in one line, with the seconds of the last one replaced.
func fieldsOf(r *rls.RateLimitResponse) string {
	var list []string
	for _, h := range r.GetResponseHeadersToAdd() {
		if h.GetKey() == "T" && h.GetValue() != "" && strings.Trim(h.GetValue(), "0123456789") == "" {
			h.Value = "s"
		}
		list = append(list, h.GetKey()+"="+h.GetValue())
	}
	return strings.Join(list, " ")
}

// Responses tell what the settings say, and nothing else.
func TestOriginal(t *testing.T) {
	t.Parallel()
	var shadowed atomic.Int64
	for _, row := range []struct {
		name     string
		original Original
		ask      []string // the last one counts
		code     rls.RateLimitResponse_Code
		fields   string
		metadata string
	}{
		{name: "nothing", ask: []string{"path=/cart"}, code: rls.RateLimitResponse_OK},
		{
			name: "the tightest", original: Original{Limit: "L", Remaining: "R", Reset: "T"}, ask: []string{"user=ann path=/cart path=/free none=1"},
			code: rls.RateLimitResponse_OK, fields: "L=2 R=1 T=s",
		},
		{
			name: "the refused", original: Original{Limit: "L", Remaining: "R", Reset: "T"}, ask: []string{"path=/cart", "path=/cart", "user=ann path=/cart"},
			code: rls.RateLimitResponse_OVER_LIMIT, fields: "L=2 R=0 T=s",
		},
		{name: "no limit", original: Original{Limit: "L", Remaining: "R", Reset: "T"}, ask: []string{"none=1 path=/free"}, code: rls.RateLimitResponse_OK},
		{
			name: "shadow", original: Original{Shadow: true, OnShadow: func() { shadowed.Add(1) }}, ask: []string{"path=/cart", "path=/cart", "path=/cart"},
			code: rls.RateLimitResponse_OK,
		},
		{
			name: "metadata", original: Original{Metadata: true}, ask: []string{"quota=1", "quota=1 none=1"}, code: rls.RateLimitResponse_OK,
			metadata: `{"domain":"shop", "descriptors":[{"entries":["quota=1"]},{"entries":["none=1"]}], "hitsAddend":1, "quotaModeEnabled":true, "quotaModeViolations":[0]}`,
		},
		{
			name: "metadata without a limit", original: Original{Metadata: true}, ask: []string{"none=1"}, code: rls.RateLimitResponse_OK,
			metadata: `{"domain":"shop", "descriptors":[{"entries":["none=1"]}], "hitsAddend":1, "quotaModeEnabled":false}`,
		},
		{
			name: "quota of all", original: Original{Metadata: true, Quota: true}, ask: []string{"path=/cart", "path=/cart", "path=/cart"}, code: rls.RateLimitResponse_OK,
			metadata: `{"domain":"shop", "descriptors":[{"entries":["path=/cart"]}], "hitsAddend":1, "quotaModeEnabled":false, "quotaModeViolations":[0]}`,
		},
	} {
		s := open(t, limits, func(o *RateLimitOptions) { o.Original, o.ChargeAll = &row.original, true })
		var r *rls.RateLimitResponse
		for _, text := range row.ask {
			q := request(strings.Fields(text)...)
			q.HitsAddend = 1
			var err error
			if r, err = s.ShouldRateLimit(t.Context(), q); err != nil {
				t.Fatal(err)
			}
		}
		if got := fieldsOf(r); r.GetOverallCode() != row.code || got != row.fields {
			t.Errorf("%s: %v %q, want %v %q", row.name, r.GetOverallCode(), got, row.code, row.fields)
		}
		var want *structpb.Struct
		if row.metadata != "" {
			want = &structpb.Struct{}
			if err := protojson.Unmarshal([]byte(row.metadata), want); err != nil {
				t.Fatal(err)
			}
		}
		if !proto.Equal(r.GetDynamicMetadata(), want) {
			t.Errorf("%s: metadata %v, want %v", row.name, r.GetDynamicMetadata(), want)
		}
	}
	if n := shadowed.Load(); n != 1 {
		t.Errorf("%d requests were over a limit in shadow mode, want 1", n)
	}
}

// Each descriptor with a limit is reported, with its own hits also where two are equal.
func TestCounted(t *testing.T) {
	t.Parallel()
	var got []string
	s := open(t, limits, func(o *RateLimitOptions) {
		o.ChargeAll = true
		o.OnCounted = func(c Counted) {
			got = append(got, fmt.Sprintf("%s %d: %d left of %d, over %t, shadow %t", c.Name(), c.Hits, c.Remaining, c.Limit, c.Over, c.Shadow))
		}
	})
	double := request("path=/cart", "path=/cart", "none=1", "path=/free")
	double.Descriptors[0].HitsAddend = wrapperspb.UInt64(2)
	for _, r := range []*rls.RateLimitRequest{request("user=ann"), double, request("path=/try"), request("path=/try"), request("a=1,b=2")} {
		if _, err := s.ShouldRateLimit(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{
		"shop.user 1: 4 left of 5, over false, shadow false",
		"shop.path_/cart 2: 0 left of 2, over true, shadow false",
		"shop.path_/cart 1: 0 left of 2, over true, shadow false",
		"shop.path_/try 1: 0 left of 1, over false, shadow true",
		"shop.path_/try 1: 0 left of 1, over true, shadow true",
		"shop.a.b 1: 0 left of 1, over false, shadow false",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q\nwant %q", got, want)
	}
}
