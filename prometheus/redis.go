// SPDX-License-Identifier: MIT

package dianaprom

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// RedisCalls is a collector of diana_redis_call_duration_seconds, a histogram of the calls to
// Redis. Its Observe is the RedisObserved of [diana.Options].
type RedisCalls struct{ histogram prometheus.Histogram }

// NewRedisCalls returns a RedisCalls. A program makes it before the limiter, because the limiter's
// Options need it.
func NewRedisCalls() *RedisCalls {
	return &RedisCalls{prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "diana_redis_call_duration_seconds",
		Help:    "The duration of calls to Redis. One call serves all requests of a batch.",
		Buckets: prometheus.ExponentialBuckets(0.0001, 2, 12), // 0.1 ms to 0.2 s
	})}
}

// Observe adds a call. It may be called by several goroutines at once.
func (c *RedisCalls) Observe(d time.Duration) { c.histogram.Observe(d.Seconds()) }

// Describe implements prometheus.Collector.
func (c *RedisCalls) Describe(to chan<- *prometheus.Desc) { c.histogram.Describe(to) }

// Collect implements prometheus.Collector.
func (c *RedisCalls) Collect(to chan<- prometheus.Metric) { c.histogram.Collect(to) }
