// SPDX-License-Identifier: MIT

// Package dianaotel exports the metrics of a [diana.Limiter] to OpenTelemetry, and notes refusals in the
// spans of requests. It depends on the API of OpenTelemetry alone; the program chooses the SDK.
//
//	calls, err := dianaotel.NewRedisCalls(otel.GetMeterProvider())
//	...
//	limiter, err := diana.Options{RedisObserved: calls.Observe, Refuse: dianaotel.Refuse(nil)}.Open("limits.yaml")
//	...
//	_, err = dianaotel.Register(limiter, otel.GetMeterProvider())
//
// The metrics and their meanings are those of diana serve, which docs/reference/metrics.md lists. README.md has
// their names here. No metric has an actor as an attribute.
package dianaotel
