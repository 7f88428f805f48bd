// SPDX-License-Identifier: MIT

package diana_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/config"
)

// A server limits its clients by a file.
func Example() {
	mux := http.NewServeMux()

	limiter, err := diana.Open("diana.yaml")
	if err != nil {
		log.Fatal(err) // every mistake in the file, with line and column
	}
	defer limiter.Close()
	log.Fatal(http.ListenAndServe(":8080", limiter.Handler(mux)))
}

// A change of the file takes effect within two seconds, or at once by Reload. A file with mistakes
// changes nothing.
func ExampleOpen() {
	dir, err := os.MkdirTemp("", "diana")
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	file := filepath.Join(dir, "diana.yaml")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			log.Fatal(err)
		}
	}
	write("{url: /reports, rules: [{name: reports, unit: hour, rpu: 1, algo: W, align: first}]}")
	limiter, err := diana.Open(file)
	if err != nil {
		log.Fatal(err)
	}
	defer limiter.Close()
	allowed := func() bool {
		d, err := limiter.Take(context.Background(), diana.Request{Path: "/reports"})
		if err != nil {
			log.Fatal(err)
		}
		defer d.Done()
		return d.Allowed
	}
	fmt.Println(allowed(), allowed())

	write("{url: /reports, rules: [{name: reports, unit: hour, rpu: 3, algo: W, align: first}]}")
	if err := limiter.Reload(); err != nil {
		log.Fatal(err)
	}
	fmt.Println(allowed(), allowed(), allowed())

	write("{url: /reports, rules: [{name: reports, unit: hour, rpu: many}]}")
	fmt.Println(limiter.Reload() != nil, limiter.Status().Rules[0].Limit)
	// Output:
	// true false
	// true true false
	// true 3
}

// Handler answers what is over a limit, and passes on the rest.
func ExampleLimiter_Handler() {
	c, err := config.Parse("limits.yaml", []byte(`
url: /reports
rules: [{name: reports, unit: hour, rpu: 2, algo: W, align: first}]
`))
	if err != nil {
		log.Fatal(err)
	}
	limiter, err := diana.Options{}.New(c)
	if err != nil {
		log.Fatal(err)
	}
	defer limiter.Close()
	reports := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "a report") })
	h := limiter.Handler(reports)

	for range 3 {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("GET", "/reports", nil))
		left, _, _ := strings.Cut(w.Header().Get("RateLimit"), ";t=") // and the seconds until the reset
		fmt.Println(w.Code, left, w.Header().Get("Content-Type"))
	}
	// Output:
	// 200 "reports";r=1 text/plain; charset=utf-8
	// 200 "reports";r=0 text/plain; charset=utf-8
	// 503 "reports";r=0 application/problem+json
}

// A server bounds how long a slow client holds a slot of a concurrency limit.
func ExampleLimiter_Handler_timeouts() {
	mux := http.NewServeMux()
	limiter, err := diana.Open("diana.yaml")
	if err != nil {
		log.Fatal(err)
	}
	defer limiter.Close()

	server := &http.Server{
		Addr:              ":8080",
		Handler:           limiter.Handler(mux),
		ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout:       time.Minute,     // with the body
		WriteTimeout:      2 * time.Minute, // from the header to the end of the answer, waits included
		IdleTimeout:       75 * time.Second,
	}
	log.Fatal(server.ListenAndServe())
}

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
