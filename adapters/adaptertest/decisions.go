// SPDX-License-Identifier: MIT

package adaptertest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
)

const (
	twoHellos = "response: {status: 429}\nlimits: [{url: /hello, rules: [{name: r, unit: hour, rpu: 2, algo: W, align: first}]}]"
	oneUser   = "{url: /users, rules: [{name: r, unit: hour, rpu: 1}]}"
	pattern   = `[{url: "PATTERN", rules: [{name: r, unit: hour, rpu: 1}]}, {url: /nowhere, rules: [{unit: hour, rpu: 1}]}]`
)

// decisionCases are about what is evaluated, and about the response to a refused request.
func decisionCases(f Framework) []testCase {
	patternOfServer := routed
	if f.RoutesLater {
		patternOfServer = unrouted
	}
	list := []testCase{
		{"allowed", twoHellos, Setup{}, allowed},
		{"refused", twoHellos, Setup{}, refused},
		{"refused for ever", "{url: /hello, rules: [{name: r, rpu: 0}]}", Setup{}, refusedForEver},
		{"HEAD", twoHellos, Setup{}, head},
		{"refused by the framework", twoHellos, Setup{Refuse: true}, refusedByFramework},
		{"strange paths", "{url: /hello, rules: [{name: r, unit: hour, rpu: 100}]}", Setup{}, strangePaths},
		{"route", "{url: /, rules: [{name: r, unit: hour, rpu: 1}]}", Setup{Single: true}, single},
		{"pattern for a server", pattern, Setup{Route: true}, patternOfServer},
		{"pattern for a route", pattern, Setup{Route: true, Single: true}, patternOfRoute},
		{"divert to a text", `{url: /users, divert: {status: 410, type: text/html, body: "<p>later</p>"}, rules: [{unit: hour, rpu: 1}]}`, Setup{}, divertToText},
		{"divert to a server", `{url: /users, divert: {upstream: "UPSTREAM"}, rules: [{unit: hour, rpu: 1}]}`, Setup{}, divertToServer},
		{"divert to another body", `{url: /echo, divert: {body: {/model: small}}, rules: [{name: r, unit: hour, rpu: 1, actor: "body:/model"}]}`, Setup{}, divertToBody},
		{"divert a pattern", `{url: "PATTERN", divert: {upstream: "UPSTREAM"}, rules: [{unit: hour, rpu: 1}]}`, Setup{Route: true, Single: true}, divertToServer},
		{"64 clients", "[{url: /hello, rules: [{unit: hour, rpu: 500, algo: W, align: first}]}, " +
			"{url: /users, rules: [{actor: 'header:X-Key', unit: hour, rpu: 10, algo: W, align: first}]}]", Setup{}, clients},
	}
	if !f.NoOptions { // the pattern of a framework without an adapter can be one of Diana's
		list = append(list, testCase{"no pattern", pattern, Setup{}, unrouted})
	}
	return list
}

func allowed(s *session) {
	a := s.want(200, "/hello")
	if a.body != "hello" || a.Header.Get("Retry-After") != "" {
		s.Errorf("%q %v", a.body, a.Header)
	}
	wantField(s, a, "RateLimit-Policy", `"r";q=2;w=3600`)
	wantField(s, a, "RateLimit", `"r";r=1;t=3600`)
	if n := s.app.Limiter.Status().Rules[0].Allowed; n != 1 {
		s.Errorf("the rule has evaluated %d requests, want 1", n)
	}
}

func wantField(s *session, a answer, name, want string) {
	s.Helper()
	if got := a.Header.Values(name); !slices.Equal(got, []string{want}) {
		s.Errorf("%s: %q, want %q", name, got, want)
	}
}

func refused(s *session) {
	s.want(200, "/hello")
	s.want(200, "/hello")
	a := s.want(429, "/hello")
	wantRefusal(s, a, 429)
	wantField(s, a, "RateLimit-Policy", `"r";q=2;w=3600`)
	if got := a.Header.Get("RateLimit"); !strings.HasPrefix(got, `"r";r=0;t=`) {
		s.Errorf("RateLimit: %q", got)
	}
	if n := s.app.Calls.Load(); n != 2 {
		s.Errorf("%d requests reached the handler, want 2", n)
	}
	s.want(200, "/users/new")
}

// wantRefusal expects the configured problem of rule r.
func wantRefusal(s *session, a answer, status int) {
	s.Helper()
	var problem struct {
		Type, Title, Detail string
		Status              int
		Violated            []string `json:"violated-policies"`
	}
	if err := json.Unmarshal([]byte(a.body), &problem); err != nil || a.StatusCode != status || problem.Status != status ||
		problem.Type == "" || problem.Title == "" || problem.Detail == "" || !slices.Equal(problem.Violated, []string{"r"}) {
		s.Errorf("%d %v %s", a.StatusCode, err, a.body)
	}
	wantField(s, a, "Content-Type", "application/problem+json")
	wantField(s, a, "Cache-Control", "no-store")
	if n, err := strconv.Atoi(a.Header.Get("Retry-After")); err != nil || n < 1 || n > 3600 {
		s.Errorf("Retry-After: %q", a.Header.Values("Retry-After"))
	}
}

func refusedForEver(s *session) {
	a := s.want(503, "/hello")
	if got := a.Header.Values("Retry-After"); got != nil || !strings.Contains(a.body, "never allow") {
		s.Errorf("Retry-After %q, %s", got, a.body)
	}
}

