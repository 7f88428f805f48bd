// SPDX-License-Identifier: MIT

package diana

import (
	"context"
	"net/http"
	"time"

	"github.com/diana-limiter/diana/limit"
	"github.com/diana-limiter/diana/memstore"
)

// A bandwidth is a Meter of bytes a second. It is a token bucket whose tokens are bytes: its
// state is the moment at which all bytes that were sent are made up for, in nanoseconds, as
// there are up to a thousand bytes to a microsecond. Bytes that come too early have a turn, as
// in a leaky bucket, at which that moment lies no further ahead than bandwidthBurst:
//
//	promise   in no interval of length t more than rate * (t + a quarter of a second)
//	piece     rate * 225 ms: one wake-up each
//	burst     rate * 240 ms: what the bucket gains while a wake-up is late still fits into
//	          it, and the writing may be late as well
//	beat      10 ms: answers wake up at whole ones, many of them together, which costs less
//	          than each by itself
//
// An answer that does not share its bandwidth has the state for itself. Others have it in
// the store of this process, and wait there in line. Only this process is meant: a pace of all
// gateways together would cost a call to Redis for each piece.
type bandwidth int64

const (
	bandwidthBurst = 240 * time.Millisecond
	beat           = 10_000 // microseconds
)

// piece returns the most bytes that are sent at once.
func (b bandwidth) piece() int64 { return int64(b) * 9 / 40 }

// lasts returns how many nanoseconds n bytes take. n is at most a piece.
func (b bandwidth) lasts(n int64) int64 { return (n*int64(time.Second) + int64(b) - 1) / int64(b) }

// StateVersion implements limit.Meter.
func (b bandwidth) StateVersion() string { return "1" }

// Cells implements limit.Meter.
func (b bandwidth) Cells(limit.State, int64) int { return 0 }

// Peek implements limit.Meter. All are allowed, with a wait.
func (b bandwidth) Peek(s limit.State, now, n int64) limit.Outcome {
	early := int64(b.Take(s, now, n)) - now*1000 - int64(bandwidthBurst)
	return limit.Outcome{Allowed: true, Wait: max(early+999, 0) / 1000}
}

// Take implements limit.Meter.
func (b bandwidth) Take(s limit.State, now, n int64) uint64 {
	return uint64(max(int64(s.Head), now*1000) + b.lasts(n))
}

// Refund implements limit.Meter.
func (b bandwidth) Refund(s limit.State, _, n int64) uint64 {
	return uint64(max(int64(s.Head)-b.lasts(n), 0))
}

// Delay implements limit.Queue.
func (b bandwidth) Delay(s limit.State, d int64) uint64 { return s.Head + uint64(d)*1000 }

// Expiry implements limit.Meter.
func (b bandwidth) Expiry(s limit.State) int64 { return int64(s.Head)/1000 + 1 }

// paced writes a body no faster than its bandwidths let it. It belongs to one goroutine.
type paced struct {
	to      http.ResponseWriter
	control *http.ResponseController
	ctx     context.Context // the request's
	store   *memstore.Store
	piece   int64 // of the narrowest
	last    bool  // what is written is the end

	own    bandwidth // 0: none
	state  limit.State
	timer  *time.Timer // made when it is needed
	shared []limit.Charge
}

// paced returns a writer for the answer to the request that is judged.
func (j *judgement) paced(w http.ResponseWriter, r *http.Request) *paced {
	p := &paced{to: w, control: http.NewResponseController(w), ctx: r.Context(), store: j.limiter.local}
	ip := j.active.set.ClientIP(&j.request)
	for _, b := range j.match.Bandwidths {
		rate := bandwidth(b.Rate)
		if p.piece == 0 || rate.piece() < p.piece {
			p.piece = rate.piece()
		}
		switch {
		case b.Shared():
			p.shared = append(p.shared, limit.Charge{Counters: j.active.shared[b.Index], Key: b.AppendKey(nil, &j.request, ip)})
		case p.own == 0 || rate < p.own: // it keeps the others too
			p.own = rate
		}
	}
	return p
}

// Write sends b piece by piece. So that no more goes out at once than may, none of it stays in
// the buffers of the server, unless it is the end. The error is that of writing, or the
// context's if that ends first.
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
			_ = p.control.Flush() // if it fails, so does the next Write; some cannot
		}
	}
	return n, nil
}

// await waits until n bytes may be sent, and counts them. If they are few and more are to
// come, it waits for as many as a piece has: small writes are not to have a wake-up each.
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

// sleep waits for so many microseconds, and on to the next beat.
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
