// SPDX-License-Identifier: MIT

package dianaprom

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/diana-limiter/diana"
)

// New returns a collector of a limiter's metrics. It reads the limiter at each scrape, so it adds
// nothing to the cost of a request. A scrape of a closed limiter returns its last values.
//
// Rejected: counters that requests keep up to date. The limiter counts already, so each request
// would be counted twice.
func New(limiter *diana.Limiter) prometheus.Collector { return collector{limiter} }

type collector struct{ limiter *diana.Limiter }

var (
	requestsDesc = prometheus.NewDesc("diana_requests_total",
		"Requests that a rule evaluated, by decision. A request that several rules evaluate counts under each of them.",
		[]string{"rule", "decision"}, nil)
	overflowDesc = prometheus.NewDesc("diana_overflow_total",
		"Requests that the overflow counter of a rule evaluated, because max_keys left no room for their actors.",
		[]string{"rule"}, nil)
	saturatedDesc = prometheus.NewDesc("diana_debt_saturated_total",
		"Costs of which the counter of a rule could not hold the whole debt. Only rules whose cost is known with the response.",
		[]string{"rule"}, nil)
	unsettledDesc = prometheus.NewDesc("diana_unsettled_total",
		"Responses without a cost that could be read. Only rules whose cost is known with the response.",
		[]string{"rule"}, nil)
	reservedDesc = prometheus.NewDesc("diana_refused_reserved_total",
		"Requests that a rule refused only because of what requests in flight had reserved. Only rules whose cost is known with the response.",
		[]string{"rule"}, nil)
	costDesc = prometheus.NewDesc("diana_cost_total",
		"What a rule was charged by the costs of responses. Only rules whose cost is known with the response.",
		[]string{"rule"}, nil)
	costReservedDesc = prometheus.NewDesc("diana_cost_reserved",
		"What requests in flight have reserved under a rule. Only rules whose cost is known with the response.",
		[]string{"rule"}, nil)
	spentDesc = prometheus.NewDesc("diana_cost_used_ratio",
		"The largest share of its limit that an actor has spent under a rule, 0 to 1, by the requests of this gateway. Only rules whose cost is known with the response.",
		[]string{"rule"}, nil)
	shedDesc = prometheus.NewDesc("diana_shed_total",
		"Requests that a rule of adaptive concurrency refused, in shadow mode too, by priority. Without priorities that is empty.",
		[]string{"rule", "priority"}, nil)
	limitDesc = prometheus.NewDesc("diana_rule_limit",
		"Requests that a rule allows in its unit, or at once if it limits concurrency. Under adaptive concurrency: at this moment.", []string{"rule"}, nil)
	unitDesc = prometheus.NewDesc("diana_rule_unit_seconds",
		"The unit of a rule. A rule that limits concurrency has none.", []string{"rule"}, nil)
	rejectedDesc = prometheus.NewDesc("diana_rejected_total",
		"Requests that were answered before any rule, by reason.",
		[]string{"reason"}, nil)
	degradedDesc = prometheus.NewDesc("diana_degraded",
		"Whether the limiter decides global rules without Redis (1) or not (0).", nil, nil)
	fallbackDesc = prometheus.NewDesc("diana_fallback_total",
		"Requests that the limiter evaluated without Redis, because a call failed or because Redis was not asked.", nil, nil)
	keysDesc = prometheus.NewDesc("diana_keys",
		"Actors that the local store remembers, all rules together.", nil, nil)
	waitingDesc = prometheus.NewDesc("diana_waiting",
		"Requests that wait now, for a rule with a wait or for a leaky bucket. At most 10,000.", nil, nil)
	evictionsDesc = prometheus.NewDesc("diana_evictions_total",
		"Expired actors that the local store removed to make room for new ones.", nil, nil)
	reloadsDesc = prometheus.NewDesc("diana_config_reloads_total",
		"Configurations that were read, by source and result. A file or remote document that is valid at the start does not count. Losing a source counts once as an error.",
		[]string{"source", "result"}, nil)
	configDesc = prometheus.NewDesc("diana_config_info",
		"The active configuration. The value is always 1.", []string{"source", "version"}, nil)
	reloadedDesc = prometheus.NewDesc("diana_config_last_reload_successful",
		"Whether the file and the remote configuration were valid when they were last read (1) or not (0).", nil, nil)
	reloadTimeDesc = prometheus.NewDesc("diana_config_last_reload_success_timestamp_seconds",
		"When a configuration was last read successfully, in seconds since 1970.", nil, nil)
	centreDesc = prometheus.NewDesc("diana_config_centre_reached",
		"Whether the configuration centre answers (1) or not (0). Without a remote configuration the metric does not exist.",
		nil, nil)
	redisErrorsDesc = prometheus.NewDesc("diana_redis_errors_total",
		"Requests and probes that Redis did not answer, by the kind of failure.", []string{"kind"}, nil)
	lateDebitsDesc = prometheus.NewDesc("diana_redis_late_debits_total",
		"The sum of charges that were made without Redis and that it has received since.", nil, nil)
	unknownCallsDesc = prometheus.NewDesc("diana_redis_unknown_calls_total",
		"Calls to Redis that failed, and whose outcome nobody can learn. The limiter does not repeat them.", nil, nil)
	gatewaysDesc = prometheus.NewDesc("diana_gateways",
		"Gateways last seen alive, this one included.", nil, nil)
)

