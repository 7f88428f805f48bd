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
