// SPDX-License-Identifier: MIT

// Package rivals opens what Diana is measured beside: rivals, floors and the servers of both. A rival is used as
// its documentation shows.
package rivals

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-chi/httprate"
	"github.com/sethvargo/go-limiter/memorystore"
	"golang.org/x/time/rate"

	"github.com/diana-limiter/diana/bench/measure"
)

// Quota allows N at once, and N in each period.
type Quota struct {
	N   int64
	Per time.Duration
}

// Step returns the time after which one more request is allowed.
func (q Quota) Step() time.Duration { return q.Per / time.Duration(q.N) }

// Local is a limiter within one process.
type Local struct {
	Name string
	Kind measure.Kind
	Work string // see measure.Row

	// Open opens it with a quota for each key and room for that many keys.
	Open func(q Quota, keys int) (*Limiter, error)
}

// Limiter is an open limiter.
type Limiter struct {
	Decider func() func(key string) (allowed bool) // returns a function for one goroutine
	Close   func()
}

// decidedBy returns a limiter with a function that all goroutines share.
func decidedBy(decide func(key string) bool) *Limiter {
	return &Limiter{func() func(string) bool { return decide }, func() {}}
}

// The names of systems that lines mention.
const (
	XTime    = "x/time/rate in a sync.Map"
	CASFloor = "clock and compare-and-swap"
)

// LocalRivals lists those rivals of which one was the best in some figure. x/time/rate has one limiter for each key, and a
// sync.Map holds them.
func LocalRivals() []Local {
	rival := func(name string, open func(q Quota, keys int) (*Limiter, error)) Local {
		return Local{Name: name, Kind: measure.Rival, Open: open}
	}
	return []Local{
		rival(XTime, func(q Quota, _ int) (*Limiter, error) {
			create := func() *rate.Limiter { return rate.NewLimiter(rate.Every(q.Step()), int(q.N)) }
			return inSyncMap(create, (*rate.Limiter).Allow), nil
		}),
		rival("go-limiter", openGoLimiter),
		rival("httprate's local counter", openHTTPRate),
	}
}

func inSyncMap[L any](create func() L, allow func(L) bool) *Limiter {
	var all sync.Map
	return decidedBy(func(key string) bool {
		l, ok := all.Load(key)
		if !ok { // LoadOrStore alone would make a limiter each time
			l, _ = all.LoadOrStore(key, create())
		}
		return allow(l.(L))
	})
}

// openGoLimiter makes its map large enough from the start, as its documentation advises.
func openGoLimiter(q Quota, keys int) (*Limiter, error) {
	store, err := memorystore.New(&memorystore.Config{Tokens: uint64(q.N), Interval: q.Per, InitialAlloc: keys})
	if err != nil {
		return nil, err
	}
	ctx := context.Background()
	l := decidedBy(func(key string) bool {
		_, _, _, ok, err := store.Take(ctx, key)
		return ok && err == nil
	})
	l.Close = func() { _ = store.Close(ctx) } // never fails
	return l, nil
}

// openHTTPRate does what httprate's middleware does, without HTTP and without the lock that
// the middleware holds meanwhile. So it is faster than httprate, and wrong when two requests
// arrive at once.
func openHTTPRate(q Quota, _ int) (*Limiter, error) {
	counter := httprate.NewLocalLimitCounter(q.Per)
	return decidedBy(func(key string) bool {
		now := time.Now().UTC()
		window := now.Truncate(q.Per)
		this, last, err := counter.Get(key, window, window.Add(-q.Per))
		if err != nil {
			return false
		}
		passed := float64(now.Sub(window)) / float64(q.Per)
		if float64(last)*(1-passed)+float64(this)+1 > float64(q.N) {
			return false
		}
		return counter.IncrementBy(key, window, 1) == nil
	}), nil
}

// CompareAndSwap is the least possible token bucket, one for all keys together: a clock
// reading, a comparison, and one atomic operation if the request is allowed.
func CompareAndSwap(q Quota) *Limiter {
	start := time.Now()
	step, full := q.Step().Nanoseconds(), q.Per.Nanoseconds()
	var state atomic.Int64
	return decidedBy(func(string) bool {
		now := int64(time.Since(start))
		for {
			at := state.Load()
			next := max(at, now) + step
			if next > now+full {
				return false
			}
			if state.CompareAndSwap(at, next) {
				return true
			}
		}
	})
}
