// SPDX-License-Identifier: MIT

package diana_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/config"
	"github.com/diana-limiter/diana/limit"
	"github.com/diana-limiter/diana/rule"
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

// A worker asks before it starts a job.
func ExampleLimiter_Take() {
	c, err := config.Parse("jobs.yaml", []byte(`
url: /jobs
rules: [{actor: account, unit: hour, rpu: 1}]
`))
	if err != nil {
		log.Fatal(err)
	}
	limiter, err := diana.Options{}.New(c)
	if err != nil {
		log.Fatal(err)
	}
	defer limiter.Close()
	start := func(ctx context.Context) error {
		d, err := limiter.Take(ctx, diana.Request{
			Path:   "/jobs/import",
			Actors: map[string]string{"account": "ann"},
		})
		if err != nil {
			return err // ctx ended while the request waited
		}
		defer d.Done()
		if !d.Allowed { // with a RetryAfter of 0 if no wait helps
			return fmt.Errorf("try again in %v", d.RetryAfter.Round(time.Minute))
		}
		return nil
	}
	fmt.Println(start(context.Background()))
	fmt.Println(start(context.Background()))
	// Output:
	// <nil>
	// try again in 1h0m0s
}

// Support looks up what a customer has left, and lets the customer use the whole limit again.
func ExampleLimiter_Reset() {
	c, err := config.Parse("limits.yaml", []byte(`
url: /reports
rules: [{name: reports, actor: account, unit: day, rpu: 3, algo: W, align: first}]
`))
	if err != nil {
		log.Fatal(err)
	}
	limiter, err := diana.Options{}.New(c)
	if err != nil {
		log.Fatal(err)
	}
	defer limiter.Close()
	ctx := context.Background()
	request := diana.Request{Path: "/reports", Actors: map[string]string{"account": "ann"}}
	for range 3 {
		d, err := limiter.Take(ctx, request)
		if err != nil {
			log.Fatal(err)
		}
		d.Done()
	}
	left := func() {
		d, err := limiter.Peek(ctx, request)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(d.Allowed, d.Verdicts[0].Remaining)
	}
	left()
	if err := limiter.Reset(ctx, "reports", "ann"); err != nil {
		log.Fatal(err)
	}
	left()
	fmt.Println(limiter.Reset(ctx, "uploads", "ann"))
	// Output:
	// false 0
	// true 3
	// no rule has the name "uploads", expected one of "reports"
}

// A page shows the limits of a user without consuming them.
func ExampleLimiter_Peek() {
	c, err := config.Parse("limits.yaml", []byte(`
url: /reports
rules:
  - {name: each, actor: account, unit: day, rpu: 3, algo: W, align: first}
  - {name: all, unit: hour, rpu: 100, algo: W, align: first}
`))
	if err != nil {
		log.Fatal(err)
	}
	limiter, err := diana.Options{}.New(c)
	if err != nil {
		log.Fatal(err)
	}
	defer limiter.Close()
	for range 2 {
		d, err := limiter.Peek(context.Background(), diana.Request{
			Path:   "/reports",
			Actors: map[string]string{"account": "ann"},
		})
		if err != nil {
			log.Fatal(err)
		}
		for _, v := range d.Verdicts {
			fmt.Printf("%s: %d of %d left\n", v.Rule.Name, v.Remaining, v.Rule.Limit.N)
		}
	}
	// Output:
	// each: 3 of 3 left
	// all: 100 of 100 left
	// each: 3 of 3 left
	// all: 100 of 100 left
}

