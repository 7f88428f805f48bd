// SPDX-License-Identifier: MIT

package diana_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/config"
)

// Serve evaluates what the program says of a request, and has the filter answer a refused one. The next
// handler and a diversion get the request with its own URL.
func TestServe(t *testing.T) {
	t.Parallel()
	c, err := config.Parse("limits.yaml", []byte(`
- {url: "/users/{id}", rules: [{name: users, actor: account, unit: hour, rpu: 1}]}
- {url: POST /cart, rules: [{unit: hour, rpu: 1}]}
- {url: /sale, divert: {upstream: "http://sale.test"}, rules: [{unit: hour, rpu: 1}]}
`))
	if err != nil {
		t.Fatal(err)
	}
	l, err := diana.Options{
		Refuse: func(w http.ResponseWriter, _ *http.Request, _ *diana.Decision) { w.WriteHeader(418) },
		Upstream: func(u *url.URL) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, u.Host+r.URL.Path) })
		},
	}.New(c)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	refuse := func(w http.ResponseWriter, r *http.Request, d *diana.Decision) {
		w.WriteHeader(429)
		_, _ = io.WriteString(w, d.Verdicts[0].Rule.Name+" "+r.URL.Path)
	}
	next := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.URL.Path) })
	ann := map[string]string{"account": "ann"}
	bob := map[string]string{"account": "bob"}
	for i, tc := range []struct {
		path   string
		q      diana.Request
		refuse func(http.ResponseWriter, *http.Request, *diana.Decision)
		status int
		body   string
	}{
		{"/users/7", diana.Request{Path: "/users/:id", Actors: ann}, refuse, 200, "/users/7"},
		{"/users/8", diana.Request{Path: "/users/:id", Actors: ann}, refuse, 429, "users /users/8"},
		{"/users/8", diana.Request{Path: "/users/:id", Actors: bob}, refuse, 200, "/users/8"},
		{"/users/8", diana.Request{Path: "/users/:id", Actors: bob}, nil, 418, ""},
		{"/a/../b", diana.Request{Path: "/b"}, refuse, 200, "/a/../b"},
		{"/cart", diana.Request{Method: "POST"}, refuse, 200, "/cart"},
		{"/cart", diana.Request{Method: "POST"}, nil, 418, ""},
		{"/cart", diana.Request{}, refuse, 200, "/cart"},
		{"/sales/1", diana.Request{Path: "/sale"}, refuse, 200, "/sales/1"},
		{"/sales/2", diana.Request{Path: "/sale"}, refuse, 200, "sale.test/sales/2"},
	} {
		w := httptest.NewRecorder()
		l.Serve(w, httptest.NewRequest("GET", tc.path, nil), tc.q, next, tc.refuse)
		if w.Code != tc.status || w.Body.String() != tc.body {
			t.Errorf("%d: %s got %d %q, want %d %q", i, tc.path, w.Code, w.Body, tc.status, tc.body)
		}
	}
}
