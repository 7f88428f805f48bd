// SPDX-License-Identifier: MIT

package diana_test

import (
	"context"
	"fmt"
	"log"
	"log/slog"
	"time"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/config"
	"github.com/diana-limiter/diana/limit"
	"github.com/diana-limiter/diana/rule"
)

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
