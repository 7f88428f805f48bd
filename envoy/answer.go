// SPDX-License-Identifier: MIT

package envoy

import (
	"math"
	"net/http"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/diana-limiter/diana"
	algorithms "github.com/diana-limiter/diana/limit"
)

// reply is a response with all that it points to, so that these share few allocations.
type reply struct {
	response rls.RateLimitResponse
	fields   [len(fieldNames)]core.HeaderValue
	headers  [len(fieldNames)]*core.HeaderValue
}

// statusOf is the status of one descriptor with all that it points to.
type statusOf struct {
	status rls.RateLimitResponse_DescriptorStatus
	reset  durationpb.Duration
}

// fieldNames are the fields of a response, as Envoy gets them and as a header has them.
var fieldNames = [...]struct{ name, canonical string }{
	{"RateLimit-Policy", "Ratelimit-Policy"}, {"RateLimit", "Ratelimit"}, {"Retry-After", "Retry-After"},
}

// answer returns the response to a request that d has decided. d is nil if no limit has a charge.
func (q *question) answer(s *RateLimit, request *rls.RateLimitRequest, d *diana.Decision) *rls.RateLimitResponse {
	all := &reply{}
	r := &all.response
	r.OverallCode = rls.RateLimitResponse_OK
	r.Statuses = make([]*rls.RateLimitResponse_DescriptorStatus, len(q.items))
	statuses := make([]statusOf, len(q.items))
	for i := range q.items {
		q.status(d, &q.items[i], &statuses[i])
		if r.Statuses[i] = &statuses[i].status; r.Statuses[i].Code == rls.RateLimitResponse_OVER_LIMIT {
			r.OverallCode = rls.RateLimitResponse_OVER_LIMIT
		}
	}
	if o := s.options.Original; o != nil {
		o.tell(q, request, r, d)
		return r
	}
	if d == nil {
		return r
	}
	if q.header == nil {
		q.header = http.Header{}
	}
	clear(q.header)
	d.SetFields(q.header)
	headers := all.headers[:0]
	for i, f := range fieldNames {
		if values := q.header[f.canonical]; len(values) > 0 {
			all.fields[i].Key, all.fields[i].Value = f.name, values[0]
			headers = append(headers, &all.fields[i])
		}
	}
	r.ResponseHeadersToAdd = headers
	r.DynamicMetadata = q.quotas(d)
	return r
}

// quotas returns the metadata of a request under a limit with quota_mode, or nil if there is no such limit.
// The fields are those of envoyproxy/ratelimit. Envoy can route by them, because the statuses are OK.
func (q *question) quotas(d *diana.Decision) *structpb.Struct {
	over, enabled := q.overQuota(d, false)
	if !enabled {
		return nil
	}
	fields := map[string]*structpb.Value{"quotaModeEnabled": structpb.NewBoolValue(true)}
	addViolations(fields, over)
	return &structpb.Struct{Fields: fields}
}

// overQuota returns the indexes of the descriptors that are over a limit with quota_mode, and whether there is such a
// limit. With all, every limit counts as one.
func (q *question) overQuota(d *diana.Decision, all bool) (over []int, enabled bool) {
	for i := range q.items {
		it := &q.items[i]
		if it.charge < 0 {
			continue
		}
		own := it.limit.Limit != nil && it.limit.Quota
		enabled = enabled || own
		if (own || all) && !d.Verdicts[it.charge].Allowed && (it.limit.Limit == nil || !it.limit.Shadow) {
			over = append(over, i)
		}
	}
	return over, enabled
}

// addViolations adds the indexes of descriptors to metadata, if there are any.
func addViolations(fields map[string]*structpb.Value, over []int) {
	if len(over) == 0 {
		return
	}
	list := &structpb.ListValue{}
	for _, i := range over {
		list.Values = append(list.Values, structpb.NewNumberValue(float64(i)))
	}
	fields["quotaModeViolations"] = structpb.NewListValue(list)
}

// status sets the status of one descriptor.
func (q *question) status(d *diana.Decision, it *item, of *statusOf) {
	s := &of.status
	s.Code = rls.RateLimitResponse_OK
	switch {
	case it.limit == nil:
		return
	case it.charge < 0: // unlimited
		s.LimitRemaining = math.MaxUint32
		return
	}
	v := &d.Verdicts[it.charge]
	s.CurrentLimit = it.limit.current
	if v.Remaining == algorithms.Unknown { // of a refund, or of a rule that was not asked
		return
	}
	s.LimitRemaining = uint32(min(max(v.Remaining, 0), math.MaxUint32))
	of.reset.Seconds = int64((time.Duration(v.Reset)*time.Microsecond + time.Second - 1) / time.Second)
	s.DurationUntilReset = &of.reset
	if !v.Allowed {
		s.LimitRemaining = 0
		if !v.Rule.Shadow {
			s.Code = rls.RateLimitResponse_OVER_LIMIT
		}
	}
}
