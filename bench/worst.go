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

// The group worst measures the refusals that cost most, beside an ordinary one: paths with many
// readings, long chains of proxies, many cookies and parameters. Each request is as long as
// Diana accepts, or as a header of 64 KiB allows. There is one thread and no network.

const (
	worstWorkload = "refusing the worst request of each kind"
	ordinaryOne   = "Diana, an ordinary request"
)

var nsRefusal = figure{name: "time of a refusal", format: func(ns float64) string { return secondsText(ns / 1e9) }}

func worstGroup() group {
	return group{
		name: "worst", title: "Refusing the worst requests", measure: measureWorst,
		figures: []figure{nsRefusal},
		lines: []line{
			worstOf("the worst path of 1 KiB", pathOf(1<<10), atMost(nsRefusal, 20_000)),
			worstOf("the worst path of 8 KiB", pathOf(maxPath), atMost(nsRefusal, 100_000)),
			worstOf("the worst request of any kind", "Diana, ", atMost(nsRefusal, 100_000)),
		},
	}
}

// worstOf makes a line for the slowest of all requests whose names begin with prefix.
func worstOf(what, prefix string, b bound) line {
	return custom(what, func(r *report) (m measured, ok bool) {
		for _, w := range r.Rows {
			if s := w.series(nsRefusal); s != nil && strings.HasPrefix(w.System, prefix) && s.Median > m.value {
				m.value, ok = s.Median, true
			}
		}
		m.diana = nsRefusal.format(m.value)
		return m, ok
	}).must("P1", b)
}

func pathOf(size int) string { return fmt.Sprintf("Diana, a path of %d bytes: ", size) }

// worstRules refuse every request, after three rules have looked for its actor.
const worstRules = `
identity: {trusted_proxies: [10.0.0.0/8]}
limits:
- {url: /, rules: [{actor: ip, rpu: 1000000000}, {actor: 'cookie:sid', rpu: 1000000000}, {actor: 'query:key', rpu: 1000000000}, {actor: 'header:X-Key', rpu: 0}]}
- {url: '/{any}/{any}', rules: [{rpu: 1000000000}]}
- {url: '/a/{x}/b', rules: [{rpu: 1000000000}]}
`

// worstRequest is a kind of request.
type worstRequest struct {
	name    string
	request *http.Request
}

// worstRequests returns the worst request of each kind that benchmarks of package rule have
// found.
func worstRequests() []worstRequest {
	filled := func(text string, size int) string { return strings.Repeat(text, size/len(text)) }
	request := func(target string, fields ...string) *http.Request {
		r := httptest.NewRequest(http.MethodGet, target, nil)
		r.RemoteAddr = "10.0.0.1:1234"
		for i := 0; i < len(fields); i += 2 {
			r.Header.Set(fields[i], fields[i+1])
		}
		return r
	}
	paths := func(size int) []worstRequest {
		const most = maxSegments - 2
		long := func(text string, segments int) *http.Request {
			path := "/" + strings.Repeat(text, min(size/len(text), most/segments))
			return request(path + strings.Repeat("A", max(size-len(path), 0)))
		}
		return []worstRequest{
			{pathOf(size) + "slashes", long("/", 1)},
			{pathOf(size) + "parameters", long("a;/", 1)},
			{pathOf(size) + "encoded slashes", long("a%2F", 1)},
			{pathOf(size) + "encoded twice", long("%2561%255Ca;/", 2)},
			{pathOf(size) + "up and down", long("a;/../", 2)},
		}
	}
	const header = 60 << 10
	all := []worstRequest{{ordinaryOne, request("/a/b/c?key=x", "X-Key", "0a1b2c3d", "Cookie", "sid=0a1b2c3d")}}
	all = append(append(all, paths(1<<10)...), paths(maxPath)...)
	return append(all, []worstRequest{
		{"Diana, X-Forwarded-For, trusted proxies", request("/", "X-Forwarded-For", filled("10.0.0.1,", header))},
		{"Diana, cookies", request("/", "Cookie", filled("sib=0123456789012345678901;", header))},
		{"Diana, cookies of the name", request("/", "Cookie", filled("sid=0123456789012345678901;", 250*27))},
		{"Diana, a cookie, encoded", request("/", "Cookie", "sid="+filled("%41", 4000))},
		{"Diana, parameters", request("/?" + filled("kex=0123456789012345678901&", header))},
		{"Diana, parameters of the name", request("/?" + filled("key=0123456789012345678901&", 250*27))},
		{"Diana, a parameter, encoded", request("/?key=" + filled("%41", 4000))},
		{"Diana, a field", request("/", "X-Key", filled("x", 4000))},
	}...)
}

func measureWorst(ctx context.Context, r *run) error {
	r.note("  %s", worstWorkload)
	h, stop, err := openHandler(ctx, worstRules, http.NotFoundHandler())
	if err != nil {
		return err
	}
	defer stop()
	requests := worstRequests()
	for _, d := range requests {
		w := httptest.NewRecorder()
		if h.ServeHTTP(w, d.request); w.Code != http.StatusServiceUnavailable {
			return fmt.Errorf("%s: status %d, want 503: %s", d.name, w.Code, w.Body)
		}
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	return r.interleave(ctx, len(requests), func(_, i int) error {
		ns, _, _ := serve(h, requests[i].request, max(r.count(20_000, 2_000), 20))
		r.row(worstWorkload, requests[i].name, diana).add(nsRefusal, ns)
		return nil
	})
}
