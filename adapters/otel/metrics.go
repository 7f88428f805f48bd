// SPDX-License-Identifier: MIT

package dianaotel

import (
	"context"
	"errors"
	"runtime/debug"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/diana-limiter/diana"
)

// scope is the name of the instrumentation scope.
const scope = "github.com/diana-limiter/diana/adapters/otel"

// meter returns the meter of the instrumentation scope, with the version of this module.
func meter(provider metric.MeterProvider) metric.Meter {
	info, _ := debug.ReadBuildInfo()
	return provider.Meter(scope, metric.WithInstrumentationVersion(versionIn(info)))
}

// versionIn returns the version of this module in a program, such as 1.2.3. It is empty if the program does
// not know the version, as in a test of this module.
func versionIn(info *debug.BuildInfo) string {
	if info == nil {
		return ""
	}
	for _, m := range info.Deps {
		if m.Path == scope {
			return strings.TrimPrefix(m.Version, "v")
		}
	}
	return ""
}

// instruments are the instruments of one limiter.
type instruments struct {
	requests, overflow, rejected, fallback, evictions, reloads, redisErrors, lateDebits, unknownCalls metric.Int64ObservableCounter
	keys, waiting                                                                                     metric.Int64ObservableUpDownCounter
	limit, degraded, gateways, config, reloaded                                                       metric.Int64ObservableGauge
	unit, reloadTime                                                                                  metric.Float64ObservableGauge
}

// Register exports the metrics of a limiter until Unregister of the result, or until the provider is shut
// down. The provider reads the limiter at each collection, so Register adds nothing to the cost of a
// request. A program with several limiters gives each an attribute of its own, because the SDK adds counters
// that have the same attributes. The error is that of an
// instrument that the provider does not accept.
func Register(limiter *diana.Limiter, provider metric.MeterProvider, own ...attribute.KeyValue) (metric.Registration, error) {
	m := meter(provider)
	var errs error
	i := instruments{
		requests:     add(&errs, m.Int64ObservableCounter, "diana.requests", "{request}", "Requests that a rule evaluated, by decision. A request that several rules evaluate counts under each of them."),
		overflow:     add(&errs, m.Int64ObservableCounter, "diana.overflow", "{request}", "Requests that the overflow counter of a rule evaluated, because max_keys left no room for their actors."),
		rejected:     add(&errs, m.Int64ObservableCounter, "diana.rejected", "{request}", "Requests that were answered before any rule, because their path cannot be evaluated (path) or is too long (path_length), or because of their body."),
		fallback:     add(&errs, m.Int64ObservableCounter, "diana.fallback", "{request}", "Requests that the limiter evaluated without Redis."),
		evictions:    add(&errs, m.Int64ObservableCounter, "diana.evictions", "{actor}", "Expired actors that the local store removed to make room for new ones."),
		reloads:      add(&errs, m.Int64ObservableCounter, "diana.config.reloads", "{reload}", "Configurations that were read, by source and result."),
		redisErrors:  add(&errs, m.Int64ObservableCounter, "diana.redis.errors", "{call}", "Requests and probes that Redis did not answer, by the kind of failure."),
		lateDebits:   add(&errs, m.Int64ObservableCounter, "diana.redis.late_debits", "1", "The sum of charges that were made without Redis and that it has received since."),
		unknownCalls: add(&errs, m.Int64ObservableCounter, "diana.redis.unknown_calls", "{call}", "Calls to Redis that failed, and whose outcome nobody can learn."),
		keys:         add(&errs, m.Int64ObservableUpDownCounter, "diana.keys", "{actor}", "Actors that the local store remembers."),
		waiting:      add(&errs, m.Int64ObservableUpDownCounter, "diana.waiting", "{request}", "Requests that wait now, for a rule with a wait or for a leaky bucket."),
		limit:        add(&errs, m.Int64ObservableGauge, "diana.rule.limit", "{request}", "Requests that a rule allows in its unit, or at once if it limits concurrency."),
		degraded:     add(&errs, m.Int64ObservableGauge, "diana.degraded", "1", "Whether the limiter decides global rules without Redis (1) or not (0)."),
		gateways:     add(&errs, m.Int64ObservableGauge, "diana.gateways", "{gateway}", "Gateways last seen alive, this one included."),
		config:       add(&errs, m.Int64ObservableGauge, "diana.config.info", "1", "The active configuration. The value is always 1."),
		reloaded:     add(&errs, m.Int64ObservableGauge, "diana.config.last_reload.successful", "1", "Whether the configuration was valid when it was last read (1) or not (0)."),
		unit:         add(&errs, m.Float64ObservableGauge, "diana.rule.unit", "s", "The unit of a rule. A rule that limits concurrency has none."),
		reloadTime:   add(&errs, m.Float64ObservableGauge, "diana.config.last_reload.time", "s", "When a configuration was last read successfully, since 1970."),
	}
	if errs != nil {
		return nil, errs
	}
	return m.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		i.observe(limiter, observer{o, own})
		return nil
	}, i.requests, i.overflow, i.rejected, i.fallback, i.evictions, i.reloads, i.redisErrors, i.lateDebits, i.unknownCalls, i.keys, i.waiting,
		i.limit, i.degraded, i.gateways, i.config, i.reloaded, i.unit, i.reloadTime)
}

