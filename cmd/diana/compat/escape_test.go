// SPDX-License-Identifier: MIT

package compat

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
)

var (
	allServers = flag.Bool("all", false, "also start the servers that only make compat installs")
	escapeFile = flag.String("escapes", "", "write every escape to the end of this file, one a line")
)

// refuseAll refuses the protected routes, so that a server which serves one was reached by an escape.
const refuseAll = `limits:
- {url: /admin, rules: [{rpu: 0}]}
- {url: /a/b/secret, rules: [{rpu: 0}]}
- {url: "/api/{id}/secret", rules: [{rpu: 0}]}
- {url: POST /login, rules: [{rpu: 0}]}
`

// protected reports whether the rules of refuseAll cover a route.
func protected(route string) bool {
	api, _ := path.Match("/api/?*/secret", route)
	apiBelow, _ := path.Match("/api/?*/secret/*", route)
	return below(route, "/admin") || below(route, "/a/b/secret") || api || apiBelow || route == "/login"
}

// protectedBelowBase is protected for a gateway whose upstream has the path /base.
func protectedBelowBase(route string) bool {
	rest, ok := strings.CutPrefix(route, "/base/")
	return ok && protected("/"+rest)
}

// below reports whether a path is top or lies below it.
func below(path, top string) bool {
	return path == top || strings.HasPrefix(path, top+"/")
}

// upstreams starts the servers behind the gateway, as few as the flags allow.
func upstreams(t *testing.T) []upstream {
	t.Helper()
	files := writeFiles(t)
	all := goServers(t, files)
	mux := all[slices.IndexFunc(all, func(u upstream) bool { return u.name == "Go ServeMux" })]
	all = append(all, nginxServers(t, files, mux)...)
	if *allServers {
		all = append(all, nodeServers(t, files)...)
		all = append(all, pythonServers(t, files)...)
		all = append(all, tomcatServers(t, files)...)
	}
	slices.SortFunc(all, func(a, b upstream) int { return strings.Compare(a.name, b.name) })
	return all
}

// get is the head of a request for a target.
func get(target string) string {
	return "GET " + target + " HTTP/1.1\r\nHost: h\r\n\r\n"
}

// TestNoEscape: no server serves a protected route by a spelling that the gateway passes on. A
// gateway whose upstream has a path, or which diverts to a URL with a path, does not leave it.
func TestNoEscape(t *testing.T) {
	all := upstreams(t)
	exact := slices.DeleteFunc(slices.Clone(all), func(u upstream) bool { return slices.Contains(folding, u.name) })
	leaves := func(route string) bool { return !below(route, "/base") }
	leavesOrProtected := func(route string) bool { return leaves(route) || protectedBelowBase(route) }
	for _, test := range []struct {
		name      string
		upstreams []upstream
		path      string // of the upstream's URL
		yaml      string // HOST stands for the upstream
		escaped   func(route string) bool
		requests  []string
	}{
		{"default", all, "", refuseAll, protected, gets(1)},
		{"strange paths judged", all, "", "paths: {strange: judge}\n" + refuseAll, protected, gets(4)},
		{"exact letter case", exact, "", "paths: {case: exact}\n" + refuseAll, protected, gets(4)},
		{"base path", all, "/base", refuseAll, leavesOrProtected, gets(4)},
		{"diverted", all, "", divertAll, leaves, gets(4)},
	} {
		t.Run(test.name, func(t *testing.T) {
			behind := newTee(t, test.upstreams)
			serves(t, behind)
			host := gateway(t, "http://"+behind.host+test.path, strings.ReplaceAll(test.yaml, "HOST", behind.host))
			run(t, host, test.requests).report(t, test.escaped)
		})
	}
	t.Run("methods", func(t *testing.T) {
		behind := newTee(t, slices.DeleteFunc(slices.Clone(all), func(u upstream) bool { return !slices.Contains(minding, u.name) }))
		servesLogin(t, behind)
		run(t, gateway(t, "http://"+behind.host, refuseAll), logins()).report(t, protected)
	})
}

// divertAll sends every request below /base of the upstream.
const divertAll = `limits:
- url: /
  rules: [{rpu: 0}]
  divert: {upstream: "http://HOST/base"}
`

