// SPDX-License-Identifier: MIT

package diana_test

import (
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/internal/paths"
	"github.com/diana-limiter/diana/rule"
)

// TestRejectedPaths sends paths that no honest client sends. No rule counts them, and nothing
// behind the limiter sees them.
func TestRejectedPaths(t *testing.T) {
	t.Parallel()
	l := limiter(t, "{url: /, rules: [{unit: day, rpu: 1}]}")
	for _, tc := range []struct {
		target string
		status int
	}{
		{"/%2e%2e/admin", 400}, {"/../admin", 400}, {"/a%00", 400}, {"/x%2F../admin", 400},
		{"/0%5C0/..%2fadmin", 400}, {"/x%5Cy%2f../admin", 400}, {strings.Repeat("/a", 257), 400},
		{"/" + strings.Repeat("a", paths.MaxLength), 414}, {"x:http://127.0.0.1/admin", 400}, {"*", 400},
	} {
		u, err := url.ParseRequestURI(tc.target)
		if err != nil {
			t.Fatal(err)
		}
		r := httptest.NewRequest("GET", "/", nil)
		r.URL = u
		w := serve(l, r)
		var problem struct {
			Status        int
			Title, Detail string
		}
		err = json.Unmarshal(w.Body.Bytes(), &problem)
		if w.Code != tc.status || err != nil || problem.Status != tc.status || problem.Title != http.StatusText(tc.status) || !strings.Contains(problem.Detail, "path") {
			t.Errorf("%.60q: %d %s, want %d", tc.target, w.Code, w.Body, tc.status)
		}
		if h := w.Header(); h.Get("Content-Type") != "application/problem+json" || h.Get("RateLimit") != "" || h.Get("Retry-After") != "" {
			t.Errorf("%.60q: header %v", tc.target, h)
		}
	}
	if got, want := l.Rejected(), map[string]int64{"path": 9, "path_length": 1}; !maps.Equal(got, want) {
		t.Errorf("Rejected() = %v, want %v", got, want)
	}
	_, err := l.Take(t.Context(), diana.Request{Path: "/a%0a"})
	if strange := (*rule.PathError)(nil); !errors.As(err, &strange) {
		t.Errorf("Take: %v, want a PathError", err)
	}
	if d := ask(t, l, diana.Request{Path: "/"}); !d.Allowed {
		t.Error("a rejected request was counted")
	}
	// OPTIONS * is evaluated as a request to /.
	r := httptest.NewRequest("OPTIONS", "/", nil)
	r.URL, r.RequestURI = &url.URL{Path: "*"}, "*"
	if w := serve(l, r); w.Code != 503 {
		t.Errorf("OPTIONS *: %d, want 503", w.Code)
	}
}

// A configuration can have strange paths evaluated instead of rejected.
func TestStrangePathsCanBeEvaluated(t *testing.T) {
	t.Parallel()
	l := limiter(t, `
paths: {strange: judge}
limits:
- {url: POST /login, rules: [{rpu: 0}]}
- {url: /admin, rules: [{unit: day, rpu: 1}]}
`)
	for i, want := range []int{200, 503} {
		if w := serve(l, httptest.NewRequest("GET", "/x%2F../y", nil)); w.Code != want {
			t.Errorf("request %d: %d, want %d", i, w.Code, want)
		}
	}
	if w := serve(l, httptest.NewRequest("POST", "/%2e/y", nil)); w.Code != 503 {
		t.Errorf("POST: %d, want 503", w.Code)
	}
}
