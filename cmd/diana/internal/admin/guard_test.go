// SPDX-License-Identifier: MIT

package admin

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	dianaprom "github.com/diana-limiter/diana/prometheus"
)

// The administrators' listener answers only for hosts that cannot be the name of a stranger's page,
// and shows profiles only with --debug.
func TestAdminGuard(t *testing.T) {
	t.Parallel()
	l := limiterFor(t, anyone)
	admin := Pages(only(l), func() bool { return false }, NewRegistry(l, dianaprom.NewRedisCalls()), slog.New(slog.DiscardHandler))
	plain := Flags{}.Guard(admin, http.NotFoundHandler(), slog.New(slog.DiscardHandler))
	more := Flags{Debug: true, AdminHosts: []string{"diana.example", "Other.example."}}.Guard(admin, http.NotFoundHandler(), slog.New(slog.DiscardHandler))
	for _, test := range []struct {
		name, host, path string
		handler          http.Handler
		status           int
	}{
		{"address", "127.0.0.1:9090", "/status", plain, 200},
		{"address without port", "192.0.2.1", "/status", plain, 200},
		{"IPv6", "[::1]:9090", "/status", plain, 200},
		{"IPv6 without port", "[2001:db8::1]", "/status", plain, 200},
		{"IPv6 with a zone", "[fe80::1%25eth0]:9090", "/status", plain, 421},
		{"IPv6 with a zone of the system", "[fe80::1%eth0]:9090", "/status", plain, 421},
		{"IPv6 without an end", "[::1", "/status", plain, 421},
		{"IPv6 without a begin", "::1]:9090", "/status", plain, 421},
		{"a name in brackets", "[localhost]:9090", "/status", plain, 421},
		{"IPv4 in brackets", "[127.0.0.1]:9090", "/status", plain, 421},
		{"empty brackets", "[]:9090", "/status", plain, 421},
		{"localhost", "localhost:9090", "/status", plain, 200},
		{"localhost, other spelling", "LocalHost.", "/status", plain, 200},
		{"name", "diana.example", "/status", plain, 421},
		{"name that begins like an address", "127.0.0.1.example", "/status", plain, 421},
		{"name that ends like localhost", "evil.localhost:9090", "/status", plain, 421},
		{"no name", "", "/status", plain, 421},
		{"health is for all", "diana.example", "/healthz", plain, 200},
		{"readiness is for all", "diana.example:9090", "/readyz", plain, 200},
		{"metrics are for all", "diana.example", "/metrics", plain, 200},
		{"what looks like metrics", "diana.example", "/metrics/../status", plain, 421},
		{"named", "diana.example:9090", "/status", more, 200},
		{"named, other spelling", "other.EXAMPLE", "/status", more, 200},
		{"not named", "third.example", "/status", more, 421},
		{"no profiles", "localhost", "/debug/pprof/", plain, 404},
		{"no profile", "localhost", "/debug/pprof/heap", plain, 404},
		{"profiles", "localhost", "/debug/pprof/", more, 200},
		{"profile", "localhost", "/debug/pprof/goroutine?debug=1", more, 200},
		{"profiles for a stranger", "third.example", "/debug/pprof/", more, 421},
	} {
		r := httptest.NewRequest(http.MethodGet, test.path, nil)
		r.Host = test.host
		w := httptest.NewRecorder()
		test.handler.ServeHTTP(w, r)
		if w.Code != test.status {
			t.Errorf("%s: %d, want %d", test.name, w.Code, test.status)
		}
		if w.Code == http.StatusMisdirectedRequest {
			var problem struct {
				Status int
				Detail string
			}
			if err := json.Unmarshal(w.Body.Bytes(), &problem); err != nil || problem.Status != 421 || !strings.Contains(problem.Detail, "--admin-host") ||
				w.Header().Get("Content-Type") != "application/problem+json" {
				t.Errorf("%s: %v %s", test.name, err, w.Body)
			}
		}
	}
}

// A page of another origin cannot change anything.
func TestAdminCrossOrigin(t *testing.T) {
	t.Parallel()
	h := Flags{}.Guard(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), http.NotFoundHandler(), slog.New(slog.DiscardHandler))
	for _, test := range []struct {
		method, field, value string
		status               int
	}{
		{"POST", "", "", 200}, // no browser
		{"POST", "Origin", "http://localhost:9090", 200},
		{"POST", "Origin", "http://localhost:8080", 403},
		{"POST", "Origin", "https://evil.example", 403},
		{"DELETE", "Sec-Fetch-Site", "cross-site", 403},
		{"PUT", "Sec-Fetch-Site", "same-origin", 200},
		{"GET", "Sec-Fetch-Site", "cross-site", 200}, // changes nothing, and the page cannot read it
	} {
		r := httptest.NewRequest(test.method, "/status", nil)
		r.Host = "localhost:9090"
		if test.field != "" {
			r.Header.Set(test.field, test.value)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != test.status {
			t.Errorf("%+v: %d", test, w.Code)
		}
	}
}

// Without a token, a client on another machine is a stranger.
func TestStranger(t *testing.T) {
	t.Parallel()
	var token Token
	if err := token.UnmarshalText([]byte("env:TOKEN")); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		token Token
		from  string
		want  bool
	}{
		{Token{}, "192.0.2.1:1", true},
		{Token{}, "127.0.0.1:1", false},
		{Token{}, "[::1]:1", false},
		{token, "192.0.2.1:1", false}, // it has the token, else it would not reach the API
	} {
		r := httptest.NewRequest(http.MethodPost, "/api/v1/validate", nil)
		r.RemoteAddr = test.from
		if got := (Flags{AdminToken: test.token}).Stranger(r); got != test.want {
			t.Errorf("%s, token: %v: %v", test.from, test.token.IsSet(), got)
		}
	}
}
