// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"net"
	"net/http"
	"time"

	"github.com/didip/tollbooth/v7"
	"github.com/go-chi/httprate"
	"github.com/throttled/throttled/v2"
	"github.com/throttled/throttled/v2/store/memstore"

	dianalib "github.com/diana-limiter/diana"
)

// noContent is the handler of net/http behind each middleware.
var noContent = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })

// httpMiddleware returns the middleware of net/http.
func httpMiddleware() (all []middleware) {
	put := func(l *dianalib.Limiter) client { return httpClient(l.Handler(noContent)) }
	for _, urls := range []int{1000, 10, 10_000} {
		for _, fields := range []bool{false, true} {
			text := func(limit int) string { return rulesOf(urls, fields, limit) }
			all = append(all, middleware{middlewareWorkload, dianaHandler(urls, fields), diana, threeRules, fields, dianaOpener(text, put)})
		}
	}
	one := dianaIn(middlewareWorkload, perAddress, true, put)
	one.name = dianaOneRule
	// Any handler pays this for two fields, because the recorder allocates room for them and copies
	// them when the response begins.
	fields := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header()["Ratelimit-Policy"] = []string{"policy"}
		w.Header()["Ratelimit"] = []string{"left"}
		noContent(w, r)
	})
	return append(all, one,
		rivalIn(middlewareWorkload, "httprate", perAddress, true, openHTTPRateHandler),
		rivalIn(middlewareWorkload, "throttled", perAddress, true, openThrottledHandler),
		rivalIn(middlewareWorkload, "tollbooth", perAddress, true, openTollboothHandler),
		middleware{middlewareWorkload, fieldsHandler, floor, unlimited, true, alwaysOpen(httpClient(fields))},
		bareIn(middlewareWorkload, httpClient(noContent)),
	)
}

// rivalIn returns a rival in a framework.
func rivalIn(workload, name string, s scope, fields bool, open func(limit int) (client, error)) middleware {
	return middleware{workload, name + ", " + string(s), rival, s, fields, func(_ context.Context, limit int) (client, func(), error) {
		c, err := open(limit)
		return c, func() {}, err
	}}
}

// bareIn returns the handler of a framework without a limiter.
func bareIn(workload string, c client) middleware {
	return middleware{workload, bareHandler, floor, unlimited, false, alwaysOpen(c)}
}

func alwaysOpen(c client) opener {
	return func(context.Context, int) (client, func(), error) { return c, func() {}, nil }
}

// Each rival sets its fields, as its documentation shows.

func openHTTPRateHandler(limit int) (client, error) {
	return httpClient(httpRate(limit)(noContent)), nil
}

func httpRate(limit int) func(http.Handler) http.Handler {
	byAddress := func(r *http.Request) (string, error) {
		host, _, err := net.SplitHostPort(r.RemoteAddr)
		return httprate.CanonicalizeIP(host), err
	}
	return httprate.LimitBy(limit, time.Minute, byAddress)
}

func openThrottledHandler(limit int) (client, error) {
	store, err := memstore.NewCtx(0)
	if err != nil {
		return nil, err
	}
	limiter, err := throttled.NewGCRARateLimiterCtx(store, throttled.RateQuota{MaxRate: throttled.PerMin(limit), MaxBurst: limit - 1})
	if err != nil {
		return nil, err
	}
	h := throttled.HTTPRateLimiterCtx{RateLimiter: limiter, VaryBy: &throttled.VaryBy{RemoteAddr: true}}
	return httpClient(h.RateLimit(noContent)), nil
}

func openTollboothHandler(limit int) (client, error) {
	limiter := tollbooth.NewLimiter(everySecond(limit), nil).SetBurst(limit).SetIPLookups([]string{"RemoteAddr"})
	return httpClient(tollbooth.LimitHandler(limiter, noContent)), nil
}

// everySecond returns the rate of a limit a minute.
func everySecond(limit int) float64 { return float64(limit) / time.Minute.Seconds() }
