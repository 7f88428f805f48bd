// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/diana-limiter/diana/bench/measure"
	"github.com/diana-limiter/diana/bench/rivals"
)

// The names of the systems. A system without Redis is one server, and one with Redis is three.
const (
	dianaLocalTB  = "Diana, local TB"
	dianaGlobalTB = "Diana, global TB"
	dianaGlobalSL = "Diana, global SL"
)

// exactSystem is a system and what it promises.
type exactSystem struct {
	name    string
	kind    measure.Kind
	library bool // in servers of this program
	redis   bool // the processes share counters in Redis
	promise promise
	reload  func(x *exactYard, s *exactSystem) error // nil if the system has no configuration to reload
	command func(x *exactYard) (measure.Command, error)
	body    func(unit, key string) string // of a request; nil if the path says all

	processes []*measure.Server
}

// exactSystems lists the systems in the order of the page, with the place where each makes its promise.
func exactSystems() []*exactSystem {
	library := func(name string, k measure.Kind, redis bool, p promise) *exactSystem {
		s := &exactSystem{
			name: name, kind: k, library: true, redis: redis, promise: p,
			command: func(x *exactYard) (measure.Command, error) { return x.Own(name, x.redis.URL()), nil },
		}
		if k == measure.Diana {
			s.reload = reloadDiana
		}
		return s
	}
	return []*exactSystem{
		library(dianaLocalTB, measure.Diana, false, bucketPromise), // docs/algorithms.md
		library(dianaGlobalTB, measure.Diana, true, bucketPromise),
		library(dianaGlobalSL, measure.Diana, true, logPromise),
		library(rivals.RedisRate, measure.Rival, true, bucketPromise),  // README and lua.go: GCRA, "leaky bucket"
		library(rivals.Throttled, measure.Rival, true, bucketPromise),  // rate.go: "generic cell-rate algorithm", MaxBurst
		library(rivals.Ulule, measure.Rival, true, firstWindowPromise), // drivers/store/redis: INCRBY, and PEXPIRE by the first
		{
			name: rivals.Envoy, kind: measure.Rival, redis: true,
			promise: clockWindowPromise, // README: requests_per_unit; src/limiter/cache_key.go: the window's start
			command: func(x *exactYard) (measure.Command, error) {
				return x.envoy.Command(x.redis, x.FreeAddress()), limitEnvoy(x, nil)
			},
			reload: limitEnvoy,
			body: func(unit, key string) string {
				return fmt.Sprintf(`{"domain":%q,"descriptors":[{"entries":[{"key":%q,"value":%q}]}]}`, rivals.EnvoyDomain, unit, key)
			},
		},
	}
}

func reloadDiana(_ *exactYard, s *exactSystem) error {
	for _, p := range s.processes {
		if _, err := get("http://" + p.Address + reloadPath); err != nil {
			return err
		}
	}
	return nil
}

func limitEnvoy(x *exactYard, _ *exactSystem) error {
	of := func(unit string) string {
		return fmt.Sprintf("{key: %s, rate_limit: {unit: %[1]s, requests_per_unit: %d}}", unit, exactQuotas[unit].N)
	}
	return x.envoy.Limit(of("minute"), of("second"))
}

// A library is limited by a server of this program, so that the driver sees it from outside, like a gateway. The
// server answers 200 for a request that the library allows, 429 for a refusal, and 500 for an error. /minute/KEY
// and /second/KEY count KEY under a quota of exactQuotas. The other paths count nothing.
const (
	probePath  = "/probe"  // answers 200 if the library decides as it does without faults
	reloadPath = "/reload" // applies another configuration with the same limits
	alonePath  = "/alone"  // how many requests the library has allowed without Redis
)

// exactQuotas are the limits of the servers, by their paths. Only a bucket needs a second number, its
// capacity, which is n.
var exactQuotas = map[string]rivals.Quota{"minute": {N: 1000, Per: time.Minute}, "second": {N: 100, Per: time.Second}}

// exactLibrary is a library with a limit for each of exactQuotas.
type exactLibrary struct {
	decide func(ctx context.Context, unit, key string) (allowed bool, err error)
	probe  func(context.Context) error // nil if an error of decide is enough
	reload func() error                // nil if the library has no configuration
	alone  atomic.Int64                // requests allowed without Redis
}

// openLibrary opens a library, or returns nil if it is none. A Redis client has the settings that it has without
// options, because these are what most users have.
func openLibrary(ctx context.Context, name, url string) (*exactLibrary, error) {
	switch name {
	case dianaLocalTB:
		return openExactLimiter(ctx, "TB", "")
	case dianaGlobalTB:
		return openExactLimiter(ctx, "TB", url)
	case dianaGlobalSL:
		return openExactLimiter(ctx, "SL", url)
	}
	open, ok := rivals.Libraries[name]
	if !ok {
		return nil, nil
	}
	o, err := redis.ParseURL(url)
	if err != nil {
		return nil, err
	}
	decide, err := open(redis.NewClient(o), exactQuotas["minute"], exactQuotas["second"])
	return &exactLibrary{decide: func(ctx context.Context, unit, key string) (bool, error) {
		return decide(ctx, exactQuotas[unit], unit+":"+key)
	}}, err
}

func (l *exactLibrary) handler() http.Handler {
	mux := http.NewServeMux()
	answer := func(w http.ResponseWriter, allowed bool, err error) {
		switch {
		case err != nil:
			http.Error(w, err.Error(), http.StatusInternalServerError)
		case !allowed:
			w.WriteHeader(http.StatusTooManyRequests)
		}
	}
	for unit := range exactQuotas {
		mux.HandleFunc("/"+unit+"/{key}", func(w http.ResponseWriter, r *http.Request) {
			allowed, err := l.decide(r.Context(), unit, r.PathValue("key"))
			answer(w, allowed, err)
		})
	}
	mux.HandleFunc(probePath, func(w http.ResponseWriter, r *http.Request) {
		probe := l.probe
		if probe == nil {
			probe = func(ctx context.Context) error { _, err := l.decide(ctx, "second", "probe"); return err }
		}
		answer(w, true, probe(r.Context()))
	})
	var reloading sync.Mutex // one reload at a time
	mux.HandleFunc(reloadPath, func(w http.ResponseWriter, _ *http.Request) {
		reloading.Lock()
		defer reloading.Unlock()
		answer(w, true, l.reload())
	})
	mux.HandleFunc(alonePath, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(strconv.AppendInt(nil, l.alone.Load(), 10))
	})
	return mux
}
