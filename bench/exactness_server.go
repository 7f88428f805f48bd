// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-chi/httprate"
	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
	"github.com/sethvargo/go-limiter/memorystore"
	"github.com/throttled/throttled/v2"
	goredisstore "github.com/throttled/throttled/v2/store/goredisstore.v9"
	ulule "github.com/ulule/limiter/v3"
	ululeredis "github.com/ulule/limiter/v3/drivers/store/redis"
)

// exactCommand is a hidden subcommand: a server that limits by a library, so that the driver sees
// each library from outside, like a gateway.
//
//	bench exact-server ADDRESS LIBRARY [REDIS]
//
// It answers 200 for a request that the library allows, 429 for a refusal, and 500 for an error.
// /minute/KEY and /second/KEY count KEY under a quota of exactQuotas.
const exactCommand = "exact-server"

// The paths of a server that count nothing.
const (
	probePath  = "/probe"  // answers 200 if the library decides as it does without faults
	reloadPath = "/reload" // applies another configuration with the same limits
	alonePath  = "/alone"  // how many requests the library has allowed without Redis
	beganPath  = "/began"  // when the library was opened, in nanoseconds since 1970
)

// exactQuotas are the limits of the servers, by their paths. Only a bucket needs a second number, its
// capacity, which is n.
var exactQuotas = map[string]quota{
	"minute": {1000, time.Minute},
	"second": {100, time.Second},
}

// exactLibrary is a library with a limit for each of exactQuotas.
type exactLibrary struct {
	decide func(ctx context.Context, unit, key string) (allowed bool, err error)
	probe  func(context.Context) error // nil if an error of decide is enough
	reload func() error                // nil if the library has no configuration
	alone  atomic.Int64                // requests allowed without Redis
}

// exactLibraries open a library. A Redis client has the settings that it has without options, because
// these are what most users have.
var exactLibraries = map[string]func(ctx context.Context, redis string) (*exactLibrary, error){
	dianaLocalTB:  func(ctx context.Context, _ string) (*exactLibrary, error) { return openExactLimiter(ctx, "TB", "") },
	dianaGlobalTB: func(ctx context.Context, url string) (*exactLibrary, error) { return openExactLimiter(ctx, "TB", url) },
	dianaGlobalSL: func(ctx context.Context, url string) (*exactLibrary, error) { return openExactLimiter(ctx, "SL", url) },
	redisRateName: exactRedisRate,
	"throttled":   exactThrottled,
	ululeExact:    exactUlule,
	httprateExact: exactHTTPRate,
	"go-limiter":  exactGoLimiter,
}

func exactClient(url string) (*redis.Client, error) {
	o, err := redis.ParseURL(url)
	if err != nil {
		return nil, err
	}
	return redis.NewClient(o), nil
}

func exactRedisRate(_ context.Context, url string) (*exactLibrary, error) {
	client, err := exactClient(url)
	if err != nil {
		return nil, err
	}
	l := redis_rate.NewLimiter(client)
	return &exactLibrary{decide: func(ctx context.Context, unit, key string) (bool, error) {
		q := exactQuotas[unit]
		got, err := l.Allow(ctx, unit+":"+key, redis_rate.Limit{Rate: int(q.n), Burst: int(q.n), Period: q.per})
		return err == nil && got.Allowed > 0, err
	}}, nil
}

func exactThrottled(_ context.Context, url string) (*exactLibrary, error) {
	client, err := exactClient(url)
	if err != nil {
		return nil, err
	}
	store, err := goredisstore.NewCtx(client, "throttled:")
	if err != nil {
		return nil, err
	}
	limiters := map[string]*throttled.GCRARateLimiterCtx{}
	for unit, q := range exactQuotas {
		// It allows one more than MaxBurst.
		limiters[unit], err = throttled.NewGCRARateLimiterCtx(store, throttled.RateQuota{
			MaxRate: throttled.PerDuration(int(q.n), q.per), MaxBurst: int(q.n - 1),
		})
		if err != nil {
			return nil, err
		}
	}
	return &exactLibrary{decide: func(ctx context.Context, unit, key string) (bool, error) {
		limited, _, err := limiters[unit].RateLimitCtx(ctx, unit+":"+key, 1)
		return err == nil && !limited, err
	}}, nil
}

