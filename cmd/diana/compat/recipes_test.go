// SPDX-License-Identifier: MIT

package compat

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/diana-limiter/diana/internal/testproc"
)

// recipeLimits has a rule for each promise of the recipes.
const recipeLimits = `
response: {status: 429}
identity: {account: ["header:X-Account-Id"]}
limits:
- {url: GET /api, rules: [{name: api, actor: account, unit: day, rpu: 700, algo: W, align: first}]}
- {url: /address, rules: [{name: address, actor: ip, unit: day, rpu: 3, algo: W, align: first}]}
- {url: POST /upload, rules: [{name: upload, actor: ip, unit: day, rpu: 3, algo: W, align: first}]}
- {url: /never, rules: [{name: never, actor: ip, rpu: 0}]}
`

// hostile are the fields by which a client could name another request, or another address.
var hostile = []string{
	"X-Forwarded-Uri", "/harmless", "X-Original-Uri", "/harmless", "X-Original-Url", "http://h/harmless",
	"X-Forwarded-Method", "DELETE", "X-Original-Method", "DELETE", "X-Forwarded-Host", "h",
}

// TestRecipes: each gateway, with the files as its page in docs/gateways has them, keeps what the page
// promises. Only addresses and paths differ.
func TestRecipes(t *testing.T) {
	for _, r := range recipes {
		t.Run(r.name, func(t *testing.T) {
			r.available(t)
			s := newSite(t)
			s.startDiana(t, recipeLimits)
			r.start(t, s, r, nil)
			if !testproc.Becomes(func() bool { return s.ask(t, "GET", "/never", "").status == 429 }) {
				t.Fatal("a request that Diana refuses passes")
			}
			t.Run("exact", func(t *testing.T) { exact(t, s) })
			t.Run("answers", func(t *testing.T) { promised(t, s, r) })
			t.Run("client's own fields", func(t *testing.T) { ownFields(t, s) })
			t.Run("killed", func(t *testing.T) {
				open(t, s, r, s.diana.Kill)
				s.startDiana(t, recipeLimits)
				limitsAgain(t, s)
			})
			t.Run("frozen", func(t *testing.T) {
				open(t, s, r, s.diana.Stop)
				if err := s.diana.Resume(); err != nil {
					t.Fatal(err)
				}
				limitsAgain(t, s)
			})
		})
		t.Run(r.name+" refuses", func(t *testing.T) {
			r.available(t)
			s := newSite(t)
			r.start(t, s, r, r.refuse)
			refused := func() bool { return s.ask(t, "GET", "/harmless", "").status == r.refused }
			if !testproc.Becomes(refused) { // a gateway may read its routes late
				t.Fatalf("no request without Diana gets %d", r.refused)
			}
			for range 20 {
				if !refused() {
					t.Fatalf("a request without Diana gets another status than %d", r.refused)
				}
			}
			if n := s.arrived.Load(); n != 0 {
				t.Errorf("%d requests have reached the upstream without Diana", n)
			}
		})
	}
}

// exact sends many requests at once. On a busy machine Diana may answer later than the gateway waits, and
// the gateway then allows a request without a decision. Such a run proves nothing and is repeated.
func exact(t *testing.T, s *site) {
	for i := range 3 {
		before, counted := s.arrived.Load(), s.allowed("api")
		fields := append([]string{"X-Account-Id", fmt.Sprint(t.Name(), i)}, hostile...)
		got := s.flood(t, 64, 2000, "/api/x?y=z", fields...)
		arrived, allowed := s.arrived.Load()-before, s.allowed("api")-counted
		if arrived > allowed && i < 2 {
			t.Logf("%d requests have passed without a decision, because the machine is busy", arrived-allowed)
			continue
		}
		if got[200] != 700 || got[429] != 1300 || arrived != 700 || allowed != 700 {
			t.Errorf("statuses %v, %d reached the upstream, Diana allowed %d; want 700, and 1300 refused", got, arrived, allowed)
		}
		return
	}
}

// promised checks what a client and the upstream get.
func promised(t *testing.T, s *site, r recipe) {
	account := []string{"X-Account-Id", "ann"}
	got := s.ask(t, "GET", "/api/x?y=z", "", account...)
	if got.status != 200 || got.body != `GET /api/x?y=z with ""` {
		t.Errorf("an allowed request gets %+v", got)
	}
	if fields := got.header.Get("RateLimit") != "" && got.header.Get("RateLimit-Policy") != ""; fields != r.fields {
		t.Errorf("an allowed request has fields: %v, want %v; %v", fields, r.fields, got.header)
	}
	if got = s.ask(t, "POST", "/api/x", "body", account...); got.status != 200 || got.body != `POST /api/x with "body"` {
		t.Errorf("a request with a body gets %+v", got)
	}
	for _, code := range []int{401, 403, 404, 429, 500, 503} {
		path := fmt.Sprint("/status/", code)
		if got = s.ask(t, "GET", path, ""); got.status != code || got.body != fmt.Sprintf(`GET %s with ""`, path) {
			t.Errorf("an answer %d of the upstream becomes %+v", code, got)
		}
	}
	s.flood(t, 8, 700, "/api/x", account...)
	refusal(t, s.ask(t, "GET", "/api/x", "", account...), true)
	refusal(t, s.ask(t, "GET", "/never", ""), false)
}

