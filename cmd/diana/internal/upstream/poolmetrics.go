// SPDX-License-Identifier: MIT

package upstream

import "github.com/prometheus/client_golang/prometheus"

// poolMetrics are the metrics of a pool. They have one label, the URL of --upstream.
type poolMetrics struct{ pool *Pool }

// Metrics returns the metrics of the pool.
func (p *Pool) Metrics() prometheus.Collector { return poolMetrics{p} }

var (
	upstreamUp       = upstreamMetric("up", "1 while the upstream is in service, 0 while the gateway avoids it.")
	upstreamRequests = upstreamMetric("requests_total", "Requests sent to the upstream.")
	upstreamFailures = upstreamMetric("failures_total", "Requests that the upstream failed: no answer, or 502, 503 or 504.")
	upstreamRetries  = upstreamMetric("retries_total", "Requests that were sent to another upstream because this one failed.")
)

func upstreamMetric(name, help string) *prometheus.Desc {
	return prometheus.NewDesc("diana_upstream_"+name, help, []string{"upstream"}, nil)
}

// Describe implements prometheus.Collector.
func (poolMetrics) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{upstreamUp, upstreamRequests, upstreamFailures, upstreamRetries} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (m poolMetrics) Collect(to chan<- prometheus.Metric) {
	m.pool.mu.Lock()
	defer m.pool.mu.Unlock()
	for _, u := range m.pool.members {
		up := 1.0
		if u.pause > 0 {
			up = 0
		}
		to <- prometheus.MustNewConstMetric(upstreamUp, prometheus.GaugeValue, up, u.name)
		to <- prometheus.MustNewConstMetric(upstreamRequests, prometheus.CounterValue, float64(u.requests), u.name)
		to <- prometheus.MustNewConstMetric(upstreamFailures, prometheus.CounterValue, float64(u.failed), u.name)
		to <- prometheus.MustNewConstMetric(upstreamRetries, prometheus.CounterValue, float64(u.retries), u.name)
	}
}
