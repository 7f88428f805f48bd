// SPDX-License-Identifier: MIT

package main

import (
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/diana-limiter/diana"
)

// newRedisSeconds returns the histogram of round trips to Redis.
func newRedisSeconds() prometheus.Histogram {
	return prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "diana_redis_call_duration_seconds",
		Help:    "How long calls to Redis took, each for all the requests that came together.",
		Buckets: prometheus.ExponentialBuckets(0.0001, 2, 12), // 0.1 ms to 0.2 s
	})
}

// newRegistry returns what /metrics shows: the limiter, its calls to Redis, and the
// process.
func newRegistry(limiter *diana.Limiter, redis prometheus.Collector) *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(
		limiterMetrics{limiter},
		redis,
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	return r
}

// limiterMetrics reads the limiter when it is asked for metrics. Rejected: counters
// that requests keep up to date, which would count everything twice.
type limiterMetrics struct{ limiter *diana.Limiter }

var (
	requestsDesc = prometheus.NewDesc("diana_requests_total",
		"Requests that a rule judged, by what it decided. A request that several rules judge is counted under each.",
		[]string{"rule", "decision"}, nil)
	overflowDesc = prometheus.NewDesc("diana_overflow_total",
		"Requests that a rule's overflow counter judged, because max_keys left no room for their actors.",
		[]string{"rule"}, nil)
	degradedDesc = prometheus.NewDesc("diana_degraded",
		"Whether global rules are judged without Redis (1) or not (0).", nil, nil)
	fallbackDesc = prometheus.NewDesc("diana_fallback_total",
		"Requests that this gateway evaluated without Redis, because a call failed or because Redis was not asked.", nil, nil)
	rejectedDesc = prometheus.NewDesc("diana_rejected_total",
		"Requests that were answered with 400 or 414 before any rule, because their path cannot be evaluated (path) or is too long (path_length).", []string{"reason"}, nil)
	keysDesc = prometheus.NewDesc("diana_keys",
		"Actors that the local store remembers, all rules together.", nil, nil)
	waitingDesc = prometheus.NewDesc("diana_waiting",
		"Requests that wait now, for a rule with a wait or for a leaky bucket. At most 10,000.", nil, nil)
	evictionsDesc = prometheus.NewDesc("diana_evictions_total",
		"Expired actors that have made room for new ones.", nil, nil)
	reloadsDesc = prometheus.NewDesc("diana_config_reloads_total",
		"Configurations that came while the program ran, by where from and whether they became active. That there is none to be had any more is an error, once.",
		[]string{"source", "result"}, nil)
	configDesc = prometheus.NewDesc("diana_config_info",
		"The active configuration. The value is always 1.", []string{"source", "version"}, nil)
	redisErrorsDesc = prometheus.NewDesc("diana_redis_errors_total",
		"Requests that Redis could not be asked about, or did not answer in time, by the kind of failure.",
		[]string{"kind"}, nil)
	limitDesc = prometheus.NewDesc("diana_rule_limit",
		"Requests that a rule allows in its unit, or at once if it limits concurrency.", []string{"rule"}, nil)
	unitDesc = prometheus.NewDesc("diana_rule_unit_seconds",
		"The unit of a rule. A rule that limits concurrency has none.", []string{"rule"}, nil)
	reloadedDesc = prometheus.NewDesc("diana_config_last_reload_successful",
		"Whether the file and the configuration centre were valid when they were last read (1) or not (0).", nil, nil)
	reloadTimeDesc = prometheus.NewDesc("diana_config_last_reload_success_timestamp_seconds",
		"When a configuration was last read with success, in seconds since 1970.", nil, nil)
	buildDesc = prometheus.NewDesc("diana_build_info",
		"The version of this program. The value is always 1.", []string{"version", "revision", "goversion"}, nil)
	gatewaysDesc = prometheus.NewDesc("diana_gateways",
		"Gateways last seen alive, this one included.", nil, nil)
)

// Describe lists what Collect can give.
func (limiterMetrics) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		requestsDesc, overflowDesc, rejectedDesc, degradedDesc, fallbackDesc, keysDesc, waitingDesc, evictionsDesc, reloadsDesc, configDesc, gatewaysDesc, redisErrorsDesc,
		limitDesc, unitDesc, reloadedDesc, reloadTimeDesc, buildDesc,
	} {
		to <- d
	}
}

// Collect gives the values of this moment.
func (m limiterMetrics) Collect(to chan<- prometheus.Metric) {
	counter := func(d *prometheus.Desc, n int64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), labels...)
	}
	measure := func(d *prometheus.Desc, v float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	gauge := func(d *prometheus.Desc, v int, labels ...string) {
		measure(d, float64(v), labels...)
	}
	s := m.limiter.Status()
	for _, r := range s.Rules {
		rule := label(r.Name)
		counter(requestsDesc, r.Allowed, rule, "allowed")
		counter(requestsDesc, r.Refused, rule, "refused")
		counter(requestsDesc, r.ShadowRefused, rule, "shadow_refused")
		counter(requestsDesc, r.Delayed, rule, "delayed")
		counter(overflowDesc, r.Overflow, rule)
		measure(limitDesc, float64(r.Limit), rule)
		if r.UnitSeconds > 0 {
			measure(unitDesc, r.UnitSeconds, rule)
		}
	}
	gauge(degradedDesc, oneIf(s.Degraded))
	gauge(reloadedDesc, oneIf(s.Config.LastReloadSuccessful))
	measure(reloadTimeDesc, float64(s.Config.LastReloadSuccess.UnixMilli())/1000)
	info, _ := debug.ReadBuildInfo()
	version, revision, _ := build(info)
	gauge(buildDesc, 1, label(version), label(revision), runtime.Version())
	counter(fallbackDesc, s.Fallback)
	for reason, n := range m.limiter.Rejected() {
		counter(rejectedDesc, n, reason)
	}
	gauge(keysDesc, s.Keys)
	gauge(waitingDesc, m.limiter.Waiting())
	counter(evictionsDesc, s.Evictions)
	for reload, n := range m.limiter.Reloads() {
		counter(reloadsDesc, n, label(reload.Source), reload.Result)
	}
	gauge(configDesc, 1, label(s.Config.Source), s.Config.Version)
	gauge(gatewaysDesc, s.Gateways)
	failed := m.limiter.RedisErrors()
	for _, kind := range []string{"timeout", "connection"} { // there from the start
		failed[kind] += 0
	}
	for kind, n := range failed {
		counter(redisErrorsDesc, n, kind)
	}
}

func oneIf(yes bool) int {
	if yes {
		return 1
	}
	return 0
}

// label returns text as a label's value, which must be UTF-8: a file's name need not be.
func label(text string) string { return strings.ToValidUTF8(text, "\uFFFD") }
