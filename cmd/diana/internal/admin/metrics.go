// SPDX-License-Identifier: MIT

package admin

import (
	"runtime"
	"runtime/debug"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/cmd/diana/internal/command"
	dianaprom "github.com/diana-limiter/diana/prometheus"
)

// NewRegistry returns the metrics that /metrics shows: those of the limiter, of its calls to Redis,
// of this program and of the process.
func NewRegistry(limiter *diana.Limiter, redis *dianaprom.RedisCalls) *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(
		dianaprom.New(limiter),
		redis,
		newBuildInfo(),
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	return r
}

// WithDescriptors adds to r whether the files of descriptors are in force. It returns the metrics of the
// limiter that counts descriptors, with a label of their own. They need a registry of their own, because
// in one registry metrics of the same name must have the same labels.
func WithDescriptors(r *prometheus.Registry, limiter *diana.Limiter, failed func() bool) prometheus.Gatherer {
	own := prometheus.NewRegistry()
	r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "diana_descriptors_last_reload_successful",
		Help: "0 while the files of --descriptors have mistakes, so that earlier limits are in force.",
	}, func() float64 {
		if failed() {
			return 0
		}
		return 1
	}))
	prometheus.WrapRegistererWith(prometheus.Labels{"limits": "descriptors"}, own).MustRegister(dianaprom.New(limiter))
	return own
}

// newBuildInfo returns the metric diana_build_info.
func newBuildInfo() prometheus.Collector {
	info, _ := debug.ReadBuildInfo()
	version, revision, _ := command.Build(info)
	g := prometheus.NewGauge(prometheus.GaugeOpts{
		Name:        "diana_build_info",
		Help:        "The version of this program. The value is always 1.",
		ConstLabels: prometheus.Labels{"version": version, "revision": revision, "goversion": runtime.Version()},
	})
	g.Set(1)
	return g
}
