// SPDX-License-Identifier: MIT

package forwardauth

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/config"
)

// asker is a gateway that asks a Handler.
type asker struct {
	*testing.T
	handler *Handler
	limiter *diana.Limiter
}

// limits returns an asker whose Handler has a configuration.
func limits(t *testing.T, yaml string) asker {
	t.Helper()
	c, err := config.Parse("test.yaml", []byte(yaml))
	if err != nil {
		t.Fatal(err)
	}
	limiter, err := diana.Options{Logger: slog.New(slog.DiscardHandler), Accept: Accept}.New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = limiter.Close() })
	return asker{t, New(limiter, Told{}), limiter}
}

// ask asks about a request. fields are names and values in turn.
func (a asker) ask(method, target string, fields ...string) *httptest.ResponseRecorder {
	a.Helper()
	r := httptest.NewRequest(method, target, nil)
	r.RemoteAddr = "127.0.0.1:4000"
	for i := 0; i < len(fields); i += 2 {
		if fields[i] == "peer" {
			r.RemoteAddr = fields[i+1]
			continue
		}
		r.Header.Add(fields[i], fields[i+1])
	}
	w := httptest.NewRecorder()
	a.handler.ServeHTTP(w, r)
	return w
}

// charged returns the rules that a question has charged.
func (a asker) charged(ask func()) string {
	before := map[string]int64{}
	for _, r := range a.limiter.Status().Rules {
		before[r.Name] = r.Allowed
	}
	ask()
	var names []string
	for _, r := range a.limiter.Status().Rules {
		if r.Allowed > before[r.Name] {
			names = append(names, r.Name)
		}
	}
	return strings.Join(names, " ")
}

const paths = `
limits:
- {url: GET /a, rules: [{name: get, unit: day, rpu: 1000}]}
- {url: POST /a, rules: [{name: post, unit: day, rpu: 1000}]}
- {url: /b, rules: [{name: b, unit: day, rpu: 1000}]}
- {url: /c/d, rules: [{name: cd, unit: day, rpu: 1000}]}
`

// Every gateway names the original request in its own way. Where the fields disagree, all count.
func TestOriginalRequest(t *testing.T) {
	t.Parallel()
	a := limits(t, paths)
	for _, row := range []struct {
		method, target string
		fields         []string
		want           string
	}{
		{"GET", "/check", []string{"X-Original-Method", "POST", "X-Original-URI", "/a?x=1"}, "post"},               // nginx
		{"GET", "/check", []string{"X-Forwarded-Method", "POST", "X-Forwarded-Uri", "/a?x=1"}, "post"},             // Traefik, Caddy
		{"GET", "/check", []string{"X-Original-Method", "GET", "X-Original-URL", "https://h.example/c/d?x"}, "cd"}, // ingress-nginx
		{"GET", "/check", []string{"X-Original-URL", "https://h.example"}, ""},                                     // the path is /
		{"POST", "/check/a?x=1", nil, "post"},                                                                      // Envoy
		{"GET", "/check/c/d", nil, "cd"},
		{"GET", "/check", nil, ""},
		{"GET", "/check/", nil, ""},
		{"POST", "/check/a", []string{"X-Forwarded-Uri", "/harmless", "X-Forwarded-Method", "GET"}, "get post"},
		{"GET", "/check", []string{"X-Forwarded-Uri", "/harmless", "X-Original-URI", "/b"}, "b"},
		{"GET", "/check", []string{"X-Forwarded-Uri", "/c/d", "X-Original-URI", "/b", "X-Original-URL", "http://h/a"}, "get b cd"},
		{"GET", "/check", []string{"X-Original-URI", "/harmless", "X-Original-URI", "/b"}, "b"},
		{"GET", "/check", []string{"X-Forwarded-Method", "PUT", "X-Original-Method", "POST", "X-Original-URI", "/a"}, "post"},
		{"GET", "/check", []string{"X-Forwarded-Uri", "", "X-Original-URI", "/b"}, "b"},
		{"GET", "/check", []string{"X-Original-URI", "/b#/harmless"}, "b"},
		{"GET", "/check", []string{"X-Original-URI", "/x/../b"}, "b"},
		{"GET", "/check", []string{"X-Original-URI", "//h/b"}, "b"},
		{"GET", "/check", []string{"X-Original-URI", "/A", "X-HTTP-Method-Override", "POST"}, "get post"},
		{"GET", "/check", []string{"X-Original-URI", "/b?u=http://h/a"}, "b"},
	} {
		var status int
		got := a.charged(func() { status = a.ask(row.method, row.target, row.fields...).Code })
		if got != row.want || status != http.StatusOK {
			t.Errorf("%s %s %v charges %q and gets %d, want %q and 200", row.method, row.target, row.fields, got, status, row.want)
		}
	}
	if s := a.ask("GET", "/other").Code; s != http.StatusNotFound {
		t.Errorf("/other gets %d, want 404", s)
	}
	if s := a.ask("GET", "/checked").Code; s != http.StatusNotFound {
		t.Errorf("/checked gets %d, want 404", s)
	}
}

