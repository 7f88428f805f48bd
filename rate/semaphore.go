// SPDX-License-Identifier: MIT

package rate

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/diana-limiter/diana/internal/bounds"
	"github.com/diana-limiter/diana/internal/waitqueue"
	"github.com/diana-limiter/diana/limit"
	"github.com/diana-limiter/diana/memstore"
)

// A Semaphore has a number of slots, and work runs while it holds some of them. Use
// NewSemaphore. The zero Semaphore has no slots, so Acquire fails with ErrTooLong. A Semaphore is
// safe for concurrent use, starts no goroutine, and must not be copied.
//
// Waiters of one Semaphore acquire slots in the order in which they began to wait. A waiter for
// many slots therefore stops those behind it, and cannot starve. Among processes that share slots
// there is no such order.
//
// In a redisstore.Store slots are held by a lease, which the store renews. If a process crashes,
// its slots are free again after 10 seconds.
type Semaphore struct {
	n        int64
	store    limit.Store
	counters any
	now      func() int64
	key      []byte // the name
	own      bool   // nothing else uses the store
	part     *part  // nil: none
	closed   sync.Once

	mu    sync.Mutex // guards queue
	queue waitqueue.Queue[*waiter]
}

// part is what one process may hold while the store fails. It counts all slots that the process
// holds, so that slots from before the failure are part of it.
type part struct {
	store    limit.Store
	counters any
}

// waiter is a call of Acquire that waits.
type waiter struct{ waitqueue.Signal }

// askEvery is how often the head of the queue asks a shared store for slots. No process learns
// when another one releases slots.
const askEvery = 20 * time.Millisecond

// NewSemaphore returns a Semaphore of n slots, 0 to 1,000,000,000. Processes that share slots must
// give the same n. The error is for values out of range, and for a Store that cannot count slots.
//
// With [Options.Workers], n / Workers slots, rounded down, are the part of each process while the
// Store fails. If that is less than one slot, Acquire fails as without Workers. When the Store
// works again it learns which slots were acquired meanwhile.
func NewSemaphore(n int64, o Options) (*Semaphore, error) {
	meter, err := limit.Concurrency().New(limit.Limit{N: n})
	if err != nil {
		return nil, err
	}
	s := &Semaphore{n: n, key: []byte(o.Name), own: o.Store == nil}
	if s.store, s.now, err = o.open(); err != nil {
		return nil, err
	}
	if !s.own && o.Workers > 0 && n >= int64(o.Workers) {
		if s.part, err = newPart(n / int64(o.Workers)); err != nil {
			return nil, err
		}
	}
	s.counters, err = s.store.Counters(fmt.Sprintf("rate: slots %s %q", meter.StateVersion(), s.key), meter)
	if err != nil {
		return nil, err
	}
	return s, nil
}

func newPart(n int64) (*part, error) {
	meter, err := limit.Concurrency().New(limit.Limit{N: n})
	if err != nil {
		return nil, err
	}
	store := memstore.New(memstore.Options{MaxKeys: 1})
	counters, err := store.Counters("part", meter)
	return &part{store, counters}, err
}

// Close says that the Semaphore is no longer used. Its Store can then forget it if no other
// Semaphore of that name is in use. Slots that are still held can be released later. A Semaphore
// without a Store needs no Close. Further calls do nothing.
func (s *Semaphore) Close() {
	s.closed.Do(func() {
		if s.store != nil {
			s.store.Retire(s.counters)
		}
	})
}

// Acquire waits until n slots are free, and takes all of them. If ctx ends first, Acquire takes
// none and returns the error of ctx. It returns ErrTooLong at once if the Semaphore has fewer
// than n slots. If the Store fails and the process has no part, it returns the error of the Store.
func (s *Semaphore) Acquire(ctx context.Context, n int64) (*Slots, error) {
	slots, taken, err := s.try(ctx, n)
	if err == nil && !taken {
		err = s.wait(ctx, slots)
	}
	if err != nil {
		return nil, err
	}
	return slots, nil
}

