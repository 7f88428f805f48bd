// SPDX-License-Identifier: MIT

package diana_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"time"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/config"
)

func ExampleOpen() {
	mux := http.NewServeMux()

	limiter, err := diana.Open("diana.yaml")
	if err != nil {
		log.Fatal(err) // every mistake in the file, with line and column
	}
	defer limiter.Close()
	log.Fatal(http.ListenAndServe(":8080", limiter.Handler(mux)))
}

// A server bounds how long a slow client holds a slot of a concurrency limit.
func ExampleLimiter_Handler() {
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
	start := func(ctx context.Context) error {
		d, err := limiter.Take(ctx, diana.Request{
			Path:   "/jobs/import",
			Actors: map[string]string{"account": "ann"},
		})
		if err != nil {
			return err // ctx ended while the request waited for its turn
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

// A test sets the time.
func ExampleOptions_clock() {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	limiter, err := diana.Options{Now: func() time.Time { return now }}.Open("diana.yaml")
	if err != nil {
		log.Fatal(err)
	}
	defer limiter.Close()
}