// Every form of a question has the same readings of the path.
func TestReadings(t *testing.T) {
	t.Parallel()
	a := limits(t, "limits: [{url: /, rules: [{name: root, unit: day, rpu: 1000}]}, {url: /admin, rules: [{name: admin, unit: day, rpu: 1000}]},"+
		"{url: '/{name}/z', rules: [{name: z, unit: day, rpu: 1000}]}]")
	for path, want := range map[string]string{
		"/admin#x":        "root admin 200",
		"/admin#x/z":      "root admin z 200",
		"/admin%23x":      "root 200",
		"/x#/admin":       "root 200",
		"/éa%2Fb/z":       "root z 200",
		"/\"a%2Fb/z":      "root z 200",
		"/|a%2Fb/z":       "root z 200",
		"/é/%2e%2e/admin": " 429",
		"/é/../admin":     "root admin 200",
		"/x\\..\\admin":   " 429",
		"/x\\z":           "root z 200",
	} {
		for _, fields := range [][]string{nil, {"X-Original-URI", path}, {"X-Forwarded-Uri", path}, {"X-Original-URL", "http://h" + path}} {
			target := "/check"
			if fields == nil {
				target += path
			}
			var status int
			got := a.charged(func() { status = a.ask("GET", target, fields...).Code })
			if got = fmt.Sprint(got, " ", status); got != want {
				t.Errorf("%s %q charges and gets %s, want %s", target, fields, got, want)
			}
		}
	}
}

// Only a scheme makes a URI of the text before "://".
func TestScheme(t *testing.T) {
	t.Parallel()
	a := limits(t, paths)
	for uri, want := range map[string]string{
		"https://h/b": "b 200", "H2+x-1.0://h/b": "b 200", "http:///b": "b 200",
		"%0aADMINhttp://h/b": " 429", "1http://h/b": " 429", "://h/b": " 429", "a_b://h/b": " 429", "a:b://h/b": " 429", "http:/b": " 429", "é://h/b": " 429",
	} {
		var status int
		got := a.charged(func() { status = a.ask("GET", "/check", "X-Original-URI", uri).Code })
		if got = fmt.Sprint(got, " ", status); got != want {
			t.Errorf("%q charges and gets %s, want %s", uri, got, want)
		}
	}
}

