// SPDX-License-Identifier: MIT

package rivals

import (
	"context"
	"time"

	"github.com/failsafe-go/failsafe-go/adaptivelimiter"
	"github.com/platinummonkey/go-concurrency-limits/core"
	"github.com/platinummonkey/go-concurrency-limits/limit"
	"github.com/platinummonkey/go-concurrency-limits/limiter"
	"github.com/platinummonkey/go-concurrency-limits/strategy"

	"github.com/diana-limiter/diana/bench/measure"
)

// Guard protects an upstream from overload. Enter returns false for a request that it refuses, otherwise a function
// to call at the end of the request. The numbers are its priority, 0 is the highest, and its client.
type Guard struct {
	Name  string
	Kind  measure.Kind
	Enter func(priority, client int) (end func(), ok bool)
}

// Guards returns the rivals, failsafe-go and two limits of go-concurrency-limits, with the settings of their authors. They know no priorities and no clients.
func Guards() (all []Guard, err error) {
	permits := adaptivelimiter.NewWithDefaults[any]()
	all = append(all, Guard{Name: "failsafe-go", Kind: measure.Rival, Enter: func(int, int) (func(), bool) {
		p, ok := permits.TryAcquirePermit()
		if !ok {
			return nil, false
		}
		return p.Record, true
	}})
	metrics, quiet := core.EmptyMetricRegistryInstance, limit.NoopLimitLogger{}
	for _, l := range []struct {
		name  string
		limit core.Limit
	}{
		{"Gradient2", limit.NewDefaultGradient2Limit("", quiet, metrics)},
		{"Vegas", limit.NewDefaultVegasLimit("", quiet, metrics)},
	} {
		// The last four numbers are the defaults of NewDefaultLimiterWithDefaults, which takes no limit.
		d, err := limiter.NewDefaultLimiter(l.limit, time.Second.Nanoseconds(), time.Second.Nanoseconds(), (100 * time.Microsecond).Nanoseconds(), 100,
			strategy.NewSimpleStrategy(l.limit.EstimatedLimit()), quiet, metrics)
		if err != nil {
			return nil, err
		}
		all = append(all, Guard{Name: l.name, Kind: measure.Rival, Enter: func(int, int) (func(), bool) {
			listener, ok := d.Acquire(context.Background())
			if !ok {
				return nil, false
			}
			return listener.OnSuccess, true
		}})
	}
	return all, nil
}
