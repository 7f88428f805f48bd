// SPDX-License-Identifier: MIT

package envoy

import (
	"math"
	"strconv"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/internal/descriptors"
	algorithms "github.com/diana-limiter/diana/limit"
)

// Original says what responses tell besides the statuses, by the settings of envoyproxy/ratelimit.
type Original struct {
	// Limit, Remaining and Reset are the names of the fields with the limit of the tightest descriptor, with what
	// remains of it, and with the seconds until it begins again. Limit is empty for none.
	Limit, Remaining, Reset string

	Metadata bool // repeat the request in the metadata, and tell about limits with quota_mode
	Shadow   bool // the overall code is always OK
	Quota    bool // treat each limit as one with quota_mode

	// OnShadow is called for each request that Shadow allows, and OnError for each that gets an error in place of a
	// decision. Several goroutines call them. Nil means none.
	OnShadow, OnError func()
}

// tell completes the response to a request. d is nil if no limit has a charge.
func (o *Original) tell(q *question, request *rls.RateLimitRequest, r *rls.RateLimitResponse, d *diana.Decision) {
	over, quota := q.overQuota(d, o.Quota)
	for _, i := range over {
		s := r.GetStatuses()[i]
		s.Code, s.DurationUntilReset = rls.RateLimitResponse_OK, nil
	}
	r.OverallCode = rls.RateLimitResponse_OK
	var tightest *rls.RateLimitResponse_DescriptorStatus
	least := uint32(math.MaxUint32)
	for _, s := range r.GetStatuses() {
		switch {
		case s.GetCode() == rls.RateLimitResponse_OVER_LIMIT:
			r.OverallCode = rls.RateLimitResponse_OVER_LIMIT
			tightest, least = s, 0
		case s.GetCurrentLimit() != nil && s.GetLimitRemaining() < least:
			tightest, least = s, s.GetLimitRemaining()
		}
	}
	if o.Limit != "" && tightest != nil {
		r.ResponseHeadersToAdd = o.fields(tightest)
	}
	if o.Shadow && r.GetOverallCode() == rls.RateLimitResponse_OVER_LIMIT {
		r.OverallCode = rls.RateLimitResponse_OK
		if o.OnShadow != nil {
			o.OnShadow()
		}
	}
	if o.Metadata {
		r.DynamicMetadata = repeated(request, over, quota)
	}
}

// fields returns the fields for clients.
func (o *Original) fields(s *rls.RateLimitResponse_DescriptorStatus) []*core.HeaderValue {
	limit := s.GetCurrentLimit()
	seconds := s.GetDurationUntilReset().GetSeconds()
	if s.GetDurationUntilReset() == nil {
		unit := int64(descriptors.Unit(limit.GetUnit()).Duration() / time.Second)
		seconds = unit - time.Now().Unix()%unit
	}
	return []*core.HeaderValue{
		{Key: o.Limit, Value: strconv.FormatUint(uint64(limit.GetRequestsPerUnit()), 10)},
		{Key: o.Remaining, Value: strconv.FormatUint(uint64(s.GetLimitRemaining()), 10)},
		{Key: o.Reset, Value: strconv.FormatInt(seconds, 10)},
	}
}

// repeated returns metadata that repeat a request, and say which descriptors are over a limit with quota_mode.
func repeated(request *rls.RateLimitRequest, over []int, quota bool) *structpb.Struct {
	fields := map[string]*structpb.Value{
		"domain":           structpb.NewStringValue(request.GetDomain()),
		"quotaModeEnabled": structpb.NewBoolValue(quota),
	}
	list := &structpb.ListValue{}
	for _, d := range request.GetDescriptors() {
		list.Values = append(list.Values, structpb.NewStructValue(descriptorMetadata(d)))
	}
	fields["descriptors"] = structpb.NewListValue(list)
	if n := request.GetHitsAddend(); n != 0 {
		fields["hitsAddend"] = structpb.NewNumberValue(float64(n))
	}
	addViolations(fields, over)
	return &structpb.Struct{Fields: fields}
}

func descriptorMetadata(d *common.RateLimitDescriptor) *structpb.Struct {
	entries := &structpb.ListValue{}
	for _, e := range d.GetEntries() {
		entries.Values = append(entries.Values, structpb.NewStringValue(e.GetKey()+"="+e.GetValue()))
	}
	fields := map[string]*structpb.Value{"entries": structpb.NewListValue(entries)}
	if l := d.GetLimit(); l != nil {
		fields["limit"] = structpb.NewStringValue(l.String())
	}
	if n := d.GetHitsAddend(); n != nil {
		fields["hitsAddend"] = structpb.NewNumberValue(float64(n.GetValue()))
	}
	return &structpb.Struct{Fields: fields}
}

// Counted is what was decided about one descriptor with a limit.
type Counted struct {
	// Name returns the name of the descriptor in the metrics of envoyproxy/ratelimit, such as "shop.user". It can
	// contain values of the request.
	Name func() string

	Limit     uint32 // requests per unit
	Hits      uint64
	Remaining uint32 // after the hits; 0 if Over
	Over      bool
	Shadow    bool // the limit has shadow_mode
}

// count reports the descriptors of a request that d has decided.
func (s *RateLimit) count(a *active, q *question, r *rls.RateLimitRequest, d *diana.Decision) {
	f := s.options.OnCounted
	if f == nil {
		return
	}
	for i := range q.items {
		it := &q.items[i]
		if it.charge < 0 {
			continue
		}
		v, limit := &d.Verdicts[it.charge], it.limit.current.GetRequestsPerUnit()
		left := uint32(min(max(v.Remaining, 0), math.MaxUint32))
		if v.Allowed && v.Remaining == algorithms.Unknown { // it was not asked, so it is near no limit
			left = limit
		}
		f(Counted{
			Name:  func() string { return metricName(a, r.GetDomain(), r.GetDescriptors()[i]) },
			Limit: limit, Hits: uint64(max(it.hits, 0)), Remaining: left, Over: !v.Allowed,
			Shadow: it.limit.Limit != nil && it.limit.Shadow,
		})
	}
}

// metricName returns the name of a descriptor in metrics. That of a limit that the request brings has all values.
func metricName(a *active, domain string, d *common.RateLimitDescriptor) string {
	entries := make([]descriptors.Entry, 0, len(d.GetEntries()))
	own := domain
	for _, e := range d.GetEntries() {
		entries = append(entries, descriptors.Entry{Key: e.GetKey(), Value: e.GetValue()})
		own += "." + e.GetKey()
		if e.GetValue() != "" {
			own += "_" + e.GetValue()
		}
	}
	if d.GetLimit() != nil {
		return own
	}
	return a.tree.MetricName(domain, entries)
}
