// SPDX-License-Identifier: MIT

package envoy

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	auth "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"

	"github.com/diana-limiter/diana/config"
)

// lines is a log in memory.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

// since returns the lines after those that an earlier call returned.
func (l *lines) since() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	text := l.text.String()
	l.text.Reset()
	return text
}

// logged is a change of options that has the log written to the result.
func logged(o *RateLimitOptions) *lines {
	l := new(lines)
	o.Logger = slog.New(slog.NewTextHandler(l, nil))
	return l
}

// A limit that a request brings is no change of the configuration: neither the log nor the status shows
// one.
func TestBroughtLimitIsNoChange(t *testing.T) {
	t.Parallel()
	var log *lines
	s := open(t, limits, func(o *RateLimitOptions) {
		log = logged(o)
		settings := *o.Settings()
		settings.Remote = &config.Remote{URL: "file:///nowhere"}
		o.Settings = func() *config.Config { return &settings }
	})
	if text := log.since(); strings.Contains(text, "level=WARN") {
		t.Errorf("a start logs\n%s", text)
	}
	before := s.Status().Config
	r := request("user=ann")
	r.Descriptors[0].Limit = &common.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: 7, Unit: typev3.RateLimitUnit_DAY}
	if got := ask(t, s, r); got != "ok | ok 6 of 7/day" {
		t.Fatal(got)
	}
	if text := log.since(); text != "" {
		t.Errorf("a limit of a request logs\n%s", text)
	}
	if after := s.Status(); after.Config != before || !strings.Contains(after.Rules[len(after.Rules)-1].Name, "7/day") {
		t.Errorf("%+v, want %+v", after.Config, before)
	}
	write(t, s.options.Paths[0], strings.Replace(limits, "requests_per_unit: 5", "requests_per_unit: 50", 1))
	s.Reload()
	if text := log.since(); strings.Count(text, "configuration changed") != 1 {
		t.Errorf("a change of the files logs\n%s", text)
	}
	if after := s.Status().Config; !after.Since.After(before.Since) || after.Version == before.Version {
		t.Errorf("%+v after a change of %+v", after, before)
	}
}

// The log of a change names limits by their full names, and also has what only descriptors can say.
func TestChangesInLog(t *testing.T) {
	t.Parallel()
	var log *lines
	s := open(t, limits, func(o *RateLimitOptions) { log = logged(o) })
	log.since()
	for _, row := range []struct{ text, want string }{
		{strings.Replace(limits, "debit: true", "debit: false", 1), `changes="limit \"shop.stream\": debit on → off"`},
		{limits + "- {key: k, value: 'v*', descriptors: [{key: z, rate_limit: {unit: day, requests_per_unit: 5}}]}\n", `changes="limit \"shop.k_v*.z\" added: 5 per day, W; limit \"shop.stream\": debit off → on"`},
	} {
		write(t, s.options.Paths[0], row.text)
		s.Reload()
		if text := log.since(); !strings.Contains(text, row.want) || strings.Count(text, "configuration changed") != 1 || strings.Contains(text, "header:") {
			t.Errorf("the log is\n%s\nwant %s", text, row.want)
		}
	}
	s.mu.Lock()
	settings := *s.settings
	settings.MaxKeys = 77
	s.options.Settings = func() *config.Config { return &settings }
	s.mu.Unlock()
	s.Reload()
	if text := log.since(); !strings.Contains(text, "→ 77") {
		t.Errorf("a change of the settings logs\n%s", text)
	}
}

// Files with a mistake are logged once, also if the settings change meanwhile. The status has the version in
// force.
func TestMistakeIsLoggedOnce(t *testing.T) {
	t.Parallel()
	var log *lines
	settings := new(config.Config)
	s := open(t, limits, func(o *RateLimitOptions) {
		log = logged(o)
		o.Settings = func() *config.Config { return settings }
	})
	before := s.Status().Config
	s.mu.Lock() // the goroutine that watches reads the settings too
	settings = new(config.Config)
	s.mu.Unlock()
	write(t, s.options.Paths[0], "domain: [")
	log.since()
	for range 3 {
		s.Reload()
	}
	if text := log.since(); strings.Count(text, "descriptors not changed") != 1 {
		t.Errorf("three reads log\n%s", text)
	}
	r := request("user=ann")
	r.Descriptors[0].Limit = &common.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: 7, Unit: typev3.RateLimitUnit_DAY}
	ask(t, s, r)
	after := s.Status().Config
	if after.LastReloadSuccessful || after.Version != before.Version || !after.Since.Equal(before.Since) {
		t.Errorf("%+v, want that of %+v, not loaded successfully", after, before)
	}
	write(t, s.options.Paths[0], limits)
	s.Reload()
	if after = s.Status().Config; !after.LastReloadSuccessful {
		t.Errorf("%+v after the mistake is mended", after)
	}
}

