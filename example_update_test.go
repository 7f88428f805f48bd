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
