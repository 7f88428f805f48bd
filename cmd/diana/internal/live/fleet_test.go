// SPDX-License-Identifier: MIT

package live

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// minuteLimiter is a Limiter with minutes of a fleet.
type minuteLimiter struct {
	Limiter
	mu     sync.Mutex
	err    error
	all    map[time.Time]int64 // allowed
	asked  int
	oldest time.Duration // that was asked for last
}

func (m *minuteLimiter) EachMinute(_ context.Context, since time.Time, f func(at time.Time, gateways int, allowed, refused, shadowRefused, delayed int64)) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.asked++
	m.oldest = time.Since(since).Round(time.Second)
	for at, n := range m.all {
		if !at.Before(since.Truncate(time.Minute)) {
			f(at, 2, n, 0, 0, 0)
		}
	}
	return m.err
}

// Clients share an answer for a second. Redis is asked for the whole day once a minute, and after an error.
func TestFleetIsShared(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := &minuteLimiter{all: map[time.Time]int64{}}
		for i := range 24 * 60 {
			m.all[time.Now().Truncate(time.Minute).Add(-time.Duration(i)*time.Minute)] = 1
		}
		var f fleet
		read := func(want int64, asked int, oldest time.Duration) {
			t.Helper()
			list, err := f.read(t.Context(), m)
			sum := int64(0)
			for _, l := range list {
				sum += l.Allowed
			}
			ordered := slices.IsSortedFunc(list, func(a, b Minute) int { return a.At.Compare(b.At) })
			if !errors.Is(err, m.err) || sum != want || !ordered || m.asked != asked || m.oldest != oldest {
				t.Errorf("%d allowed, %v, asked %d times, last for %v; want %d, %d, %v", sum, err, m.asked, m.oldest, want, asked, oldest)
			}
		}
		var clients sync.WaitGroup
		for range 10 {
			clients.Go(func() { _, _ = f.read(t.Context(), m) })
		}
		clients.Wait()
		read(1440, 1, 24*time.Hour)
		m.all[time.Now().Truncate(time.Minute)] = 100
		time.Sleep(2 * time.Second)
		read(1539, 2, 10*time.Minute)
		m.err = errors.New("Redis is away")
		time.Sleep(2 * time.Second)
		read(0, 3, 10*time.Minute)
		read(0, 3, 10*time.Minute)
		m.err = nil
		time.Sleep(2 * time.Second)
		read(1539, 4, 24*time.Hour)
		time.Sleep(5 * time.Minute)
		read(1539-4, 5, 24*time.Hour)
	})
}
