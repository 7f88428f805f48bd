// SPDX-License-Identifier: MIT

package envoy

import (
	"math"
	"net/http"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/diana-limiter/diana"
	algorithms "github.com/diana-limiter/diana/limit"
)

// answer returns the response to a request that d has decided. d is nil if no limit has a charge.
func (q *question) answer(d *diana.Decision) *rls.RateLimitResponse {
	r := &rls.RateLimitResponse{OverallCode: rls.RateLimitResponse_OK}
	r.Statuses = make([]*rls.RateLimitResponse_DescriptorStatus, len(q.items))
	for i := range q.items {
		s := q.status(d, &q.items[i])
		if r.Statuses[i] = s; s.Code == rls.RateLimitResponse_OVER_LIMIT {
			r.OverallCode = s.Code
		}
	}
	if d != nil {
		h := http.Header{}
		d.SetFields(h)
		for _, name := range []string{"RateLimit-Policy", "RateLimit", "Retry-After"} {
			if value := h.Get(name); value != "" {
				r.ResponseHeadersToAdd = append(r.ResponseHeadersToAdd, &core.HeaderValue{Key: name, Value: value})
			}
		}
	}
	return r
}

// status returns the status of one descriptor.
func (q *question) status(d *diana.Decision, it *item) *rls.RateLimitResponse_DescriptorStatus {
	s := &rls.RateLimitResponse_DescriptorStatus{Code: rls.RateLimitResponse_OK}
	switch {
	case it.limit == nil:
		return s
	case it.charge < 0: // unlimited
		s.LimitRemaining = math.MaxUint32
		return s
	}
	v := &d.Verdicts[it.charge]
	s.CurrentLimit = it.limit.current
	if v.Remaining == algorithms.Unknown { // of a refund, or of a rule that was not asked
		return s
	}
	s.LimitRemaining = uint32(min(max(v.Remaining, 0), math.MaxUint32))
	s.DurationUntilReset = durationpb.New((time.Duration(v.Reset)*time.Microsecond + time.Second - 1).Truncate(time.Second))
	if !v.Allowed {
		s.LimitRemaining = 0
		if !v.Rule.Shadow {
			s.Code = rls.RateLimitResponse_OVER_LIMIT
		}
	}
	return s
}
