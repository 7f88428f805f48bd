// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
)

// What is measured of the middleware: what a request takes that is let pass, over what
// the handler behind takes alone. There is no network, and one thread.

// The figures of this group: what it is more than the bare handler.
const (
	nsOver     = "ns over bare"
	allocsOver = "allocs over"
	bytesOver  = "bytes over"

	requestTime, requestAllocs, requestBytes = "request", "request's allocs", "request's bytes" // all told
)

// The names of those that targets speak of.
const (
	middlewareWorkload = "a request that is let pass"

	dianaOneRule  = "Diana, 1 rule by IP, 1 URL, RateLimit fields"
	bareHandler   = "bare handler"
	fieldsHandler = "bare handler that sets two fields"
)

// dianaHandler makes the name of Diana's, of so many URLs.
func dianaHandler(urls int, fields bool) string {
	name := fmt.Sprintf("Diana, 3 rules, %d URLs", urls)
	if fields {
		name += ", RateLimit fields"
	}
	return name
}

// middleware is one who is measured.
type middleware struct {
	name string
	kind kind
	http.Handler
}

func measureMiddleware(ctx context.Context, r *run) error {
	r.note("  %s", middlewareWorkload)
	handlers, stop, err := openMiddleware(ctx)
	if err != nil {
		return err
	}
	defer stop()
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	err = r.interleave(ctx, len(handlers), func(_, i int) error {
		h := &handlers[i]
		passing(h, r.count(5_000, 2_000)) // what is allocated once
		ns, allocated, bytes := passing(h, r.count(200_000, 20_000))
		m := r.row(middlewareWorkload, h.name, h.kind)
		m.add(requestTime, ns)
		m.add(requestAllocs, allocated)
		m.add(requestBytes, bytes)
		return nil
	})
	if err != nil {
		return err
	}
	bare := r.report.find(middlewareWorkload, bareHandler)
	for _, h := range handlers {
		m := r.report.find(middlewareWorkload, h.name)
		if m == bare {
			continue
		}
		for total, over := range map[string]string{requestTime: nsOver, requestAllocs: allocsOver, requestBytes: bytesOver} {
			for i, v := range m.Figures[total].Rounds {
				m.add(over, v-bare.Figures[total].Rounds[i])
			}
		}
	}
	return nil
}

// passing returns what a request takes that is let pass.
func passing(h http.Handler, requests int) (ns, allocated, bytes float64) {
	request := httptest.NewRequest(http.MethodGet, fmt.Sprintf("/api/v%d/orders", urlAsked), nil)
	request.Header.Set("X-Device-Id", "0a1b2c3d")
	return serving(h, request, requests)
}

// serving returns what a request takes. The time is the median of short slices, as it is
// small beside what else a machine does now and then.
func serving(h http.Handler, request *http.Request, requests int) (ns, allocated, bytes float64) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	var times []float64
	const slices = 20
	for range slices {
		took := stopwatch()
		for range requests / slices {
			h.ServeHTTP(httptest.NewRecorder(), request)
		}
		times = append(times, float64(took().Nanoseconds())/float64(requests/slices))
	}
	runtime.ReadMemStats(&after)
	return median(times), float64(after.Mallocs-before.Mallocs) / float64(requests), float64(after.TotalAlloc-before.TotalAlloc) / float64(requests)
}

// openMiddleware opens all who are measured.
func openMiddleware(ctx context.Context) (handlers []middleware, stop func(), err error) {
	bare := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	var stops []func()
	stop = func() {
		for _, s := range stops {
			s()
		}
	}
	add := func(name, text string) {
		if err != nil {
			return
		}
		var h http.Handler
		var end func()
		if h, end, err = openHandler(ctx, text, bare); err == nil {
			handlers = append(handlers, middleware{name, diana, h})
			stops = append(stops, end)
		}
	}
	for _, urls := range []int{1000, 10, 10_000} {
		for _, fields := range []bool{false, true} {
			add(dianaHandler(urls, fields), rulesOf(urls, fields))
		}
	}
	add(dianaOneRule, "limits: [{url: /, rules: [{actor: ip, rpu: 1000000000}]}]")
	if err != nil {
		stop()
		return nil, nil, err
	}
	for _, open := range []func(http.Handler) (middleware, error){openHTTPRateHandler, openThrottledHandler, openTollboothHandler} {
		h, err := open(bare)
		if err != nil {
			stop()
			return nil, nil, err
		}
		handlers = append(handlers, h)
	}
	// Two fields are at least this, whoever sets them: the recorder makes room for them, and
	// copies them when the answer begins.
	fields := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header()["Ratelimit-Policy"] = []string{"policy"}
		w.Header()["Ratelimit"] = []string{"left"}
		bare(w, r)
	})
	return append(handlers, middleware{fieldsHandler, floor, fields}, middleware{bareHandler, floor, bare}), stop, nil
}

// urlAsked is the one of the URLs that requests are for.
const urlAsked = 5

// rulesOf is a configuration of so many URLs, of which one has three rules.
func rulesOf(urls int, fields bool) string {
	var text strings.Builder
	fmt.Fprintf(&text, "response: {headers: %v}\nlimits:\n", fields)
	for i := range urls {
		more := ""
		if i == urlAsked {
			more = ", {actor: ip, rpu: 1000000000}, {actor: device, rpu: 1000000000}"
		}
		fmt.Fprintf(&text, "- {url: /api/v%d/orders, rules: [{rpu: 1000000000}%s]}\n", i, more)
	}
	return text.String()
}

// openHandler returns a handler with Diana before it.
func openHandler(ctx context.Context, text string, next http.Handler) (http.Handler, func(), error) {
	l, err := openLimiter(ctx, text)
	if err != nil {
		return nil, nil, err
	}
	return l.Handler(next), func() { _ = l.Close() }, nil // it has nothing to lose
}