func exactUlule(_ context.Context, url string) (*exactLibrary, error) {
	client, err := exactClient(url)
	if err != nil {
		return nil, err
	}
	store, err := ululeredis.NewStore(client)
	if err != nil {
		return nil, err
	}
	return &exactLibrary{decide: func(ctx context.Context, unit, key string) (bool, error) {
		q := exactQuotas[unit]
		got, err := ulule.New(store, ulule.Rate{Period: q.per, Limit: q.n}).Get(ctx, unit+":"+key)
		return err == nil && !got.Reached, err
	}}, nil
}

// exactHTTPRate calls what the middleware of httprate calls, with its lock.
func exactHTTPRate(context.Context, string) (*exactLibrary, error) {
	limiters := map[string]*httprate.RateLimiter{}
	for unit, q := range exactQuotas {
		limiters[unit] = httprate.NewRateLimiter(int(q.n), q.per)
	}
	return &exactLibrary{decide: func(ctx context.Context, unit, key string) (bool, error) {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, "/", nil)
		return err == nil && !limiters[unit].OnLimit(noWriter{}, r, key), err
	}}, nil
}

// noWriter is a response that nobody reads.
type noWriter struct{}

func (noWriter) Header() http.Header         { return http.Header{} }
func (noWriter) Write(b []byte) (int, error) { return len(b), nil }
func (noWriter) WriteHeader(int)             {}

func exactGoLimiter(context.Context, string) (*exactLibrary, error) {
	decide := map[string]func(string) bool{}
	for unit, q := range exactQuotas {
		store, err := memorystore.New(&memorystore.Config{Tokens: uint64(q.n), Interval: q.per})
		if err != nil {
			return nil, err
		}
		decide[unit] = func(key string) bool {
			_, _, _, ok, err := store.Take(context.Background(), key)
			return ok && err == nil
		}
	}
	return &exactLibrary{decide: func(_ context.Context, unit, key string) (bool, error) { return decide[unit](key), nil }}, nil
}

// runExact serves until ctx ends.
func runExact(ctx context.Context, args []string) error {
	if len(args) != 3 || exactLibraries[args[1]] == nil {
		return usageError{fmt.Errorf("%s: expected an address, a library and the URL of Redis", exactCommand)}
	}
	began := time.Now()
	library, err := exactLibraries[args[1]](ctx, args[2])
	if err != nil {
		return err
	}
	s := &http.Server{Addr: args[0], Handler: library.handler(began), ReadHeaderTimeout: 10 * time.Second}
	context.AfterFunc(ctx, func() { _ = s.Close() })
	if err := s.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

func (l *exactLibrary) handler(began time.Time) http.Handler {
	mux := http.NewServeMux()
	answer := func(w http.ResponseWriter, allowed bool, err error) {
		switch {
		case err != nil:
			http.Error(w, err.Error(), http.StatusInternalServerError)
		case !allowed:
			w.WriteHeader(http.StatusTooManyRequests)
		}
	}
	mux.HandleFunc("/{unit}/{key}", func(w http.ResponseWriter, r *http.Request) {
		if _, ok := exactQuotas[r.PathValue("unit")]; !ok {
			http.NotFound(w, r)
			return
		}
		allowed, err := l.decide(r.Context(), r.PathValue("unit"), r.PathValue("key"))
		answer(w, allowed, err)
	})
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
	mux.HandleFunc(beganPath, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(strconv.AppendInt(nil, began.UnixNano(), 10))
	})
	return mux
}