// The program learns of invalid requests, and of domains that no file has.
func TestTold(t *testing.T) {
	t.Parallel()
	var told []string
	s := open(t, limits, func(o *RateLimitOptions) {
		o.OnInvalid = func(err error) { told = append(told, err.Error()) }
		o.OnUnknown = func(domain string, near func() string) { told = append(told, domain+" or "+near()) }
	})
	misspelled, elsewhere, brought := request("user=ann"), request("user=ann"), request("user=ann", "user=joe")
	misspelled.Domain, elsewhere.Domain = "shopp", "other"
	brought.Descriptors[1].Limit = &common.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: 7}
	ask(t, s, request("user=ann"))
	ask(t, s, request("nothing=ann"))
	ask(t, s, misspelled)
	ask(t, s, elsewhere)
	ask(t, s, request())
	ask(t, s, brought)
	s.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("POST", "/json", strings.NewReader("{")))
	s.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/json", nil))
	authorization := NewAuthorization(nil)
	authorization.OnInvalid = s.options.OnInvalid
	if _, err := authorization.Check(t.Context(), &auth.CheckRequest{}); err == nil {
		t.Error("a question without a request is answered")
	}
	for i, want := range []string{
		"shopp or shop", "other or ", "list must not be empty", "descriptors[1].limit.unit: expected one of SECOND to YEAR, found UNKNOWN",
		"the body: ", `the method: expected POST, found "GET"`, "attributes.request.http is missing",
	} {
		if i >= len(told) || !strings.Contains(told[i], want) {
			t.Errorf("%d: told %q, want %s", i, told[min(i, len(told)-1)], want)
		}
	}
	if len(told) != 7 {
		t.Errorf("told %q", told)
	}
}

// The text of a JSON error says where the mistake is, what it is, and what was expected.
func TestErrorsOfJSON(t *testing.T) {
	t.Parallel()
	s := open(t, limits)
	for body, want := range map[string][]string{
		"":                              {"the body is empty, expected such as {"},
		"[]":                            {"the body: ", "(line 1:1)", "unexpected token [", "expected such as {"},
		`{"domain":`:                    {"the body: ", "unexpected EOF", "expected such as {"},
		"{\n\"domian\": \"shop\"}":      {"the body: ", "(line 2:1)", `unknown field "domian"`, "expected such as {"},
		strings.Repeat(" ", mostJSON+1): {"the body: expected at most 4194304 bytes, found more"},
		`{"domain": "shop", "descriptors": [{"hits_addend": "99999999999", "entries": [{"key": "user"}]}]}`: {
			"descriptors[0].hits_addend: expected at most 4294967295, found 99999999999"},
	} {
		w := httptest.NewRecorder()
		s.ServeHTTP(w, httptest.NewRequest("POST", "/json", strings.NewReader(body)))
		missing := slices.ContainsFunc(want, func(part string) bool { return !strings.Contains(w.Body.String(), part) })
		if missing || strings.HasPrefix(w.Body.String(), "proto") || w.Code/100 != 4 {
			t.Errorf("%.40q: %d %q, want %q", body, w.Code, w.Body, want)
		}
	}
}

// A strange path gets the problem that it gets over HTTP. OPTIONS * is evaluated as a request for /.
func TestStrangePath(t *testing.T) {
	t.Parallel()
	_, conn := serve(t, "limits: [{url: OPTIONS /, rules: [{name: none, unit: day, rpu: 0}]}]")
	check := func(method, path string) *auth.DeniedHttpResponse {
		t.Helper()
		a, err := auth.NewAuthorizationClient(conn).Check(t.Context(), &auth.CheckRequest{Attributes: &auth.AttributeContext{
			Request: &auth.AttributeContext_Request{Http: &auth.AttributeContext_HttpRequest{Method: method, Path: path}},
		}})
		if err != nil {
			t.Fatal(err)
		}
		return a.GetDeniedResponse()
	}
	denied := check("GET", "/x/%2e%2e/b")
	fields := map[string]string{}
	for _, h := range denied.GetHeaders() {
		fields[h.GetHeader().GetKey()] = h.GetHeader().GetValue()
	}
	var problem struct {
		Status int
		Detail string
	}
	if err := json.Unmarshal([]byte(denied.GetBody()), &problem); err != nil || problem.Status != 429 || !strings.Contains(problem.Detail, "path") {
		t.Errorf("%q: %+v, %v", denied.GetBody(), problem, err)
	}
	if fields["content-type"] != "application/problem+json" || fields["cache-control"] != "no-store" {
		t.Errorf("fields %v", fields)
	}
	if denied := check("OPTIONS", "*"); denied.GetStatus().GetCode() != 429 {
		t.Errorf("OPTIONS *: %v", denied)
	}
}
