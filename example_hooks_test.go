// SPDX-License-Identifier: MIT

package diana_test

import (
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/config"
)

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
			fmt.Fprintf(w, "<h1>Please come back in %v</h1>", d.RetryAfter.Round(time.Minute))
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
