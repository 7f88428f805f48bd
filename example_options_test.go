// SPDX-License-Identifier: MIT

package diana_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/config"
)

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
