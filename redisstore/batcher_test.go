// SPDX-License-Identifier: MIT

package redisstore

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/diana-limiter/diana/internal/redistest"
	"github.com/diana-limiter/diana/internal/testproc"
	"github.com/diana-limiter/diana/limit"
)

// No call is in flight beside a call with a refund. It could overtake the refund, and a request could
// be refused for a slot that was released.
func TestNothingOvertakesRefunds(t *testing.T) {
	t.Parallel()
	p := redistest.StartProxy(t, redistest.Start(t).Addr())
	s := openThrough(t, p)
	c := s.at(t, limit.Concurrency(), limit.Limit{N: 1})
	take := func(i int) []limit.Charge {
		ch := []limit.Charge{{Counters: c, Key: fmt.Append(nil, i), Cost: 1}}
		if ok, err := s.Take(context.Background(), 0, ch); !ok || err != nil {
			t.Errorf("%d: %v, %v, want it admitted", i, ok, err)
		}
		return ch
	}
	inside := take(0)
	p.Freeze()
	s.Refund(inside)
	var wg sync.WaitGroup
	for i := range 2 * enough {
		wg.Go(func() { take(i) })
	}
	testproc.Eventually(t, func() bool {
		l := s.batchers[0]
		l.mu.Lock()
		defer l.mu.Unlock()
		return len(l.next.groups) == 2*enough
	})
	p.Resume()
	wg.Wait()
}

// takeIn adds a request to a batch that the test sends itself.
func takeIn(b *batch, charges []limit.Charge) entry {
	return b.join(charges, hashesOf(charges, nil), takes)
}