// observe reads the limiter once.
func (i *instruments) observe(l *diana.Limiter, o observer) {
	s := l.Status()
	for _, r := range s.Rules {
		rule := text("diana.rule", r.Name)
		for decision, n := range map[string]int64{
			"allowed": r.Allowed, "refused": r.Refused, "shadow_refused": r.ShadowRefused, "delayed": r.Delayed,
		} {
			o.int(i.requests, n, rule, text("diana.decision", decision))
		}
		o.int(i.overflow, r.Overflow, rule)
		o.int(i.limit, r.Limit, rule)
		if r.UnitSeconds > 0 {
			o.float(i.unit, r.UnitSeconds, rule)
		}
	}
	for reason, n := range l.Rejected() {
		o.int(i.rejected, n, text("diana.reason", reason))
	}
	failed := l.RedisErrors()
	for _, kind := range []string{"timeout", "connection"} { // exported from the start, so that the first one is an increase
		failed[kind] += 0
	}
	for kind, n := range failed {
		o.int(i.redisErrors, n, text("error.type", kind))
	}
	for reload, n := range l.Reloads() {
		o.int(i.reloads, n, text("diana.config.source", reload.Source), text("diana.result", reload.Result))
	}
	o.int(i.config, 1, text("diana.config.source", s.Config.Source), text("diana.config.version", s.Config.Version))
	o.int(i.reloaded, oneIf(s.Config.LastReloadSuccessful))
	o.float(i.reloadTime, float64(s.Config.LastReloadSuccess.UnixMilli())/1000)
	o.int(i.fallback, s.Fallback)
	o.int(i.lateDebits, s.LateDebits)
	o.int(i.unknownCalls, s.UnknownCalls)
	o.int(i.evictions, s.Evictions)
	o.int(i.keys, int64(s.Keys))
	o.int(i.waiting, int64(l.Waiting()))
	o.int(i.degraded, oneIf(s.Degraded))
	o.int(i.gateways, int64(s.Gateways))
}

// observer adds the attributes of a limiter to all that is observed.
type observer struct {
	metric.Observer
	own []attribute.KeyValue
}

func (o observer) int(of metric.Int64Observable, n int64, a ...attribute.KeyValue) {
	o.ObserveInt64(of, n, metric.WithAttributes(o.own...), metric.WithAttributes(a...))
}

func (o observer) float(of metric.Float64Observable, v float64, a ...attribute.KeyValue) {
	o.ObserveFloat64(of, v, metric.WithAttributes(o.own...), metric.WithAttributes(a...))
}

func oneIf(yes bool) int64 {
	if yes {
		return 1
	}
	return 0
}

// text returns an attribute, which must be UTF-8. The name of a file need not be.
func text(key, value string) attribute.KeyValue {
	return attribute.String(key, strings.ToValidUTF8(value, "\uFFFD"))
}

// add makes an instrument of any kind, and keeps the error.
func add[I, O any](errs *error, of func(string, ...O) (I, error), name, unit, description string) I {
	i, err := of(name, any(metric.WithUnit(unit)).(O), any(metric.WithDescription(description)).(O))
	*errs = errors.Join(*errs, err)
	return i
}

// RedisCalls records diana.redis.call.duration, a histogram of the calls to Redis. Its Observe is the
// RedisObserved of [diana.Options].
type RedisCalls struct{ duration metric.Float64Histogram }

// NewRedisCalls returns a RedisCalls. A program makes it before the limiter, because the limiter's Options
// need it.
func NewRedisCalls(provider metric.MeterProvider) (*RedisCalls, error) {
	h, err := meter(provider).Float64Histogram("diana.redis.call.duration",
		metric.WithUnit("s"), metric.WithDescription("The duration of calls to Redis. One call serves all requests of a batch."),
		metric.WithExplicitBucketBoundaries(0.0001, 0.0002, 0.0004, 0.0008, 0.0016, 0.0032, 0.0064, 0.0128, 0.0256, 0.0512, 0.1024, 0.2048))
	return &RedisCalls{h}, err
}

// Observe adds a call. Several goroutines may call it at once.
func (c *RedisCalls) Observe(d time.Duration) { c.duration.Record(context.Background(), d.Seconds()) }
