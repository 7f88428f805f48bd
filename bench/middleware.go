// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
)

// The group middleware measures what an allowed request costs beyond the bare handler, on one
// thread and without a network.

var (
	nsOver     = figure{name: "ns over bare", format: nsText}
	allocsOver = figure{name: "allocs over", format: fewText}
	bytesOver  = figure{name: "bytes over", format: plainText}

	// Of the complete request.
	requestTime   = figure{name: "request", format: nsText, better: neither}
	requestAllocs = figure{name: "request's allocs", format: plainText, better: neither}
	requestBytes  = figure{name: "request's bytes", format: plainText, better: neither}
)

// The names that lines mention.
const (
	middlewareWorkload = "an allowed request"

	dianaOneRule  = "Diana, 1 rule by IP, 1 URL, RateLimit fields"
	bareHandler   = "bare handler"
	fieldsHandler = "bare handler that sets two fields"
)

// dianaHandler makes the name of a handler with three rules and that many URLs.
func dianaHandler(urls int, fields bool) string {
	name := fmt.Sprintf("Diana, 3 rules, %d URLs", urls)
	if fields {
		name += ", RateLimit fields"
	}
	return name
}

// middleware is a handler to measure.
type middleware struct {
	name string
	work string // see row
	kind kind
	http.Handler
}

func middlewareGroup() group {
	plain, fields, one := dianaHandler(1000, false), dianaHandler(1000, true), middlewareWorkload
	return group{
		name: "middleware", title: "As middleware", measure: measureMiddleware,
		figures: []figure{nsOver, requestTime, allocsOver, bytesOver},
		lines: []line{
			compare("1 rule by IP, RateLimit fields, over the bare handler", one, nsOver, dianaOneRule, bestRival),
			compare("3 rules, 1,000 URLs, over the bare handler", one, nsOver, plain).must("M1", atMost(nsOver, 560)),
			compare("the same: allocations", one, allocsOver, plain).must("M1", atMost(allocsOver, 0)),
			custom("3 rules, 1,000 URLs, fields, over a handler that sets two fields", measureFields).must("M1", atMost(nsOver, 600)),
			compare("the same: allocations over the bare handler", one, allocsOver, fields).must("M1", atMost(allocsOver, 4)),
			compare("10,000 URLs beside 10", one, nsOver, dianaHandler(10_000, false), dianaHandler(10, false)).must("M2", ratioAtMost(1.3)),
			compare("the same with fields", one, nsOver, dianaHandler(10_000, true), dianaHandler(10, true)).must("M2", ratioAtMost(1.3)),
		},
	}
}

// measureFields compares the handler that sends RateLimit fields with one that sets two fields,
// round by round.
func measureFields(r *report) (m measured, ok bool) {
	ours, theirs := r.find(middlewareWorkload, dianaHandler(1000, true)).series(nsOver), r.find(middlewareWorkload, fieldsHandler).series(nsOver)
	if ours == nil || theirs == nil {
		return m, false
	}
	var over []float64
	for i, ns := range ours.Rounds {
		over = append(over, ns-theirs.Rounds[i])
	}
	m.value = median(over)
	m.diana = nsText(m.value)
	return m, true
}

func measureMiddleware(ctx context.Context, r *run) error {
	r.note("  %s", middlewareWorkload)
	handlers, stop, err := openMiddleware(ctx)
	if err != nil {
		return err
	}
	defer stop()
	if err := checkRules(handlers); err != nil {
		return err
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	err = r.interleave(ctx, len(handlers), func(_, i int) error {
		h := &handlers[i]
		serveAllowed(h, r.count(5_000, 2_000)) // includes what the handler allocates once
		ns, allocated, bytes := serveAllowed(h, r.count(100_000, 20_000))
		m := r.working(middlewareWorkload, h.name, h.work, h.kind)
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
		for _, f := range []struct{ total, over figure }{{requestTime, nsOver}, {requestAllocs, allocsOver}, {requestBytes, bytesOver}} {
			for i, v := range m.series(f.total).Rounds {
				m.add(f.over, v-bare.series(f.total).Rounds[i])
			}
		}
	}
	return nil
}

// checkRules returns an error if a handler that sends RateLimit fields does not apply three rules. A
// limiter that finds no rule is fast.
func checkRules(handlers []middleware) error {
	for _, urls := range []int{10, 1000, 10_000} {
		name := dianaHandler(urls, true)
		h := handlers[slices.IndexFunc(handlers, func(h middleware) bool { return h.name == name })]
		w := httptest.NewRecorder()
		h.ServeHTTP(w, allowedRequest())
		if members := strings.Split(w.Header().Get("Ratelimit"), ","); len(members) != 3 {
			return fmt.Errorf("%s: the rules of the request are %q, expected 3", name, members)
		}
	}
	return nil
}

func allowedRequest() *http.Request {
	request := httptest.NewRequest(http.MethodGet, fmt.Sprintf("/api/v%d/orders", urlAsked), nil)
	request.Header.Set("X-Device-Id", "0a1b2c3d")
	return request
}

// serveAllowed returns the cost of an allowed request.
func serveAllowed(h http.Handler, requests int) (ns, allocated, bytes float64) {
	return serve(h, allowedRequest(), requests)
}

// serve returns the cost of a request. The time is the median of short slices, because other
// activity of the machine would dominate a mean.
func serve(h http.Handler, request *http.Request, requests int) (ns, allocated, bytes float64) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	var times []float64
	const parts = 20
	for range parts {
		took := stopwatch()
		for range requests / parts {
			h.ServeHTTP(httptest.NewRecorder(), request)
		}
		times = append(times, float64(took().Nanoseconds())/float64(requests/parts))
	}
	runtime.ReadMemStats(&after)
	return median(times), float64(after.Mallocs-before.Mallocs) / float64(requests), float64(after.TotalAlloc-before.TotalAlloc) / float64(requests)
}

// openMiddleware opens all handlers.
func openMiddleware(ctx context.Context) (handlers []middleware, stop func(), err error) {
	bare := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	var stops []func()
	stop = func() {
		for _, s := range stops {
			s()
		}
	}
	add := func(name, work, text string) {
		if err != nil {
			return
		}
		var h http.Handler
		var end func()
		if h, end, err = openHandler(ctx, text, bare); err == nil {
			handlers = append(handlers, middleware{name, work, diana, h})
			stops = append(stops, end)
		}
	}
	for _, urls := range []int{1000, 10, 10_000} {
		for _, fields := range []bool{false, true} {
			add(dianaHandler(urls, fields), "3 rules", rulesOf(urls, fields))
		}
	}
	add(dianaOneRule, "", "limits: [{url: /, rules: [{actor: ip, rpu: 1000000000}]}]")
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
	// Any handler pays this for two fields, because the recorder allocates room for them and copies
	// them when the response begins.
	fields := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header()["Ratelimit-Policy"] = []string{"policy"}
		w.Header()["Ratelimit"] = []string{"left"}
		bare(w, r)
	})
	return append(handlers, middleware{name: fieldsHandler, kind: floor, Handler: fields}, middleware{name: bareHandler, kind: floor, Handler: bare}), stop, nil
}

// urlAsked is the number of the URL that requests are for.
const urlAsked = 5

// rulesOf returns a configuration with that many URLs. One URL has three rules.
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
