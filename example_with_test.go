// SPDX-License-Identifier: MIT

package diana_test

import (
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/config"
)

// A filter that has checked a session says whose it is. The client's header fields are not asked.
func ExampleWithActor() {
	c, err := config.Parse("limits.yaml", []byte(`
identity: {account: ["header:X-Account"]}
limits:
  - url: /
    rules: [{actor: account, unit: hour, rpu: 1, algo: W, align: first}]
`))
	if err != nil {
		log.Fatal(err)
	}
	limiter, err := diana.Options{}.New(c)
	if err != nil {
		log.Fatal(err)
	}
	defer limiter.Close()
	accounts := map[string]string{"session 1": "ann", "session 2": "ann", "session 3": "bob"}
	limited := limiter.Handler(http.NotFoundHandler())
	filter := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		limited.ServeHTTP(w, diana.WithActor(r, "account", accounts[r.Header.Get("Authorization")]))
	})

	for _, session := range []string{"session 1", "session 2", "session 3"} {
		r := httptest.NewRequest("GET", "/", nil)
		r.Header.Set("Authorization", session)
		r.Header.Set("X-Account", "somebody else") // has no effect
		w := httptest.NewRecorder()
		filter.ServeHTTP(w, r)
		fmt.Println(session, w.Code)
	}
	// Output:
	// session 1 404
	// session 2 503
	// session 3 404
}

// A filter that knows what a request costs says so. The client's own header field is replaced.
func ExampleWithCost() {
	c, err := config.Parse("limits.yaml", []byte(`
url: /search
rules: [{name: search, unit: hour, rpu: 100, algo: W, align: first, cost: "header:X-Cost"}]
`))
	if err != nil {
		log.Fatal(err)
	}
	limiter, err := diana.Options{}.New(c)
	if err != nil {
		log.Fatal(err)
	}
	defer limiter.Close()
	limited := limiter.Handler(http.NotFoundHandler())
	filter := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		cost := int64(1)
		if r.URL.Query().Has("deep") {
			cost = 60
		}
		limited.ServeHTTP(w, diana.WithCost(r, "X-Cost", cost))
	})

	for _, target := range []string{"/search?q=go", "/search?q=go&deep", "/search?q=go&deep"} {
		w := httptest.NewRecorder()
		filter.ServeHTTP(w, httptest.NewRequest("GET", target, nil))
		left, _, _ := strings.Cut(w.Header().Get("RateLimit"), ";t=") // and the seconds until the reset
		fmt.Println(w.Code, left)
	}
	// Output:
	// 404 "search";r=99
	// 404 "search";r=39
	// 503 "search";r=39
}
