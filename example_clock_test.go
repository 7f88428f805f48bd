// SPDX-License-Identifier: MIT

package diana_test

import (
	"context"
	"fmt"
	"log"
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