// A program that keeps its limits in a database changes them at run time.
func ExampleLimiter_Update() {
	fromDatabase := func(n int64) *config.Config {
		return &config.Config{Limits: []rule.Entry{{
			URL: rule.Pattern{Path: "/reports"},
			Rules: []rule.Rule{{
				Name:      "reports", // its counters survive the change
				Algorithm: limit.FixedWindow(),
				Limit:     limit.Limit{N: n, Unit: time.Hour, AlignFirst: true},
			}},
		}}}
	}
	limiter, err := diana.Options{Logger: slog.New(slog.DiscardHandler)}.New(fromDatabase(1))
	if err != nil {
		log.Fatal(err)
	}
	defer limiter.Close()
	ask := func() bool {
		d, err := limiter.Take(context.Background(), diana.Request{Path: "/reports"})
		if err != nil {
			log.Fatal(err)
		}
		defer d.Done()
		return d.Allowed
	}
	fmt.Println(ask(), ask())
	if err := limiter.Update(fromDatabase(2)); err != nil {
		log.Fatal(err)
	}
	fmt.Println(ask(), ask())
	// Output:
	// true false
	// true false
}

// A test sets the time.
func ExampleOptions_clock() {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	limiter, err := diana.Options{Now: func() time.Time { return now }}.Open("diana.yaml")
	if err != nil {
		log.Fatal(err)
	}
	defer limiter.Close()
}

// With a clock of the program no request waits: Delayed says how long it would wait.
func ExampleOptions_delayed() {
	c, err := config.Parse("limits.yaml", []byte("{url: /, rules: [{rpu: 1, algo: LB, queue: 5}]}"))
	if err != nil {
		log.Fatal(err)
	}
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	limiter, err := diana.Options{Now: func() time.Time { return now }}.New(c)
	if err != nil {
		log.Fatal(err)
	}
	defer limiter.Close()
	for range 3 {
		d, err := limiter.Take(context.Background(), diana.Request{Path: "/"})
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(d.Allowed, d.Delayed)
		d.Done()
		now = now.Add(100 * time.Millisecond)
	}
	// Output:
	// true 0s
	// true 900ms
	// true 1.8s
}

// A program writes its own refusals. The RateLimit fields and Retry-After are already set.
func ExampleOptions_refuse() {
	c, err := config.Parse("limits.yaml", []byte("{url: /, rules: [{name: pages, unit: hour, rpu: 1, algo: W, align: first}]}"))
	if err != nil {
		log.Fatal(err)
	}
	limiter, err := diana.Options{
		Refuse: func(w http.ResponseWriter, r *http.Request, d *diana.Decision) {
			w.Header().Set("Content-Type", "text/html; charset=utf-8")
			w.WriteHeader(http.StatusTooManyRequests)
			_, _ = fmt.Fprintf(w, "<h1>Please come back in %v</h1>", d.RetryAfter.Round(time.Minute))
		},
	}.New(c)
	if err != nil {
		log.Fatal(err)
	}
	defer limiter.Close()
	h := limiter.Handler(http.NotFoundHandler())
	for range 2 {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
		fmt.Print(w.Code, " ", w.Body, "\n")
	}
	// Output:
	// 404 404 page not found
	//
	// 429 <h1>Please come back in 1h0m0s</h1>
}

// A program sees every decision, here to count the requests that a rule in shadow mode would refuse.
func ExampleOptions_onDecision() {
	c, err := config.Parse("limits.yaml", []byte("{url: /, rules: [{name: planned, unit: hour, rpu: 2, algo: W, align: first, mode: shadow}]}"))
	if err != nil {
		log.Fatal(err)
	}
	limiter, err := diana.Options{
		OnDecision: func(d *diana.Decision) {
			for _, v := range d.Verdicts {
				fmt.Printf("%s: allowed %v, would be allowed %v, %d left\n", v.Rule.Name, d.Allowed, v.Allowed, v.Remaining)
			}
		},
	}.New(c)
	if err != nil {
		log.Fatal(err)
	}
	defer limiter.Close()
	h := limiter.Handler(http.NotFoundHandler())
	for range 3 {
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
	}
	// Output:
	// planned: allowed true, would be allowed true, 1 left
	// planned: allowed true, would be allowed true, 0 left
	// planned: allowed true, would be allowed false, 0 left
}