// A refusal has the configured status if that is below 500, or the one that the gateway asks for.
func TestStatusOfRefusal(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		response, target string
		want             int
	}{
		{"503", "/check", 429},
		{"429", "/check", 429},
		{"418", "/check", 418},
		{"503", "/check?deny=403", 403},
		{"429", "/check?deny=401", 401},
		{"429", "/check?deny=499", 499},
		{"429", "/check?deny=500", 400},
		{"429", "/check?deny=399", 400},
		{"429", "/check?deny=x", 400},
		{"429", "/check/?deny=x", 429}, // of the client
		{"429", "/check/?deny=200", 429},
	} {
		a := limits(t, fmt.Sprintf("response: {status: %s}\nlimits: [{url: /, rules: [{name: none, unit: day, rpu: 0}]}]", row.response))
		r := a.ask("GET", row.target)
		var problem struct {
			Status   int
			Violated []string `json:"violated-policies"`
		}
		if err := json.NewDecoder(r.Body).Decode(&problem); err != nil {
			t.Fatal(err)
		}
		if r.Code != row.want || problem.Status != row.want {
			t.Errorf("%s with %s: %d and %+v, want %d", row.target, row.response, r.Code, problem, row.want)
		}
		if row.want != 400 && (len(problem.Violated) != 1 || r.Header().Get("RateLimit") == "" || r.Header().Get("Cache-Control") != "no-store") {
			t.Errorf("%s: %+v, %v", row.target, problem, r.Header())
		}
		if r = a.ask("GET", row.target, "X-Original-URI", "/x/%2e%2e/b"); r.Code != row.want {
			t.Errorf("%s: a strange path gets %d, want %d", row.target, r.Code, row.want)
		}
	}
}

// An allowed request gets no body and the fields. The one after the last gets Retry-After.
func TestFields(t *testing.T) {
	t.Parallel()
	a := limits(t, "limits: [{url: /a, rules: [{name: one, actor: account, unit: hour, rpu: 1, algo: W}]}]\nidentity: {account: ['header:X-User']}")
	r := a.ask("GET", "/check", "X-Original-URI", "/a", "X-User", "ann")
	if got := r.Header().Get("RateLimit"); r.Code != 200 || r.Body.Len() > 0 || !strings.HasPrefix(got, `"one";r=0;t=`) {
		t.Errorf("%d, %q", r.Code, got)
	}
	if r = a.ask("GET", "/check", "X-Original-URI", "/a", "X-User", "ann"); r.Code != 429 || r.Header().Get("Retry-After") == "" {
		t.Errorf("%d, %v", r.Code, r.Header())
	}
	if r = a.ask("GET", "/check", "X-Original-URI", "/a", "X-User", "joe"); r.Code != 200 {
		t.Error("another account is refused")
	}
}

// Only this machine and trusted proxies may ask. The client is the one that they name.
func TestPeers(t *testing.T) {
	t.Parallel()
	a := limits(t, "limits: [{url: /, rules: [{name: one, actor: ip, unit: day, rpu: 1}]}]\nidentity: {trusted_proxies: [10.0.0.0/8]}")
	open := limits(t, "limits: []\nidentity: {trusted_proxies: [10.0.0.0/8]}")
	for peer, want := range map[string]int{
		"127.0.0.1:1": 200, "127.8.8.8:1": 200, "[::1]:1": 200, "[::ffff:127.0.0.1]:1": 200, "10.1.2.3:1": 200,
		"192.0.2.1:1": 403, "[2001:db8::1]:1": 403, "": 403, "@": 403, "[fe80::1%eth0]:1": 403,
	} {
		if got := open.ask("GET", "/check", "peer", peer).Code; got != want {
			t.Errorf("%q gets %d, want %d", peer, got, want)
		}
	}
	ask := func(chain string) int { return a.ask("GET", "/check", "X-Forwarded-For", chain).Code }
	for i, row := range []struct {
		chain string
		want  int
	}{
		{"203.0.113.1", 200}, {"203.0.113.1", 429}, {"203.0.113.2", 200}, {"203.0.113.9, 203.0.113.2", 429},
		{"203.0.113.3, 10.0.0.1", 200}, {"203.0.113.3, 127.0.0.1", 429},
	} {
		if got := ask(row.chain); got != row.want {
			t.Errorf("%d: %s gets %d, want %d", i, row.chain, got, row.want)
		}
	}
}

