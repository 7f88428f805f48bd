// SPDX-License-Identifier: MIT

package diana_test

import (
	"context"
	"fmt"
	"log"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/config"
)

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
