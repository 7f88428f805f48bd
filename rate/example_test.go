// SPDX-License-Identifier: MIT

package rate_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/diana-limiter/diana/limit"
	"github.com/diana-limiter/diana/rate"
	"github.com/diana-limiter/diana/redisstore"
)

// Calls to somebody else's API, by a hundred workers in as many processes, five a second.
func Example_shared() {
	store, err := redisstore.Open(redisstore.Options{URL: "redis://127.0.0.1:6379/0"})
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	limiter, err := rate.New(limit.Limit{N: 5, Unit: time.Second, Burst: 1}, rate.Options{
		Store:   store,
		Name:    "maps API",
		Workers: 100, // without Redis each takes a hundredth
	})
	if err != nil {
		log.Fatal(err)
	}
	call := func(ctx context.Context) error {
		if _, err := limiter.Wait(ctx, 1); err != nil {
			return err // ctx ended, or would before it is our turn
		}
		// call the API
		return nil
	}
	_ = call
}

// A burst is paid for by the next caller. With a warm-up the first cost more.
func ExampleLimiter_Reserve() {
	waits := func(l limit.Limit, costs ...int64) {
		limiter, err := rate.New(l, rate.Options{})
		if err != nil {
			log.Fatal(err)
		}
		var told []time.Duration
		for _, n := range costs {
			r, err := limiter.Reserve(context.Background(), n)
			if err != nil {
				log.Fatal(err)
			}
			told = append(told, r.Delay().Round(time.Second))
		}
		fmt.Println(told)
	}
	const unit = 10 * time.Minute
	waits(limit.Limit{N: 5, Unit: unit}, 1, 1, 1, 1)
	waits(limit.Limit{N: 5, Unit: unit}, 5, 1, 1)
	waits(limit.Limit{N: 5, Unit: unit, Warmup: unit}, 1, 1, 1, 1, 1)
	// Output:
	// [0s 2m0s 4m0s 6m0s]
	// [0s 10m0s 12m0s]
	// [0s 5m12s 8m48s 11m0s 13m0s]
}

// What cannot be in time fails at once, and takes nothing.
func ExampleLimiter_Wait() {
	limiter, err := rate.New(limit.Limit{N: 1, Unit: time.Minute}, rate.Options{})
	if err != nil {
		log.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	for range 2 {
		_, err := limiter.Wait(ctx, 1)
		fmt.Println(err == nil, errors.Is(err, rate.ErrTooLong))
	}
	// Output:
	// true false
	// false true
}

// What is worth little when it is late.
func ExampleLimiter_TryWait() {
	limiter, err := rate.New(limit.Limit{N: 2, Unit: time.Minute}, rate.Options{})
	if err != nil {
		log.Fatal(err)
	}
	for range 2 {
		ok, err := limiter.TryWait(context.Background(), 1, 0)
		fmt.Println(ok, err)
	}
	// Output:
	// true <nil>
	// false <nil>
}
