// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"time"

	"github.com/diana-limiter/diana/bench/measure"
	"github.com/diana-limiter/diana/bench/page"
	"github.com/diana-limiter/diana/bench/rivals"
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
	nsRefusal = measure.Figure{Name: "time of a refusal", Format: inSeconds}
	nsFind    = measure.Figure{Name: "time to find the rules", Format: inSeconds}
	floors    = measure.Figure{Name: "in clock + compare-and-swap", Format: measure.PlainText, Better: measure.Neither}
)

func inSeconds(ns float64) string { return measure.SecondsText(ns / 1e9) }

func worstGroup() group {
	return group{measure: measureWorst, Chapter: page.Chapter{
		Name: "worst", Title: "Refusing the worst requests",
		Figures: []measure.Figure{nsFind, nsRefusal, floors},
		Lines: []page.Line{
			worstOf("finding the rules of the worst path of 1 KiB", nsFind, pathOf(1<<10)).Must("P1", page.AtMost(nsFind, 20_000)),
			worstOf("finding the rules of the worst path of 8 KiB", nsFind, pathOf(maxPath)).Must("P1", page.AtMost(nsFind, 100_000)),
			worstOf("refusing the worst request of any kind", nsRefusal, "Diana, ").Must("P1", page.AtMost(nsRefusal, 100_000)),
		},
	}}
}

// worstOf makes a line for the largest figure of all rows whose names begin with prefix.
func worstOf(what string, f measure.Figure, prefix string) page.Line {
	return page.Custom(what, func(r *measure.Report) (m page.Measured, ok bool) {
		for _, w := range r.Rows {
			if s := w.Series(f); s != nil && strings.HasPrefix(w.System, prefix) && s.Median > m.Value {
				m.Value, ok = s.Median, true
			}
		}
		m.Diana = f.Format(m.Value)
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

func measureWorst(ctx context.Context, r *measure.Run) error {
	r = r.AtMost(3) // because there are many requests
	requests := worstRequests()
	if err := refuseWorst(ctx, r, requests); err != nil {
		return err
	}
	return findWorst(ctx, r, requests)
}

// refuseWorst measures refusals.
func refuseWorst(ctx context.Context, r *measure.Run, requests []worstRequest) error {
	r.Note("  %s", worstWorkload)
	h, stop, err := openHandler(ctx, worstRules, http.NotFoundHandler())
	if err != nil {
		return err
	}
	defer stop()
	var workers []measure.Worker
	for _, d := range requests {
		sent := rivals.Sending(h, d.request)
		sent.Send()
		if status, _ := sent.Answer(); status != http.StatusServiceUnavailable {
			return fmt.Errorf("%s: status %d, want 503", d.name, status)
		}
		workers = append(workers, again(sent.Send))
	}
	return r.Paired(ctx, 1, func(i int, c measure.Expense) {
		r.Row(worstWorkload, requests[i].name, measure.Diana).Add(nsRefusal, c.Ns)
	}, workers...)
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

// findWorst measures Find for the paths of the requests, beside the floor.
func findWorst(ctx context.Context, r *measure.Run, requests []worstRequest) error {
	r.Note("  %s", findWorkload)
	entries, err := findURLs()
	if err != nil {
		return err
	}
	set, err := plan.Compile(entries, rule.Identity{}, rule.Paths{}, actors.Kinds())
	if err != nil {
		return err
	}
	workers := []measure.Worker{deciding(rivals.CompareAndSwap(endless), measure.HotKey())}
	requests = slices.DeleteFunc(requests, func(w worstRequest) bool { return len(w.request.URL.Path) < 100 })
	var m plan.Match
	for _, w := range requests {
		asked := &rule.Request{Method: http.MethodGet, Path: w.request.URL.EscapedPath()}
		if err := set.Find(&m, asked); err != nil {
			return fmt.Errorf("%s: %w", w.name, err)
		}
		workers = append(workers, again(func() { _ = set.Find(&m, asked) }))
	}
	var floor float64
	return r.Paired(ctx, 1, func(i int, c measure.Expense) {
		if i == 0 {
			floor = c.Ns
			r.Row(findWorkload, worstFloor, measure.Floor).Add(nsFind, floor)
			return
		}
		m := r.Row(findWorkload, requests[i-1].name, measure.Diana)
		m.Add(nsFind, c.Ns)
		m.Add(floors, c.Ns/floor)
	}, workers...)
}
