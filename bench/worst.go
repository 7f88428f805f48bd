// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"

	"github.com/diana-limiter/diana/internal/paths"
)

// What the requests cost that are dearest to refuse, beside an ordinary one: paths of many
// readings, long chains of proxies, many cookies and parameters. There is no network, and one
// thread. Each is as long as Diana accepts, or as a header of 64 KiB holds.

const (
	worstWorkload = "a request that is refused, the dearest of each kind"

	nsRefusal   = "ns a refusal"
	ordinaryOne = "Diana, an ordinary request"
)

// worstRules refuse every request, after three rules have looked for who makes it.
const worstRules = `
identity: {trusted_proxies: [10.0.0.0/8]}
limits:
- {url: /, rules: [{actor: ip, rpu: 1000000000}, {actor: 'cookie:sid', rpu: 1000000000}, {actor: 'query:key', rpu: 1000000000}, {actor: 'header:X-Key', rpu: 0}]}
- {url: '/{any}/{any}', rules: [{rpu: 1000000000}]}
- {url: '/a/{x}/b', rules: [{rpu: 1000000000}]}
`

// dearest is a kind of request.
type dearest struct {
	name    string
	request *http.Request
}

// dearestRequests returns the dearest of each kind that was found by BenchmarkWorst and
// BenchmarkWorstPath of package rule.
func dearestRequests() []dearest {
	filled := func(text string, size int) string { return strings.Repeat(text, size/len(text)) }
	request := func(target string, fields ...string) *http.Request {
		r := httptest.NewRequest(http.MethodGet, target, nil)
		r.RemoteAddr = "10.0.0.1:1234"
		for i := 0; i < len(fields); i += 2 {
			r.Header.Set(fields[i], fields[i+1])
		}
		return r
	}
	pathsOf := func(size int) []dearest {
		const most = paths.MaxSegments - 2
		long := func(text string, segments int) *http.Request {
			path := "/" + strings.Repeat(text, min(size/len(text), most/segments))
			return request(path + strings.Repeat("A", max(size-len(path), 0)))
		}
		return []dearest{
			{fmt.Sprintf("a path of %d bytes: slashes", size), long("/", 1)},
			{fmt.Sprintf("a path of %d bytes: parameters", size), long("a;/", 1)},
			{fmt.Sprintf("a path of %d bytes: encoded slashes", size), long("a%2F", 1)},
			{fmt.Sprintf("a path of %d bytes: encoded twice", size), long("%2561%255Ca;/", 2)},
			{fmt.Sprintf("a path of %d bytes: up and down", size), long("a;/../", 2)},
		}
	}
	const header = 60 << 10
	all := []dearest{{ordinaryOne, request("/a/b/c?key=x", "X-Key", "0a1b2c3d", "Cookie", "sid=0a1b2c3d")}}
	for _, d := range append(append(pathsOf(1<<10), pathsOf(paths.MaxLength)...), []dearest{
		{"X-Forwarded-For, trusted proxies", request("/", "X-Forwarded-For", filled("10.0.0.1,", header))},
		{"cookies", request("/", "Cookie", filled("sib=0123456789012345678901;", header))},
		{"cookies of the name", request("/", "Cookie", filled("sid=0123456789012345678901;", 250*27))},
		{"a cookie, encoded", request("/", "Cookie", "sid="+filled("%41", 4000))},
		{"parameters", request("/?" + filled("kex=0123456789012345678901&", header))},
		{"parameters of the name", request("/?" + filled("key=0123456789012345678901&", 250*27))},
		{"a parameter, encoded", request("/?key=" + filled("%41", 4000))},
		{"a field", request("/", "X-Key", filled("x", 4000))},
	}...) {
		d.name = "Diana, " + d.name
		all = append(all, d)
	}
	return all
}

func measureWorst(ctx context.Context, r *run) error {
	r.note("  %s", worstWorkload)
	h, stop, err := openHandler(ctx, worstRules, http.NotFoundHandler())
	if err != nil {
		return err
	}
	defer stop()
	requests := dearestRequests()
	for _, d := range requests {
		w := httptest.NewRecorder()
		if h.ServeHTTP(w, d.request); w.Code != http.StatusServiceUnavailable {
			return fmt.Errorf("%s: status %d, want 503: %s", d.name, w.Code, w.Body)
		}
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	return r.interleave(ctx, len(requests), func(_, i int) error {
		ns, _, _ := serving(h, requests[i].request, max(r.count(20_000, 2_000), 20))
		r.row(worstWorkload, requests[i].name, diana).add(nsRefusal, ns)
		return nil
	})
}

func worstTargets() (all []target) {
	for _, d := range dearestRequests()[1:] {
		most := 100_000.0
		if strings.Contains(d.name, "1024") {
			most = 20_000
		}
		all = append(all, target{"W1", fmt.Sprintf("%s: at most %.0f µs", strings.TrimPrefix(d.name, "Diana, "), most/1000), judgeMost(worstWorkload, d.name, nsRefusal, most)})
	}
	return all
}