// refusal checks the answer to a refused request.
func refusal(t *testing.T, got response, retry bool) {
	var problem struct {
		Title  string
		Status int
	}
	if err := json.Unmarshal([]byte(got.body), &problem); err != nil || problem.Status != 429 || problem.Title == "" {
		t.Errorf("the body of a refusal is %q", got.body)
	}
	h := got.header
	if got.status != 429 || h.Get("Content-Type") != "application/problem+json" || h.Get("Cache-Control") != "no-store" ||
		!strings.Contains(h.Get("RateLimit"), ";r=0") || !strings.Contains(h.Get("RateLimit-Policy"), ";q=") {
		t.Errorf("a refusal is %d with %v", got.status, h)
	}
	for _, name := range []string{"Content-Type", "Cache-Control", "RateLimit", "RateLimit-Policy"} {
		if len(h.Values(name)) > 1 {
			t.Errorf("a refusal has %s %d times", name, len(h.Values(name)))
		}
	}
	seconds, err := strconv.Atoi(h.Get("Retry-After"))
	if retry && (err != nil || seconds < 1) || !retry && h.Get("Retry-After") != "" {
		t.Errorf("Retry-After is %q", h.Get("Retry-After"))
	}
}

// ownFields: a client gains and loses nothing by fields that name another request or address.
func ownFields(t *testing.T, s *site) {
	for i, want := range []int{200, 200, 200, 429, 429} {
		for method, path := range map[string]string{"GET": "/address", "POST": "/upload"} {
			fields := append([]string{"X-Forwarded-For", fmt.Sprint("203.0.113.", i), "Forwarded", fmt.Sprint("for=203.0.113.", i)}, hostile...)
			if got := s.ask(t, method, path, "", fields...).status; got != want {
				t.Errorf("request %d for %s gets %d, want %d", i, path, got, want)
			}
		}
	}
	arrived := s.arrived.Load()
	for _, size := range []int{8, 12, 15, 16, 24, 31, 40, 56, 63, 64, 65, 80, 200, 900} { // KB
		r, err := http.NewRequest("GET", "http://"+s.host+"/never", nil)
		if err != nil {
			t.Fatal(err)
		}
		for i := range size {
			r.Header.Set(fmt.Sprint("X-Large-", i), strings.Repeat("x", 1000))
		}
		if res, err := s.client.Do(r); err == nil { // a gateway may close the connection
			_ = res.Body.Close()
		}
	}
	if n := s.arrived.Load() - arrived; n > 0 {
		t.Errorf("%d refused requests pass because they are large", n)
	}
	for _, field := range []string{"X-Forwarded-Uri", "X-Original-Uri", "X-Original-Url"} {
		if got := s.ask(t, "GET", "/harmless", "", field, "/never").status; got != 200 {
			t.Errorf("%s: /never leads to %d, want 200", field, got)
		}
	}
}

// open: leave takes Diana away while requests are in flight that it refuses. All later requests pass. Only at
// first they may get other answers, as the page of the gateway says.
func open(t *testing.T, s *site, r recipe, leave func() error) {
	var got map[int]int
	var flood sync.WaitGroup
	before := s.answered.Load()
	flood.Go(func() { got = s.flood(t, 16, 640, "/never") })
	testproc.Eventually(t, func() bool { return s.answered.Load() > before+32 })
	if err := leave(); err != nil {
		t.Fatal(err)
	}
	flood.Wait()
	for status, n := range got {
		if status != 200 && status != 429 && !slices.Contains(r.atFirst, status) {
			t.Errorf("%d requests get %d while Diana leaves", n, status)
		}
	}
	testproc.Eventually(t, func() bool { return s.ask(t, "GET", "/never", "").status == 200 })
	before = s.arrived.Load()
	if got = s.flood(t, 16, 160, "/never"); got[200] != 160 || s.arrived.Load()-before != 160 {
		t.Errorf("requests get %v while Diana is away", got)
	}
}

// limitsAgain: once Diana answers again, its limits are exact again.
func limitsAgain(t *testing.T, s *site) {
	if !testproc.Becomes(func() bool { return s.ask(t, "GET", "/never", "").status == 429 }) {
		t.Fatal("requests pass though Diana is back")
	}
	exact(t, s)
}
