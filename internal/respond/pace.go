// SPDX-License-Identifier: MIT

package respond

import (
	"context"
	"net/http"
	"time"

	"github.com/diana-limiter/diana/limit"
	"github.com/diana-limiter/diana/memstore"
)

// A Bandwidth is a meter of bytes a second. It is a token bucket whose tokens are bytes. Its state
// is the moment at which the bucket has made up for all bytes that were sent. That moment is in
// nanoseconds, because a microsecond can have up to a thousand bytes. Bytes that come too early have
// a scheduled time, as in a leaky bucket: the moment lies at most bandwidthBurst after it.
//
//	promise   in no interval of length t more than rate * (t + a quarter of a second)
//	piece     rate * 225 ms: one wake-up each
//	burst     rate * 240 ms: what the bucket gains while a wake-up is late still fits into
//	          it, and the writing may be late as well
//	beat      10 ms: responses wake up at multiples of it, many of them together, which costs
//	          less than one wake-up each
//
// A response with a bandwidth of its own keeps the state itself. Responses that share a bandwidth
// have the state in the store of this process, and wait in its queue. The bandwidth holds for this
// process only, because a bandwidth of all gateways together would need a call to Redis for each
// piece.
type Bandwidth int64

const (
	bandwidthBurst = 240 * time.Millisecond
	beat           = 10_000   // microseconds
	copySize       = 32 << 10 // bytes of a buffer for copying, as in package io
)

// piece returns how many bytes are sent at once, at most.
func (b Bandwidth) piece() int64 { return int64(b) * 9 / 40 }

// lasts returns how many nanoseconds n bytes take. n is at most one piece.
func (b Bandwidth) lasts(n int64) int64 { return (n*int64(time.Second) + int64(b) - 1) / int64(b) }

// StateVersion implements limit.Meter.
func (b Bandwidth) StateVersion() string { return "1" }

// Cells implements limit.Meter.
func (b Bandwidth) Cells(limit.State, int64) int { return 0 }

// Peek implements limit.Meter. It allows all bytes, some of them after a wait.
func (b Bandwidth) Peek(s limit.State, now, n int64) limit.Outcome {
	early := int64(b.Take(s, now, n)) - now*1000 - int64(bandwidthBurst)
	return limit.Outcome{Allowed: true, Wait: max(early+999, 0) / 1000}
}

// Take implements limit.Meter.
func (b Bandwidth) Take(s limit.State, now, n int64) uint64 {
	return uint64(max(int64(s.Head), now*1000) + b.lasts(n))
}

// Refund implements limit.Meter.
func (b Bandwidth) Refund(s limit.State, _, n int64) uint64 {
	return uint64(max(int64(s.Head)-b.lasts(n), 0))
}

// Delay implements limit.Queue.
func (b Bandwidth) Delay(s limit.State, d int64) uint64 { return s.Head + uint64(d)*1000 }

// Expiry implements limit.Meter.
func (b Bandwidth) Expiry(s limit.State) int64 { return int64(s.Head)/1000 + 1 }

// Pace is a bandwidth that a response keeps.
type Pace struct {
	Rate     Bandwidth
	Counters any    // of the responses that share it; nil: the response has it for itself
	Key      []byte // of the actor whose responses share it
}

// paced writes a body no faster than its bandwidths allow. It belongs to one goroutine.
type paced struct {
	to      http.ResponseWriter
	control *http.ResponseController
	ctx     context.Context // the request's
	store   *memstore.Store
	piece   int64 // of the narrowest bandwidth
	last    bool  // the end of the body is being written

	own    Bandwidth // the narrowest that the response has for itself; 0: none
	state  limit.State
	timer  *time.Timer // made when it is needed
	shared []limit.Charge
}

func newPaced(ctx context.Context, w http.ResponseWriter, store *memstore.Store, paces []Pace) *paced {
	p := &paced{to: w, control: http.NewResponseController(w), ctx: ctx, store: store}
	for _, b := range paces {
		if p.piece == 0 || b.Rate.piece() < p.piece {
			p.piece = b.Rate.piece()
		}
		switch {
		case b.Counters != nil:
			p.shared = append(p.shared, limit.Charge{Counters: b.Counters, Key: b.Key})
		case p.own == 0 || b.Rate < p.own: // keeping it keeps the others too
			p.own = b.Rate
		}
	}
	return p
}

// chunk returns how many bytes to write at once, at least 1. It is a number of whole pieces if one fits
// into a buffer for copying. The rest of a piece would cost a wake-up and a write of its own.
func (p *paced) chunk() int {
	return copySize - copySize%int(max(min(p.piece, copySize), 1))
}

// Write sends b piece by piece. It flushes each piece except the end of the body; otherwise the
// server's buffers would send several at once. The error is the ResponseWriter's, or the context's
// if that ends first.
func (p *paced) Write(b []byte) (n int, err error) {
	few := len(b) < int(p.piece) && !p.last
	for len(b) > 0 {
		size := min(len(b), int(p.piece))
		if err := p.await(int64(size), few); err != nil {
			return n, err
		}
		k, err := p.to.Write(b[:size])
		n += k
		if err != nil {
			return n, err
		}
		if b = b[size:]; len(b) > 0 || !p.last {
			_ = p.control.Flush() // if it fails, so does the next Write; some ResponseWriters have no Flush
		}
	}
	return n, nil
}

// await waits until n bytes may be sent, and counts them. If they are few and more follow, it waits
// until a whole piece may be sent, so that small writes share a wake-up.
func (p *paced) await(n int64, few bool) error {
	for p.own > 0 {
		now := p.store.Now()
		wait := p.own.Peek(p.state, now, n).Wait
		if wait == 0 {
			break
		}
		if few {
			wait = p.own.Peek(p.state, now, p.piece).Wait
		}
		if err := p.sleep(wait); err != nil {
			return err
		}
	}
	if len(p.shared) > 0 {
		if err := p.awaitShared(n); err != nil {
			return err
		}
	}
	if p.own > 0 {
		p.state.Head = p.own.Take(p.state, p.store.Now(), n)
	}
	return nil
}

// sleep waits for this many microseconds, rounded up to the next beat.
func (p *paced) sleep(wait int64) error {
	wait += beat - 1 - (p.store.Now()+wait-1)%beat
	d := time.Duration(wait) * time.Microsecond
	if p.timer == nil {
		p.timer = time.NewTimer(d)
	} else {
		p.timer.Reset(d)
	}
	select {
	case <-p.timer.C:
		return nil
	case <-p.ctx.Done():
		p.timer.Stop()
		return p.ctx.Err()
	}
}

// awaitShared waits until the shared bandwidths allow n bytes, and counts them.
func (p *paced) awaitShared(n int64) error {
	waits := false
	for i := range p.shared {
		p.shared[i].Cost = n
	}
	if _, err := p.store.Take(p.ctx, p.store.Now(), p.shared); err != nil {
		return err
	}
	for i := range p.shared {
		waits = waits || p.shared[i].Outcome.Wait > 0
	}
	if !waits {
		return nil
	}
	err := p.store.Wait(p.ctx, p.shared)
	if err != nil {
		p.store.Refund(p.shared)
	}
	return err
}
