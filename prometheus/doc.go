// SPDX-License-Identifier: MIT

// Package dianaprom exports the metrics of a [diana.Limiter] to Prometheus.
//
//	calls := dianaprom.NewRedisCalls()
//	limiter, err := diana.Options{RedisObserved: calls.Observe}.Open("diana.yaml")
//	...
//	registry.MustRegister(dianaprom.New(limiter), calls)
//
// The names, labels and meanings of the metrics are those of diana serve; docs/reference/metrics.md lists
// them. No metric has an actor as a label.
//
// A program with several limiters gives each its own label, because a registry accepts each
// metric once:
//
//	internal := prometheus.WrapRegistererWith(prometheus.Labels{"limiter": "internal"}, registry)
//	internal.MustRegister(dianaprom.New(limiter))
package dianaprom