// Where the fields disagree about the host or the query, the request has no such actor: a client could
// choose it.
func TestUnclearActors(t *testing.T) {
	t.Parallel()
	a := limits(t, `
limits:
- {url: /h, rules: [{name: host, actor: host, unit: day, rpu: 1}]}
- {url: /q, rules: [{name: query, actor: 'query:key', unit: day, rpu: 1}]}
`)
	for i, row := range []struct {
		fields []string
		want   int
	}{
		{[]string{"X-Original-URI", "/h", "X-Forwarded-Host", "a.example"}, 200},
		{[]string{"X-Original-URI", "/h", "X-Forwarded-Host", "b.example"}, 200},
		{[]string{"X-Original-URI", "/h", "X-Forwarded-Host", "a.example", "X-Forwarded-Host", "c.example"}, 200}, // by address
		{[]string{"X-Original-URI", "/h", "X-Forwarded-Host", "a.example", "X-Forwarded-Host", "d.example"}, 429},
		{[]string{"X-Original-URI", "/h", "X-Forwarded-Host", "e.example", "X-Original-URL", "http://f.example/h"}, 429},
		{[]string{"path", "/h", "X-Forwarded-Host", "g.example"}, 429}, // Envoy names the host as such
		{[]string{"X-Original-URI", "/q?key=a"}, 200},
		{[]string{"X-Original-URI", "/q?key=a"}, 429},
		{[]string{"X-Original-URI", "/q?key=b", "X-Forwarded-Uri", "/q?key=c"}, 200}, // by address
		{[]string{"X-Original-URI", "/q?key=d", "X-Forwarded-Uri", "/q"}, 429},
		{[]string{"X-Original-URI", "/q", "X-Forwarded-Uri", "/q?key=e"}, 429},
	} {
		target := "/check"
		if row.fields[0] == "path" {
			target, row.fields = target+row.fields[1], row.fields[2:]
		}
		if got := a.ask("GET", target, row.fields...).Code; got != row.want {
			t.Errorf("%d: %s %v gets %d, want %d", i, target, row.fields, got, row.want)
		}
	}
}

// Envoy joins the lines of a field, of which servers read the first or the last. A client that doubles its
// account gains nothing.
func TestJoinedLines(t *testing.T) {
	t.Parallel()
	a := limits(t, "limits: [{url: /, rules: [{name: one, actor: account, unit: day, rpu: 1}]}]\nidentity: {account: ['header:X-User']}")
	for i, row := range []struct {
		user string
		want int
	}{
		{"ann", 200}, {"ann", 429}, {"ann,ann", 429}, {"ann, ann,ann", 429},
		{"ann,joe", 200}, {"ann,sue", 429}, {"x,y", 429}, // by address
	} {
		if got := a.ask("GET", "/check/a", "X-User", row.user).Code; got != row.want {
			t.Errorf("%d: %q gets %d, want %d", i, row.user, got, row.want)
		}
	}
}

// A diversion would be a success for the gateway.
func TestRefusalIsNotDiverted(t *testing.T) {
	t.Parallel()
	a := limits(t, "limits: [{url: /, divert: {status: 200, body: later}, rules: [{name: none, unit: day, rpu: 0}]}]")
	if got := a.ask("GET", "/check").Code; got != 429 {
		t.Errorf("a refusal gets %d, want 429", got)
	}
}

// A question with many values costs little and is refused.
func TestTooManyValues(t *testing.T) {
	t.Parallel()
	a := limits(t, paths)
	for _, field := range []string{"X-Forwarded-Uri", "X-Original-Method", "X-Forwarded-Host"} {
		var fields []string
		for i := range 2000 {
			fields = append(fields, field, fmt.Sprint("/", i))
		}
		if got := a.ask("GET", "/check?deny=403", fields...).Code; got != 403 {
			t.Errorf("2,000 values of %s get %d, want 403", field, got)
		}
	}
}

