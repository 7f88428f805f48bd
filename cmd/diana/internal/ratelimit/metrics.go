// SPDX-License-Identifier: MIT

package ratelimit

import (
	"context"
	"net/http"
	"path"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"google.golang.org/grpc"

	"github.com/diana-limiter/diana/envoy"
)

// metrics are those of envoyproxy/ratelimit, with the names that its default mapper gives them.
type metrics struct {
	near      float64 // the part of a limit above which hits are near it
	perSecond float64 // units of the response time in a second

	hits, within, nearLimit, over, shadow *prometheus.CounterVec // by domain, key1 and key2
	failed                                *prometheus.CounterVec // by err_type
	requests                              *prometheus.CounterVec // by grpc_method
	duration                              *prometheus.HistogramVec
	loaded, unloaded, shadowed            prometheus.Counter

	mu    sync.RWMutex
	named map[string]*series // by the name of the descriptor; mostSeries at most
	other *series            // of all other names
}

// series are the metrics of one descriptor.
type series struct{ hits, within, near, over, shadow prometheus.Counter }

// mostSeries is how many descriptors have metrics of their own, because names can contain values of requests. The hits of all
// others are counted under otherKey.
const (
	mostSeries = 10_000
	otherKey   = "other"
)

func newMetrics(s *Settings) (*metrics, []prometheus.Collector) {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "ratelimit_service_" + name, Help: help}, labels)
	}
	keys := []string{"domain", "key1", "key2"}
	m := &metrics{
		near: s.NearRatio, perSecond: 1, named: map[string]*series{},
		hits:      counter("rate_limit_total_hits", "Hits of a descriptor.", keys...),
		within:    counter("rate_limit_within_limit", "Hits within the limit.", keys...),
		nearLimit: counter("rate_limit_near_limit", "Hits near the limit, see NEAR_LIMIT_RATIO.", keys...),
		over:      counter("rate_limit_over_limit", "Hits over the limit.", keys...),
		shadow:    counter("rate_limit_shadow_mode", "Hits over a limit in shadow mode.", keys...),
		failed:    counter("should_rate_limit_error", "Requests without a decision.", "err_type"),
		requests:  counter("total_requests", "Calls over gRPC.", "grpc_method"),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "ratelimit_service_response_time_seconds", Help: "Duration of calls over gRPC.", Buckets: prometheus.DefBuckets,
		}, []string{"grpc_method"}),
	}
	if s.PrometheusMilliseconds { // the name stays, as there
		m.perSecond = 1000
	}
	load := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: "ratelimit_service_" + name, Help: help})
	}
	m.loaded = load("config_load_success", "Limits that are in force, or were.")
	m.unloaded = load("config_load_error", "Limits with mistakes.")
	m.shadowed = load("global_shadow_mode", "Requests over a limit that SHADOW_MODE has allowed.")
	for _, kind := range []string{"service_error", "redis_error"} {
		m.failed.WithLabelValues(kind)
	}
	return m, []prometheus.Collector{
		m.hits, m.within, m.nearLimit, m.over, m.shadow, m.failed, m.requests, m.duration, m.loaded, m.unloaded, m.shadowed,
	}
}

// counted counts the hits of a descriptor. Of several hits that a limit has room for in part, all are over it.
func (m *metrics) counted(c envoy.Counted) {
	s, hits := m.series(c.Name()), float64(c.Hits)
	s.hits.Add(hits)
	if c.Over {
		s.over.Add(hits)
		if c.Shadow {
			s.shadow.Add(hits)
		}
		return
	}
	s.within.Add(hits)
	threshold := uint64(float32(c.Limit) * float32(m.near))
	after := uint64(c.Limit - min(c.Remaining, c.Limit))
	if after > threshold {
		s.near.Add(float64(min(c.Hits, after-threshold)))
	}
}

// series returns the metrics of a descriptor.
func (m *metrics) series(name string) *series {
	m.mu.RLock()
	s := m.named[name]
	m.mu.RUnlock()
	if s != nil {
		return s
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.named[name] != nil:
		return m.named[name]
	case len(m.named) < mostSeries:
		m.named[name] = m.newSeries(labelsOf(name))
		return m.named[name]
	case m.other == nil:
		m.other = m.newSeries([3]string{otherKey, otherKey})
	}
	return m.other
}

func (m *metrics) newSeries(labels [3]string) *series {
	of := func(v *prometheus.CounterVec) prometheus.Counter { return v.WithLabelValues(labels[:]...) }
	return &series{of(m.hits), of(m.within), of(m.nearLimit), of(m.over), of(m.shadow)}
}

var (
	addressText = regexp.MustCompile(`\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3}`)
	separators  = strings.NewReplacer(":", "_", "|", "_")
)

// labelsOf returns domain, key1 and key2 of a name such as "shop.path_/cart.user".
func labelsOf(name string) (labels [3]string) {
	name = addressText.ReplaceAllStringFunc(separators.Replace(name), func(ip string) string { return strings.ReplaceAll(ip, ".", "_") })
	copy(labels[:], strings.Split(strings.ToValidUTF8(name, "_"), "."))
	return labels
}

// load counts new limits.
func (m *metrics) load(err error) {
	if err != nil {
		m.unloaded.Inc()
		return
	}
	m.loaded.Inc()
}

// call counts calls over gRPC.
func (m *metrics) call(ctx context.Context, request any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	began := time.Now()
	method := path.Base(info.FullMethod)
	m.requests.WithLabelValues(method).Inc()
	answer, err := handle(ctx, request)
	m.duration.WithLabelValues(method).Observe(time.Since(began).Seconds() * m.perSecond)
	return answer, err
}

// metricsHandler answers at one path.
func metricsHandler(at string, g prometheus.Gatherer) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET "+at, promhttp.HandlerFor(g, promhttp.HandlerOpts{}))
	return mux
}