func head(s *session) {
	for i, want := range []int{200, 200, 429} {
		a := s.do(http.MethodHead, "/hello", nil)
		if a.StatusCode != want || a.body != "" || a.Header.Get("RateLimit") == "" {
			s.Errorf("%d: %d %q %v", i, a.StatusCode, a.body, a.Header)
		}
	}
	s.want(429, "/hello")
}

func refusedByFramework(s *session) {
	s.want(200, "/hello")
	s.want(200, "/hello")
	a := s.want(429, "/hello")
	if !strings.Contains(a.body, "slow down: r") || strings.Contains(a.body, "violated-policies") {
		s.Errorf("%s", a.body)
	}
	wantField(s, a, "RateLimit-Policy", `"r";q=2;w=3600`)
	wantField(s, a, "Cache-Control", "no-store")
	if n, err := strconv.Atoi(a.Header.Get("Retry-After")); err != nil || n < 1 || n > 3600 {
		s.Errorf("Retry-After: %q", a.Header.Values("Retry-After"))
	}
	if n := s.app.Calls.Load(); n != 2 {
		s.Errorf("%d requests reached the handler, want 2", n)
	}
}

// strangePaths rejects paths that no honest client sends, and evaluates other spellings of a path.
func strangePaths(s *session) {
	for path, want := range map[string]int{
		"/a/%2e%2e/hello": 400, "/%00": 400, "/a%2f..%2fhello": 400, "/" + strings.Repeat("x", 8200): 414,
	} {
		_, _, a := s.dial(path)
		if kind := a.Header.Get("Content-Type"); a.StatusCode != want || kind != "application/problem+json" {
			s.Errorf("%.30s: %d %s %s, want %d", path, a.StatusCode, kind, a.body, want)
		}
	}
	if got, want := fmt.Sprint(s.app.Limiter.Rejected()), "map[path:3 path_length:1]"; got != want {
		s.Errorf("rejected %s, want %s", got, want)
	}
	for _, path := range []string{"/hello", "/%68ello", "/HELLO", "/hello;v=1", "//hello", "/hello/x?a=b#c", "http://x/hello"} {
		if _, _, a := s.dial(path); a.Header.Get("RateLimit") == "" && a.StatusCode/100 != 3 {
			s.Errorf("%s: %d without RateLimit", path, a.StatusCode)
		}
	}
}

// single has the middleware at the routes of /users only.
func single(s *session) {
	for range 3 {
		s.want(200, "/hello")
	}
	s.want(200, "/users/1")
	s.want(503, "/users/new")
	s.want(503, "/users/2")
}

// routed has rules see the pattern.
func routed(s *session) {
	patternOfRoute(s)
	s.want(404, "/nowhere")
	s.want(503, "/nowhere")
}

func patternOfRoute(s *session) {
	s.want(200, "/users/new")
	if a := s.want(200, "/users/1"); a.body != "user 1" {
		s.Errorf("%q", a.body)
	}
	s.want(503, "/users/2")
	s.want(200, "/users/new")
}

// unrouted has rules see the path, which is not the pattern.
func unrouted(s *session) {
	for range 3 {
		s.want(200, "/users/1")
	}
	s.want(404, "/nowhere")
	s.want(503, "/nowhere")
}

func divertToText(s *session) {
	s.want(200, "/users/1")
	if s.NoDivert {
		s.want(503, "/users/1")
		return
	}
	if a := s.want(410, "/users/1"); a.body != "<p>later</p>" || a.Header.Get("Content-Type") != "text/html" || a.Header.Get("Retry-After") == "" {
		s.Errorf("%q %v", a.body, a.Header)
	}
}

// divertToServer has the other server get the request as the client sent it.
func divertToServer(s *session) {
	s.want(200, "/users/1")
	if s.NoDivert {
		s.want(503, "/users/7?a=b")
		return
	}
	if a := s.want(200, "/users/7?a=b"); a.body != "upstream /users/7?a=b" {
		s.Errorf("%q", a.body)
	}
}

// divertToBody has the handler get the body with another model.
func divertToBody(s *session) {
	const big, small = `{"model":"big","x":1.0}`, `{"model":"small","x":1.0}`
	s.do("POST", "/echo", strings.NewReader(big))
	a := s.do("POST", "/echo", strings.NewReader(big))
	if s.NoDivert {
		wantRefusal(s, a, 503)
		return
	}
	if a.StatusCode != 200 || a.body != small {
		s.Errorf("%d %q", a.StatusCode, a.body)
	}
	wantField(s, a, "Diana-Diverted", "r")
	if a := s.do("POST", "/echo", strings.NewReader(big)); a.StatusCode != 503 || a.Header.Get("Diana-Diverted") != "" {
		s.Errorf("%d %v", a.StatusCode, a.Header)
	}
}

// clients is exact under concurrency, and counts each client by its own value.
func clients(s *session) {
	const n, each = 64, 15
	var all atomic.Int64
	var of [n]atomic.Int64
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			for range each {
				if a, err := s.try(s.Context(), "GET", "/hello", nil); err != nil {
					s.Error(err)
				} else if a.StatusCode == 200 {
					all.Add(1)
				}
				if a, err := s.try(s.Context(), "GET", "/users/new", nil, "X-Key", fmt.Sprintf("key of client %02d", i)); err != nil {
					s.Error(err)
				} else if a.StatusCode == 200 {
					of[i].Add(1)
				}
			}
		})
	}
	wg.Wait()
	if all.Load() != 500 {
		s.Errorf("%d allowed, want 500", all.Load())
	}
	for i := range of {
		if got := of[i].Load(); got != 10 {
			s.Errorf("client %d: %d allowed, want 10", i, got)
		}
	}
}
