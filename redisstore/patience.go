// SPDX-License-Identifier: MIT

package redisstore

import (
	"context"
	"math/bits"
	"sync/atomic"
	"time"

	"github.com/diana-limiter/diana/internal/redisfault"
)

// A call to Redis has a time, which counts while this process runs. On a busy machine the process is late itself, and
// then an answer of Redis may wait in its socket. So a patience counts ticks. A tick that fires late counts as one,
// however late:
//
//	ticks     |----|----|----|----|----|          five ticks: Redis is late
//	ticks     |----|----------|----|----|----|    the second fired late: one more may follow
//
// A process that is frozen with Redis would wait forever, so a call ends after mostPatience times its time.
const (
	patienceTicks = 10 // in the time of a call
	mostPatience  = 5
)

// patience is a context that ends with context.DeadlineExceeded. It has no Deadline, because the client would
// then end calls by the clock.
type patience struct {
	context.Context
	cancel context.CancelFunc
	timer  *time.Timer
	tick   time.Duration
	left   time.Duration
	last   time.Time // of the latest tick
	end    time.Time
}

// newPatience returns a patience that began at born. stop frees it.
func newPatience(born time.Time, most time.Duration) (p *patience, stop func()) {
	now := time.Now()
	p = &patience{tick: most / patienceTicks, left: most - now.Sub(born), last: now, end: born.Add(mostPatience * most)}
	p.Context, p.cancel = context.WithCancel(context.Background())
	p.timer = time.AfterFunc(time.Hour, p.count)
	p.timer.Reset(min(p.tick, p.left))
	return p, func() {
		p.timer.Stop()
		p.cancel()
	}
}

// count counts a tick.
func (p *patience) count() {
	now := time.Now()
	passed := now.Sub(p.last)
	if passed > 2*p.tick { // the process was late
		passed = p.tick
	}
	p.last = now
	if p.left -= passed; p.left <= 0 || !now.Before(p.end) {
		p.cancel()
		return
	}
	p.timer.Reset(min(p.tick, p.left))
}

func (p *patience) Err() error {
	if p.Context.Err() == nil {
		return nil
	}
	return context.DeadlineExceeded
}

// durations counts calls by how long they took.
type durations struct {
	by   [32]atomic.Int64 // below 1, 2, 4, ... microseconds
	late atomic.Int64     // calls that had no answer in time
}

func (d *durations) note(took time.Duration, err error) {
	if redisfault.Late(err) {
		d.late.Add(1)
	}
	d.by[min(bits.Len64(uint64(took.Microseconds())), len(d.by)-1)].Add(1)
}

// Calls returns how many calls to Redis had no answer in time since Open, and the Options.Timeout that the durations of
// all calls suggest. That is twice the time in which 999 of 1,000 had an answer, rounded up to a power of two of
// microseconds. It is 0 if there were no calls yet.
func (s *Store) Calls() (late int64, suggested time.Duration) {
	all, sum := int64(0), int64(0)
	for i := range s.took.by {
		all += s.took.by[i].Load()
	}
	for i := range s.took.by {
		if sum += s.took.by[i].Load(); all > 0 && sum >= all-all/1000 {
			suggested = 2 << i * time.Microsecond
			break
		}
	}
	return s.took.late.Load(), suggested
}
