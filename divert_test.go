// SPDX-License-Identifier: MIT

package diana_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/diana-limiter/diana/config"
)

// TestDivert answers a refused request with the diversion of the first entry that refuses it and has
// one. The response has the fields of a refusal, and the request counts as refused.
func TestDivert(t *testing.T) {
	t.Parallel()
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprintf(w, "%s %s from %s", r.Method, r.URL, r.Header.Get("X-Forwarded-Host"))
	}))
	defer other.Close()
	f := newFolder(t)
	file := f.write("busy.html", "<p>busy</p>")
	l := limiter(t, `
limits:
  - url: /
    rules: [{name: all, unit: day, rpu: 1000, algo: SL}]
  - url: /text
    rules: [{name: text, unit: day, rpu: 1, algo: SL}]
    divert: {body: "busy"}
  - url: /text/file
    rules: [{name: file, unit: day, rpu: 0}]
    divert: {file: "`+file+`", status: 202}
  - url: /file
    rules: [{unit: day, rpu: 0}]
    divert: {file: "`+file+`", status: 202, type: "text/x"}
  - url: /server
    rules: [{unit: day, rpu: 0}]
    divert: {upstream: "`+other.URL+`/cheap"}
  - url: /server/plain
    rules: [{unit: day, rpu: 0, mode: shadow}]
    divert: {body: never}
  - url: /none
    rules: [{unit: day, rpu: 0}]
  - url: /none/text
    rules: [{unit: day, rpu: 0}]
    divert: {body: "none/text"}
`)
	for _, tc := range []struct {
		method, path string
		status       int
		kind, body   string
	}{
		{"GET", "/text", 200, "text/plain; charset=utf-8", "upstream"},
		{"GET", "/text", 200, "text/plain; charset=utf-8", "busy"},
		{"HEAD", "/text", 200, "text/plain; charset=utf-8", "busy"}, // which net/http drops
		{"GET", "/text/file", 200, "text/plain; charset=utf-8", "busy"},
		{"GET", "/file", 202, "text/x", "<p>busy</p>"},
		{"GET", "/server/plain?q=1", 200, "text/plain; charset=utf-8", "GET /cheap/server/plain?q=1 from example.com"},
		{"GET", "/none", 503, "application/problem+json", ""},
		{"GET", "/none/text", 200, "text/plain; charset=utf-8", "none/text"},
	} {
		w := serve(l, httptest.NewRequest(tc.method, tc.path, nil))
		h := w.Header()
		if w.Code != tc.status || h.Get("Content-Type") != tc.kind || tc.body != "" && w.Body.String() != tc.body {
			t.Errorf("%s: %d %q %q", tc.path, w.Code, h.Get("Content-Type"), w.Body)
		}
		forNow := tc.path == "/text" // the other refusals are by an rpu of 0
		if tc.body != "upstream" && ((h.Get("Retry-After") != "") != forNow || h.Get("Cache-Control") != "no-store" || !strings.Contains(h.Get("RateLimit"), ";r=0")) {
			t.Errorf("%s: header %v", tc.path, h)
		}
	}
	for _, r := range l.Status().Rules {
		if r.Name == "text" && (r.Allowed != 1 || r.Refused != 3) {
			t.Errorf("counts %+v", countsOf(r))
		}
	}
}

// TestDivertFile reads a file with the configuration. If it cannot be read, the configuration is
// rejected, and a reload changes nothing.
func TestDivertFile(t *testing.T) {
	t.Parallel()
	f := newFolder(t)
	text := func(name string) string {
		return fmt.Sprintf("{url: /, rules: [{rpu: 0}], divert: {file: %q}}", filepath.Join(f.dir, name))
	}
	f.write("good", "one")
	f.write("large", strings.Repeat("x", 1<<20+1))
	f.write("full", strings.Repeat("x", 1<<20))
	for name, want := range map[string]string{
		"none": "no such file", "large": "at most 1024 KiB", ".": "is not a file",
	} {
		c, err := config.Parse("x", []byte(text(name)))
		if err != nil {
			t.Fatal(err) // nothing is read to check it
		}
		if _, err := quiet.New(c); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), `entry "/": divert: `) {
			t.Errorf("%s: %v, want %s", name, err, want)
		}
	}
	file := f.write("diana.yaml", text("good"))
	l := open(t, quiet, file)
	body := func() string { return serve(l, httptest.NewRequest("GET", "/", nil)).Body.String() }
	f.write("good", "two")
	if got := body(); got != "one" {
		t.Errorf("%q before the reload, want one", got)
	}
	if err := l.Reload(); err != nil || body() != "two" {
		t.Errorf("%q after the reload, %v, want two", body(), err)
	}
	if err := os.Remove(filepath.Join(f.dir, "good")); err != nil {
		t.Fatal(err)
	}
	if err := l.Reload(); err == nil || body() != "two" {
		t.Errorf("%q after a reload without the file, %v", body(), err)
	}
	f.write("diana.yaml", text("full"))
	if err := l.Reload(); err != nil || len(body()) != 1<<20 {
		t.Errorf("%d bytes, %v", len(body()), err)
	}
}

// TestDivertByOwnProxy forwards requests by a program's own proxy.
func TestDivertByOwnProxy(t *testing.T) {
	t.Parallel()
	o := quiet
	o.Upstream = func(u *url.URL) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "by "+u.Host) })
	}
	c, err := config.Parse("x", []byte("{url: /, rules: [{rpu: 0}], divert: {upstream: 'http://h'}}"))
	if err != nil {
		t.Fatal(err)
	}
	l, err := o.New(c)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if got := serve(l, httptest.NewRequest("GET", "/", nil)).Body.String(); got != "by h" {
		t.Error(got)
	}
}
