// SPDX-License-Identifier: MIT

package redisstore

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// The time of a call counts while the process runs: a tick that fires late counts as one.
func TestPatience(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	late := func(first time.Duration) (ticks []time.Duration) { // the first tick fires late, the others in time
		ticks = append(ticks, first)
		for range 2 * patienceTicks {
			ticks = append(ticks, 5*ms)
		}
		return ticks
	}
	for _, test := range []struct {
		name   string
		waited time.Duration // of the request, before its call
		ticks  []time.Duration
		ends   time.Duration // of the call
	}{
		{"in time", 0, late(5 * ms), 50 * ms},
		{"a little late", 0, late(9 * ms), 54 * ms},
		{"the request has waited", 20 * ms, late(5 * ms), 30 * ms},
		{"the process was late", 0, late(105 * ms), 150 * ms},
		{"the process was late for long", 0, late(400 * ms), 400 * ms},
		{"late again and again", 0, []time.Duration{60 * ms, 60 * ms, 60 * ms, 60 * ms, 60 * ms, 60 * ms}, 300 * ms},
	} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			p, stop := newPatience(began.Add(-test.waited), 50*ms)
			defer stop()
			for _, d := range test.ticks {
				p.timer.Stop()
				if time.Sleep(d); p.Err() == nil {
					p.count()
				}
				if p.Err() != nil {
					break
				}
			}
			if got := time.Since(began); got != test.ends || !errors.Is(p.Err(), context.DeadlineExceeded) {
				t.Errorf("%s: the call ended after %v (%v), want %v", test.name, got, p.Err(), test.ends)
			}
		})
	}
}

func TestPatienceEndsByItself(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		p, stop := newPatience(began, 50*time.Millisecond)
		defer stop()
		<-p.Done()
		if got := time.Since(began); got != 50*time.Millisecond {
			t.Errorf("the call ended after %v, want 50ms", got)
		}
	})
}
