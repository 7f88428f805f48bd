// SPDX-License-Identifier: MIT

package diana_test

import (
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/config"
)

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
	reports := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "a report") })
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