// TryAcquire takes n slots if they are free and nobody waits for slots in this process. Otherwise
// it returns ErrTooLong. It does not wait, except for an answer of the Store. Other errors are
// those of Acquire.
func (s *Semaphore) TryAcquire(ctx context.Context, n int64) (*Slots, error) {
	slots, taken, err := s.try(ctx, n)
	switch {
	case err != nil:
		return nil, err
	case !taken:
		return nil, errNoSlot
	}
	return slots, nil
}

var errNoSlot = fmt.Errorf("%w: too few slots are free", ErrTooLong)

// try takes n slots unless somebody waits or too few are free. Then it returns slots to wait for.
func (s *Semaphore) try(ctx context.Context, n int64) (slots *Slots, taken bool, err error) {
	if n < 1 || n > bounds.MaxN {
		return nil, false, fmt.Errorf("rate: n is %d, expected 1 to %d", n, bounds.MaxN)
	}
	if n > s.n {
		return nil, false, fmt.Errorf("%w: %d slots of %d will never be free", ErrTooLong, n, s.n)
	}
	if err := ctx.Err(); err != nil {
		return nil, false, err
	}
	slots = &Slots{semaphore: s}
	slots.charge[0] = limit.Charge{Counters: s.counters, Key: s.key, Cost: n}
	if s.part != nil {
		slots.ofPart[0] = limit.Charge{Counters: s.part.counters, Cost: n}
	}
	if s.someWait() {
		return slots, false, nil
	}
	taken, err = s.take(ctx, slots)
	return slots, taken, err
}

// take reports whether the slots were free, and takes them. If the store fails, the part of this
// process decides.
func (s *Semaphore) take(ctx context.Context, slots *Slots) (bool, error) {
	now := s.now()
	taken, err := s.store.Take(ctx, now, slots.charge[:])
	switch {
	case err == nil && taken && s.part != nil:
		s.part.store.Debit(now, slots.ofPart[:])
	case err == nil:
	case ctx.Err() != nil:
		return false, ctx.Err()
	case s.part == nil:
		return false, fmt.Errorf("rate: %w", err)
	default:
		if taken, err = s.part.store.Take(ctx, now, slots.ofPart[:]); taken {
			s.store.Debit(now, slots.charge[:])
		}
	}
	return taken, err
}

// wait joins the queue, and takes the slots as its head when they are free.
func (s *Semaphore) wait(ctx context.Context, slots *Slots) error {
	w := &waiter{waitqueue.NewSignal()}
	s.join(w)
	defer s.leave(w)
	timer := time.NewTimer(time.Hour) // until w is the head
	defer timer.Stop()
	for {
		if s.isHead(w) { // also before it sleeps: slots may have been released before it joined
			if taken, err := s.take(ctx, slots); taken || err != nil {
				return err
			}
			if !s.own {
				timer.Reset(askEvery)
			}
		}
		if err := w.Sleep(ctx, timer.C); err != nil {
			return err
		}
	}
}

func (s *Semaphore) someWait() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.queue.Len() > 0
}

func (s *Semaphore) isHead(w *waiter) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.queue.IsHead(w)
}

func (s *Semaphore) join(w *waiter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queue.Join(w)
}

func (s *Semaphore) leave(w *waiter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queue.Leave(w)
}

func (s *Semaphore) wakeHead() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queue.WakeHead()
}

// Slots are what Acquire has taken. Release is safe for concurrent use.
type Slots struct {
	semaphore *Semaphore
	charge    [1]limit.Charge
	ofPart    [1]limit.Charge
	released  atomic.Bool
}

// Release frees the slots. Further calls do nothing, and so does Release of nil. It does not wait
// for the Store.
func (s *Slots) Release() {
	if s == nil || s.semaphore == nil || s.released.Swap(true) {
		return
	}
	from := s.semaphore
	from.store.Refund(s.charge[:])
	if from.part != nil {
		from.part.store.Refund(s.ofPart[:])
	}
	from.wakeHead()
}
