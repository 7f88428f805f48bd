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
	"time"

	"github.com/diana-limiter/diana/internal/actors"
	"github.com/diana-limiter/diana/internal/plan"
	"github.com/diana-limiter/diana/limit"
	"github.com/diana-limiter/diana/rule"
)

// The group worst measures the requests that cost most, beside an ordinary one: paths with many
// readings, long chains of proxies, many cookies and parameters. Each request is as long as
// Diana accepts, or as a header of 64 KiB allows. There is one thread and no network.
//
// It measures two times. Finding the rules of a path is Find alone, under URLs that make it slow. A
// refusal is everything that the Handler does, with the parsing of net/url and the response.

const (
	worstWorkload = "refusing the worst request of each kind"
	findWorkload  = "finding the rules of the worst paths"
	ordinaryOne   = "Diana, an ordinary request"
	worstFloor    = "clock + compare-and-swap"
)

var (
	nsRefusal = figure{name: "time of a refusal", format: inSeconds}
	nsFind    = figure{name: "time to find the rules", format: inSeconds}
	floors    = figure{name: "in clock + compare-and-swap", format: plainText, better: neither}
)

func inSeconds(ns float64) string { return secondsText(ns / 1e9) }

func worstGroup() group {
	return group{
		name: "worst", title: "Refusing the worst requests", measure: measureWorst,
		figures: []figure{nsFind, nsRefusal, floors},
		lines: []line{
			worstOf("finding the rules of the worst path of 1 KiB", nsFind, pathOf(1<<10)).must("P1", atMost(nsFind, 20_000)),
			worstOf("finding the rules of the worst path of 8 KiB", nsFind, pathOf(maxPath)).must("P1", atMost(nsFind, 100_000)),
			worstOf("refusing the worst request of any kind", nsRefusal, "Diana, ").must("P1", atMost(nsRefusal, 100_000)),
		},
	}
}

// worstOf makes a line for the largest figure of all rows whose names begin with prefix.
func worstOf(what string, f figure, prefix string) line {
	return custom(what, func(r *report) (m measured, ok bool) {
		for _, w := range r.Rows {
			if s := w.series(f); s != nil && strings.HasPrefix(w.System, prefix) && s.Median > m.value {
				m.value, ok = s.Median, true
			}
		}
		m.diana = f.format(m.value)
		return m, ok
	})
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
			{pathOf(size) + "empty encoded slashes", long("%2F", 1)},
			{pathOf(size) + "encoded backslashes", long("%2541%5Ca", 1)},
			{pathOf(size) + "encoded many times", request("/" + filled("%2525252561", size-1))},
			{pathOf(size) + "parameters alone", request("/" + filled(";", size-1))},
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
	err = r.interleave(ctx, len(requests), func(_, i int) error {
		send := (&httpRequest{handler: h, request: requests[i].request}).send
		r.row(worstWorkload, requests[i].name, diana).add(nsRefusal, costs([]func(){send}, r.count(4_000, 1_000))[0].ns)
		return nil
	})
	if err != nil {
		return err
	}
	return findWorst(ctx, r, requests)
}

// findURLs are URLs that make Find slow: a {name} at every level, and many URLs below one node.
func findURLs() (entries []rule.Entry, err error) {
	texts, deep := []string{"/", "/a/{x}/b", "/{x}/a/b"}, ""
	for i := range 40 {
		deep += fmt.Sprintf("/{x%d}", i)
		texts = append(texts, deep)
	}
	for i := range 200 {
		texts = append(texts, fmt.Sprintf("/a/r%d/{x}", i))
	}
	for _, text := range texts {
		e := rule.Entry{Rules: []rule.Rule{{Algorithm: limit.TokenBucket(), Limit: limit.Limit{N: 1, Unit: time.Second}}}}
		if err := e.URL.UnmarshalText([]byte(text)); err != nil {
			return nil, err
		}
		entries = append(entries, e)
	}
	return entries, nil
}

// findWorst measures Find for the paths of the requests, with the floor before each.
func findWorst(ctx context.Context, r *run, requests []worstRequest) error {
	r.note("  %s", findWorkload)
	entries, err := findURLs()
	if err != nil {
		return err
	}
	set, err := plan.Compile(entries, rule.Identity{}, rule.Paths{}, actors.Kinds())
	if err != nil {
		return err
	}
	clock, err := openClock(usual, 1)
	if err != nil {
		return err
	}
	requests = slices.DeleteFunc(requests, func(w worstRequest) bool { return len(w.request.URL.Path) < 100 })
	var m plan.Match
	return r.interleave(ctx, len(requests), func(_, i int) error {
		asked := &rule.Request{Method: http.MethodGet, Path: requests[i].request.URL.EscapedPath()}
		if err := set.Find(&m, asked); err != nil {
			return fmt.Errorf("%s: %w", requests[i].name, err)
		}
		ground, _ := decisions(1, r.count(100_000, 10_000), clock, hotKey())
		var times []float64
		for range 20 {
			n, took := max(r.count(100, 20), 5), stopwatch()
			for range n {
				_ = set.Find(&m, asked)
			}
			times = append(times, float64(took().Nanoseconds())/float64(n))
		}
		r.row(findWorkload, worstFloor, floor).add(nsFind, ground)
		row := r.row(findWorkload, requests[i].name, diana)
		row.add(nsFind, median(times))
		row.add(floors, median(times)/ground)
		return nil
	})
}
