// SPDX-License-Identifier: MIT

// Package rate limits a program's own work: calls to somebody else's API, jobs, writes to a
// disk. A program that limits other clients needs rules of a configuration instead, see
// package diana.
//
// A [Limiter] bounds how often work starts:
//
//   - [Limiter.Wait] sleeps until the work may start. It fails at once if the work cannot start
//     before the context's deadline. Most programs call it.
//   - [Limiter.TryWait] does the same, but waits no longer than the work is worth. With 0 it
//     reports whether the work may start now.
//   - [Limiter.Reserve] does not sleep. It returns when the work may start, for a program that
//     can do something else until then.
//
// A [Semaphore] bounds how much work runs at the same time:
//
//   - [Semaphore.Acquire] waits until slots are free, and takes them.
//   - [Semaphore.TryAcquire] takes them now or fails.
//   - [Slots.Release] frees them.
//
// Both count in this process. With [Options.Store] they share one limit with all others of the
// same name, also in other processes: a hundred workers can share a redisstore.Store.
package rate

import (
	"errors"
	"fmt"
	"time"

	"github.com/diana-limiter/diana/limit"
	"github.com/diana-limiter/diana/memstore"
)

// ErrTooLong says that work would have to wait for longer than it may. Either the wait ends after the
// deadline of the context, or it would never end, or [Semaphore.TryAcquire] would have to wait at all.
// The work has consumed nothing.
var ErrTooLong = errors.New("rate: the wait would be too long")

// Options say where a Limiter or a Semaphore counts. With the zero value it counts by itself, in
// this process, and uses about 40 KB of memory. Many of them use less memory if they share one
// memstore.Store.
type Options struct {
	// Store counts. Nil means a store in this process, which nothing else uses.
	Store limit.Store

	// Name is what those that share a limit have in common. A Store requires a Name. A Limiter and
	// a Semaphore of the same Name share nothing.
	Name string

	// Workers is the largest number of Limiters or Semaphores that share the limit, usually one in
	// each process. While the Store fails, each of them has an equal part of the limit, which it
	// counts by itself. 0 means that requests fail at once with the error of the Store.
	Workers int
}

// open returns the store of the options, and the clock of that store if it has one.
func (o Options) open() (limit.Store, func() int64, error) {
	if o.Workers < 0 {
		return nil, nil, fmt.Errorf("rate: Workers is %d, expected 0 or more", o.Workers)
	}
	if o.Store == nil {
		own := memstore.New(memstore.Options{MaxKeys: 1})
		return own, own.Now, nil
	}
	if o.Name == "" {
		return nil, nil, errors.New("rate: a Store needs a Name")
	}
	if s, ok := o.Store.(interface{ Now() int64 }); ok {
		return o.Store, s.Now, nil
	}
	start := time.Now()
	return o.Store, func() int64 { return start.UnixMicro() + time.Since(start).Microseconds() }, nil
}