// Describe implements prometheus.Collector.
func (collector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		requestsDesc, overflowDesc, saturatedDesc, unsettledDesc, reservedDesc, costDesc, costReservedDesc, spentDesc, shedDesc, limitDesc, unitDesc, rejectedDesc, degradedDesc, fallbackDesc, keysDesc, waitingDesc,
		evictionsDesc, reloadsDesc, configDesc, reloadedDesc, reloadTimeDesc, centreDesc, redisErrorsDesc, lateDebitsDesc, unknownCallsDesc,
		gatewaysDesc,
	} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (c collector) Collect(to chan<- prometheus.Metric) {
	s := c.limiter.Status()
	collectRules(to, s.Rules)
	for reason, n := range c.limiter.Rejected() {
		counter(to, rejectedDesc, n, reason)
	}
	gauge(to, keysDesc, float64(s.Keys))
	gauge(to, waitingDesc, float64(c.limiter.Waiting()))
	counter(to, evictionsDesc, s.Evictions)
	c.collectConfig(to, &s.Config)

	gauge(to, degradedDesc, oneIf(s.Degraded))
	counter(to, fallbackDesc, s.Fallback)
	counter(to, lateDebitsDesc, s.LateDebits)
	counter(to, unknownCallsDesc, s.UnknownCalls)
	gauge(to, gatewaysDesc, float64(s.Gateways))
	failed := c.limiter.RedisErrors()
	for _, kind := range []string{"timeout", "connection"} { // exported from the start, so that the first one is an increase
		failed[kind] += 0
	}
	for kind, n := range failed {
		counter(to, redisErrorsDesc, n, kind)
	}
}

// collectRules sends the metrics of each rule.
func collectRules(to chan<- prometheus.Metric, rules []diana.RuleStatus) {
	for _, r := range rules {
		name := label(r.Name)
		counter(to, requestsDesc, r.Allowed, name, "allowed")
		counter(to, requestsDesc, r.Refused, name, "refused")
		counter(to, requestsDesc, r.ShadowRefused, name, "shadow_refused")
		counter(to, requestsDesc, r.Delayed, name, "delayed")
		counter(to, overflowDesc, r.Overflow, name)
		if r.Answer != "" {
			counter(to, saturatedDesc, r.DebtSaturated, name)
			counter(to, unsettledDesc, r.Unsettled, name)
			counter(to, reservedDesc, r.RefusedReserved, name)
			counter(to, costDesc, r.Cost, name)
			gauge(to, costReservedDesc, float64(r.Reserved), name)
			gauge(to, spentDesc, r.SpentRatio, name)
		}
		for priority, n := range r.Shed {
			counter(to, shedDesc, n, name, label(priority))
		}
		gauge(to, limitDesc, float64(r.Limit), name)
		if r.UnitSeconds > 0 {
			gauge(to, unitDesc, r.UnitSeconds, name)
		}
	}
}

// collectConfig sends the metrics of the active configuration and of the reloads.
func (c collector) collectConfig(to chan<- prometheus.Metric, s *diana.ConfigStatus) {
	gauge(to, configDesc, 1, label(s.Source), s.Version)
	gauge(to, reloadedDesc, oneIf(s.LastReloadSuccessful))
	gauge(to, reloadTimeDesc, float64(s.LastReloadSuccess.UnixMilli())/1000)
	if s.Remote != nil {
		gauge(to, centreDesc, oneIf(s.Remote.Reached))
	}
	for reload, n := range c.limiter.Reloads() {
		counter(to, reloadsDesc, n, label(reload.Source), reload.Result)
	}
}

func counter(to chan<- prometheus.Metric, d *prometheus.Desc, n int64, labels ...string) {
	to <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), labels...)
}

func gauge(to chan<- prometheus.Metric, d *prometheus.Desc, v float64, labels ...string) {
	to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
}

func oneIf(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}

// label returns text as the value of a label, which must be UTF-8. The name of a file need not be.
func label(text string) string { return strings.ToValidUTF8(text, "\uFFFD") }
