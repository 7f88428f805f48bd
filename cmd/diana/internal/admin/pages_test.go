// SPDX-License-Identifier: MIT

package admin

import (
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/config"
	dianaprom "github.com/diana-limiter/diana/prometheus"
)

// anyone is a configuration that refuses no request of these tests.
const anyone = "url: /\nrules: [{name: generous, rpu: 1000000}]"

func limiterFor(t *testing.T, text string) *diana.Limiter {
	t.Helper()
	c, err := config.Parse("test.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	l, err := diana.Options{Logger: slog.New(slog.DiscardHandler)}.New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// The registry has the metrics of the limiter, of the program and of the process.
func TestRegistry(t *testing.T) {
	t.Parallel()
	registry := NewRegistry(limiterFor(t, anyone), dianaprom.NewRedisCalls())
	problems, err := testutil.GatherAndLint(registry)
	if err != nil || len(problems) > 0 {
		t.Error(problems, err)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range families {
		names = append(names, f.GetName())
	}
	for _, name := range []string{
		"diana_requests_total", "diana_config_info", "diana_redis_call_duration_seconds", "diana_build_info",
		"go_goroutines", "process_cpu_seconds_total",
	} {
		if !slices.Contains(names, name) {
			t.Error("no", name)
		}
	}
}

// ask sends a request to an administrators' listener.
func ask(t *testing.T, h http.Handler, method, path string) (int, string) {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(method, path, nil))
	body, err := io.ReadAll(w.Body)
	if err != nil {
		t.Fatal(err)
	}
	return w.Code, string(body)
}

// only returns the state of a gateway without descriptors.
func only(l *diana.Limiter) func() State { return func() State { return NewState(l, nil) } }

func TestAdmin(t *testing.T) {
	t.Parallel()
	well := limiterFor(t, anyone)
	degraded := limiterFor(t, "url: /\nrules: [{rpu: 1, scope: global}]")
	no, yes := func() bool { return false }, func() bool { return true }
	for _, test := range []struct {
		name         string
		limiter      *diana.Limiter
		draining     func() bool
		method, path string
		status       int
		body         string // that it begins with
	}{
		{"healthy", well, no, "GET", "/healthz", 200, "ok\n"},
		{"ready", well, no, "GET", "/readyz", 200, "ready\n"},
		{"healthy", well, no, "HEAD", "/healthz", 200, ""},
		{"degraded is healthy", degraded, no, "GET", "/healthz", 200, "degraded\n"},
		{"degraded is ready", degraded, no, "GET", "/readyz", 200, "degraded\n"},
		{"draining is healthy", well, yes, "GET", "/healthz", 200, "ok\n"},
		{"draining is not ready", well, yes, "GET", "/readyz", 503, "draining\n"},
		{"metrics", well, no, "GET", "/metrics", 200, "# HELP "},
		{"no such path", well, no, "GET", "/", 404, ""},
		{"no such path", well, no, "GET", "/metricsx", 404, ""},
		{"no such path", well, no, "GET", "/healthz/x", 404, ""},
		{"no such path", well, no, "POST", "/nothing", 404, ""},
		{"other method", well, no, "POST", "/metrics", 405, ""},
		{"other method", well, no, "PUT", "/status", 405, ""},
		{"other method", well, no, "DELETE", "/readyz", 405, ""},
	} {
		h := Pages(only(test.limiter), test.draining, NewRegistry(test.limiter, dianaprom.NewRedisCalls()), slog.New(slog.DiscardHandler))
		if status, body := ask(t, h, test.method, test.path); status != test.status || !strings.HasPrefix(body, test.body) {
			t.Errorf("%s: %s %s: %d %.40q", test.name, test.method, test.path, status, body)
		}
	}
}

// A gateway is degraded if its limits of descriptors are. /status shows both.
func TestAdminOfDescriptors(t *testing.T) {
	t.Parallel()
	l := limiterFor(t, anyone)
	now := func() State { return State{l.Status(), &diana.Status{Degraded: true, Gateways: 7}} }
	h := Pages(now, func() bool { return false }, NewRegistry(l, dianaprom.NewRedisCalls()), slog.New(slog.DiscardHandler))
	for _, path := range []string{"/healthz", "/readyz"} {
		if _, body := ask(t, h, "GET", path); body != "degraded\n" {
			t.Errorf("%s: %q", path, body)
		}
	}
	_, body := ask(t, h, "GET", "/status")
	var s struct {
		Gateways    int
		Descriptors struct{ Gateways int }
	}
	if err := json.Unmarshal([]byte(body), &s); err != nil || s.Gateways != 1 || s.Descriptors.Gateways != 7 {
		t.Error(err, body)
	}
}

func TestStatusPage(t *testing.T) {
	t.Parallel()
	l := limiterFor(t, "url: /\nrules: [{name: one, rpu: 1, scope: global, on_error: closed}]")
	h := Pages(only(l), func() bool { return false }, NewRegistry(l, dianaprom.NewRedisCalls()), slog.New(slog.DiscardHandler))
	code, body := ask(t, h, "GET", "/status")
	var s diana.Status
	if err := json.Unmarshal([]byte(body), &s); err != nil {
		t.Fatal(err, body)
	}
	if code != 200 || s.Config.Source != "test.yaml" || s.Config.Version == "" || !s.Degraded || s.DegradedSince == nil ||
		s.Gateways != 1 || len(s.Rules) != 1 || s.Rules[0].Name != "one" || s.Rules[0].Scope != "global" {
		t.Error(code, body)
	}
}