// Rules that must learn how a request ends are rejected.
func TestAccept(t *testing.T) {
	t.Parallel()
	for yaml, want := range map[string]string{
		"limits: [{url: /a, rules: [{name: slots, algo: C, rpu: 1}]}]":                     `test.yaml:1:42: url "/a": rule "slots": algorithm C cannot`,
		"limits: [{url: /a, rules: [{name: failures, unit: day, rpu: 1, charge: [401]}]}]": `test.yaml:1:64: url "/a": rule "failures": charge cannot`,
		"limits: [{url: /a, rules: [{name: fine, unit: day, rpu: 1}]}]":                    "",
		"limits: [{url: /a, rules: [{algo: C, rpu: 1}]}]":                                  `test.yaml:1:29: url "/a": algorithm C cannot`,
	} {
		c, err := config.Parse("test.yaml", []byte(yaml))
		if err != nil {
			t.Fatal(err)
		}
		if err = Accept(c); (err == nil) != (want == "") || err != nil && !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v, want %q", yaml, err, want)
		}
	}
}

// No question makes the Handler panic, and every answer has a status that gateways understand.
func FuzzQuestion(f *testing.F) {
	f.Add("GET", "/check", "/a?key=1", "https://h/b#c", "h", "1.2.3.4")
	f.Add("POST", "/check/../x?deny=403", "//", "://", "", "::1, x")
	f.Fuzz(func(t *testing.T, method, target, uri, url, host, chain string) {
		a := limits(t, paths)
		r := httptest.NewRequest("GET", "/check", nil)
		if u, err := r.URL.Parse(target); err == nil {
			r.URL = u
		}
		r.Method, r.RemoteAddr = method, "127.0.0.1:1"
		r.Header = http.Header{"X-Original-Uri": {uri}, "X-Original-Url": {url}, "X-Forwarded-Host": {host}, "X-Forwarded-For": {chain}}
		w := httptest.NewRecorder()
		a.handler.ServeHTTP(w, r)
		if w.Code != 200 && w.Code/100 != 4 {
			t.Errorf("%d", w.Code)
		}
	})
}

// The program learns of peers that may not ask, and of questions that are not valid.
func TestTold(t *testing.T) {
	t.Parallel()
	a := limits(t, paths)
	var told []string
	a.handler.told = Told{
		Peer:    func(address string) { told = append(told, "peer "+address) },
		Invalid: func(reason string) { told = append(told, reason) },
	}
	a.ask("GET", "/check")
	a.ask("GET", "/check", "peer", "192.0.2.1:1000")
	a.ask("GET", "/other", "peer", "[2001:db8::1]:1000")
	a.handler.Guard(http.NotFoundHandler()).ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("POST", "/json", nil))
	a.ask("GET", "/other")
	a.ask("GET", "/check?deny=200")
	var many []string
	for i := range mostValues + 1 {
		many = append(many, "X-Original-Uri", fmt.Sprint("/", i))
	}
	a.ask("GET", "/check", many...)
	want := []string{
		"peer 192.0.2.1", "peer 2001:db8::1", "peer 192.0.2.1", `the path is "/other", expected /check or one below it`,
		`deny: "200", expected a status of 400 to 499`, "the fields that name it have too many values",
	}
	if !slices.Equal(told, want) {
		t.Errorf("%q, want %q", told, want)
	}
}

// OPTIONS * is evaluated as a request for /, however the gateway names it.
func TestServerOptions(t *testing.T) {
	t.Parallel()
	a := limits(t, "limits: [{url: OPTIONS /, rules: [{name: root, unit: day, rpu: 1000}]}, {url: /a, rules: [{name: a, unit: day, rpu: 1}]}]")
	for _, row := range []struct {
		method, target string
		fields         []string
		status         int
		want           string
	}{
		{"OPTIONS", "/check*", nil, 200, "root"},
		{"GET", "/check", []string{"X-Original-Method", "OPTIONS", "X-Original-URI", "*"}, 200, "root"},
		{"OPTIONS", "/check*", []string{"X-Original-URI", "/a"}, 200, "root a"},
		{"GET", "/check*", nil, 404, ""},
		{"OPTIONS", "/check*a", nil, 404, ""},
	} {
		var status int
		got := a.charged(func() { status = a.ask(row.method, row.target, row.fields...).Code })
		if got != row.want || status != row.status {
			t.Errorf("%s %s %v charges %q and gets %d, want %q and %d", row.method, row.target, row.fields, got, status, row.want, row.status)
		}
	}
}