// folding are the upstreams to which letters do not differ in case.
var folding = []string{"express", "express files", "Go by any reading", "nginx location ~*"}

// gets returns requests for spellings, as many as the flag -one-in wants, or one in n of these.
func gets(n int) []string {
	var heads []string
	for _, target := range every(n**oneIn, spellings()) {
		heads = append(heads, get(target))
	}
	return heads
}

// serves makes sure that each upstream serves its protected routes to a request that no gateway has
// evaluated. Otherwise a test without escapes proves nothing.
func serves(t *testing.T, behind *tee) {
	t.Helper()
	w := wire{host: behind.host}
	defer w.close()
	for _, base := range bases {
		_, body, err := w.ask(get(base + "/admin/x"))
		if err != nil {
			t.Fatal(err)
		}
		for _, u := range behind.upstreams {
			if route := routes(body)[u.name]; route != base+"/admin/x" && u.name != "Go any method" && u.name != "nginx location ~*" {
				t.Fatalf("%s does not serve %s/admin/x itself: %s", u.name, base, body)
			}
		}
	}
}

// routes returns the routes by upstream in an answer of the tee.
func routes(body string) map[string]string {
	var served map[string]string
	_ = json.Unmarshal([]byte(body), &served) // another body has no routes
	return served
}

// answer is the answer to one request.
type answer struct {
	head   string
	status int
	served map[string]string // routes by upstream
}

type answers []answer

// run sends all requests to the gateway, over a few connections.
func run(t *testing.T, host string, heads []string) answers {
	t.Helper()
	const connections = 6
	all := make(answers, len(heads))
	var sending sync.WaitGroup
	for first := range connections {
		sending.Go(func() {
			w := wire{host: host}
			defer w.close()
			for i := first; i < len(heads); i += connections {
				status, body, err := w.ask(heads[i])
				if err != nil {
					t.Error(err)
					return
				}
				all[i] = answer{heads[i], status, nil}
				if status == 200 {
					all[i].served = routes(body)
				}
			}
		})
	}
	sending.Wait()
	return all
}

// report logs how many requests were answered how, and fails the test for each that escapes: an
// upstream has served a route that it must not.
func (all answers) report(t *testing.T, escaped func(route string) bool) {
	t.Helper()
	statuses := map[int]int{}
	escapes := map[string][]string{} // by upstream
	for _, a := range all {
		statuses[a.status]++
		for upstream, route := range a.served {
			if escaped(route) {
				escapes[upstream] = append(escapes[upstream], fmt.Sprintf("%.200q is served as %.200q", request(a.head), route))
			}
		}
	}
	for _, status := range slices.Sorted(maps.Keys(statuses)) {
		t.Logf("%6d of %d requests: %s", statuses[status], len(all), meaning(status))
	}
	if statuses[200] == 0 {
		t.Error("the gateway passes on no request, so the test proves nothing")
	}
	for _, upstream := range slices.Sorted(maps.Keys(escapes)) {
		found := escapes[upstream]
		keep(t, upstream, found)
		t.Errorf("%s: %d requests escape:\n\t%s", upstream, len(found), strings.Join(found[:min(len(found), 20)], "\n\t"))
	}
}

// request returns the first line of a head, and the fields besides Host.
func request(head string) string {
	head = strings.TrimSuffix(head, "\r\n\r\n")
	return strings.NewReplacer(" HTTP/1.1\r\nHost: h", "", "\r\nContent-Length: 0", "").Replace(head)
}

func meaning(status int) string {
	switch status {
	case 0:
		return "connection closed without an answer"
	case 200:
		return "passed on (200)"
	case 400, 414, 404, 405, 501:
		return fmt.Sprintf("not understood or strange (%d)", status)
	case 503:
		return "refused by a rule (503)"
	}
	return fmt.Sprintf("%d", status)
}

// keep writes escapes to the file that the flag names.
func keep(t *testing.T, upstream string, escapes []string) {
	t.Helper()
	if *escapeFile == "" {
		return
	}
	f, err := os.OpenFile(*escapeFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, escape := range escapes {
		if _, err := fmt.Fprintf(f, "%s: %s: %s\n", t.Name(), upstream, escape); err != nil {
			t.Fatal(err)
		}
	}
}
