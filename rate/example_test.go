// SPDX-License-Identifier: MIT

package rate_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"sync"
	"time"

	"github.com/diana-limiter/diana/limit"
	"github.com/diana-limiter/diana/rate"
	"github.com/diana-limiter/diana/redisstore"
)

// A hundred workers in as many processes make at most five calls a second to somebody else's API.
func Example_shared() {
	store, err := redisstore.Open(redisstore.Options{URL: "redis://127.0.0.1:6379/0"})
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	limiter, err := rate.New(limit.Limit{N: 5, Unit: time.Second, Burst: 1}, rate.Options{
		Store:   store,
		Name:    "maps API",
		Workers: 100, // without Redis each worker has a hundredth of the rate
	})
	if err != nil {
		log.Fatal(err)
	}
	call := func(ctx context.Context) error {
		if _, err := limiter.Wait(ctx, 1); err != nil {
			return err // ctx has ended, or would end before the call may start
		}
		// call the API
		return nil
	}
	_ = call
}

// The next caller pays for a burst. With a warm-up the first requests cost more.
func ExampleLimiter_Reserve() {
	delays := func(l limit.Limit, costs ...int64) {
		limiter, err := rate.New(l, rate.Options{})
		if err != nil {
			log.Fatal(err)
		}
		var all []time.Duration
		for _, n := range costs {
			r, err := limiter.Reserve(context.Background(), n)
			if err != nil {
				log.Fatal(err)
			}
			all = append(all, r.Delay().Round(time.Second))
		}
		fmt.Println(all)
	}
	const unit = 10 * time.Minute
	delays(limit.Limit{N: 5, Unit: unit}, 1, 1, 1, 1)
	delays(limit.Limit{N: 5, Unit: unit}, 5, 1, 1)
	delays(limit.Limit{N: 5, Unit: unit, Warmup: unit}, 1, 1, 1, 1, 1)
	// Output:
	// [0s 2m0s 4m0s 6m0s]
	// [0s 10m0s 12m0s]
	// [0s 5m12s 8m48s 11m0s 13m0s]
}

// Work that cannot start in time fails at once, and consumes nothing.
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

// Work that is worth nothing when it is late does not wait at all.
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

// At most two conversions run at a time, and the others wait for a free slot.
func ExampleSemaphore() {
	conversions, err := rate.NewSemaphore(2, rate.Options{})
	if err != nil {
		log.Fatal(err)
	}
	convert := func(ctx context.Context) error {
		slots, err := conversions.Acquire(ctx, 1)
		if err != nil {
			return err // the context has ended
		}
		defer slots.Release()
		// convert a picture
		return nil
	}
	var wg sync.WaitGroup
	for range 10 {
		wg.Go(func() {
			if err := convert(context.Background()); err != nil {
				log.Print(err)
			}
		})
	}
	wg.Wait()
}

// At most eight exports run at a time, in all processes together.
func ExampleNewSemaphore_shared() {
	store, err := redisstore.Open(redisstore.Options{URL: "redis://127.0.0.1:6379/0"})
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	exports, err := rate.NewSemaphore(8, rate.Options{
		Store:   store,
		Name:    "exports",
		Workers: 4, // without Redis each process runs at most two
	})
	if err != nil {
		log.Fatal(err)
	}
	defer exports.Close()
	export := func(ctx context.Context) error {
		slots, err := exports.Acquire(ctx, 1)
		if err != nil {
			return err // the context has ended
		}
		defer slots.Release()
		// export
		return nil
	}
	_ = export
}

// A large job takes several slots. It gets all of them or none.
func ExampleSemaphore_TryAcquire() {
	memory, err := rate.NewSemaphore(8, rate.Options{})
	if err != nil {
		log.Fatal(err)
	}
	for _, gigabytes := range []int64{5, 4, 3, 9} {
		_, err := memory.TryAcquire(context.Background(), gigabytes)
		fmt.Println(gigabytes, err)
	}
	// Output:
	// 5 <nil>
	// 4 rate: the wait would be too long: too few slots are free
	// 3 <nil>
	// 9 rate: the wait would be too long: 9 slots of 8 will never be free
}

// A second call of Release does nothing.
func ExampleSlots_Release() {
	one, err := rate.NewSemaphore(1, rate.Options{})
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	first, err := one.Acquire(ctx, 1)
	fmt.Println("first:", err)
	first.Release()
	second, err := one.Acquire(ctx, 1)
	fmt.Println("second:", err)
	first.Release()
	_, err = one.TryAcquire(ctx, 1)
	fmt.Println("third:", err)
	second.Release()
	// Output:
	// first: <nil>
	// second: <nil>
	// third: rate: the wait would be too long: too few slots are free
}

// A Limiter allows a rate at once that it has stored. Here it has stored nothing.
func ExampleNew() {
	limiter, err := rate.New(limit.Limit{N: 10, Unit: time.Hour}, rate.Options{})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(limiter.Limit().N, "each", limiter.Limit().Unit)
	_, err = rate.New(limit.Limit{N: 10}, rate.Options{})
	fmt.Println(err)
	// Output:
	// 10 each 1h0m0s
	// limit: unit is 0s, expected whole microseconds, 1ms to 744h0m0s
}

// Waiting calls are unaffected. Later work has the new limit.
func ExampleLimiter_SetLimit() {
	limiter, err := rate.New(limit.Limit{N: 1, Unit: time.Hour}, rate.Options{})
	if err != nil {
		log.Fatal(err)
	}
	delay := func() {
		r, err := limiter.Reserve(context.Background(), 1)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(r.Delay().Round(time.Minute))
	}
	delay()
	delay()
	if err := limiter.SetLimit(limit.Limit{N: 4, Unit: time.Hour}); err != nil {
		log.Fatal(err)
	}
	delay()
	delay()
	// Output:
	// 0s
	// 1h0m0s
	// 2h0m0s
	// 2h15m0s
}

// A program that does not wait for its scheduled time refunds what it has reserved.
func ExampleReservation_Cancel() {
	limiter, err := rate.New(limit.Limit{N: 1, Unit: time.Hour}, rate.Options{})
	if err != nil {
		log.Fatal(err)
	}
	for range 3 {
		r, err := limiter.Reserve(context.Background(), 1)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(r.Delay().Round(time.Minute))
		r.Cancel() // does nothing for the first one, which may start at once
	}
	// Output:
	// 0s
	// 1h0m0s
	// 1h0m0s
}
