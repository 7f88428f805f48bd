// SPDX-License-Identifier: MIT

package respond

import (
	"context"
	"net/http"
	"sync"
	"time"
)

// The most streams that are read on at one time, in all and for each account.
const (
	mostLeft   = 256
	mostLeftOf = 4
)

// Left counts the streams that are read on although their clients have disconnected. The zero value is ready to use. It
// is safe for concurrent use.
type Left struct {
	mu  sync.Mutex
	all int
	of  map[string]int
}

func (l *Left) enter(account string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.all == mostLeft || l.of[account] == mostLeftOf {
		return false
	}
	if l.of == nil {
		l.of = map[string]int{}
	}
	l.all++
	l.of[account]++
	return true
}

func (l *Left) exit(account string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all--
	if l.of[account]--; l.of[account] == 0 {
		delete(l.of, account)
	}
}

// Leave says how long a stream is read on when its client disconnects, so that its usage becomes known.
type Leave struct {
	After   time.Duration
	Among   *Left
	Account string          // of the client
	Until   context.Context // ends the reading
	Gone    func()          // is called when the reading begins
}

type drainKey struct{}

// WithDrain returns a context for requests whose streams are not read on after draining has ended.
func WithDrain(ctx, draining context.Context) context.Context {
	return context.WithValue(ctx, drainKey{}, draining)
}

// leaving is the state of a response that is read on. Its methods are safe for concurrent use, also for nil.
type leaving struct {
	*Leave
	client context.Context // ends when the client disconnects
	ctx    context.Context // of the next handler
	cancel context.CancelFunc

	mu      sync.Mutex
	streams bool // the response has begun, and nobody knows its length
	gone    bool // the client has disconnected, and the response is read on
	over    bool
	stops   []func() bool
}

// follow returns the request with a context that can outlive that of the client.
func (l *Leave) follow(r *http.Request) (*leaving, *http.Request) {
	v := &leaving{Leave: l, client: r.Context()}
	v.ctx, v.cancel = context.WithCancel(context.WithoutCancel(r.Context()))
	v.stops = append(v.stops, context.AfterFunc(r.Context(), v.left))
	return v, r.WithContext(v.ctx)
}

// begin notes that a response has begun.
func (v *leaving) begin(status int, ofUnknownLength bool) {
	if v == nil {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.streams = ofUnknownLength && status >= 200 && status < 300
}

// left is called when the client has disconnected. The response is read on, or ends.
func (v *leaving) left() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.gone || v.over {
		return
	}
	if !v.streams || v.After <= 0 || !v.Among.enter(v.Account) {
		v.over = true
		v.cancel()
		return
	}
	v.gone = true
	v.stops = append(v.stops, time.AfterFunc(v.After, v.cancel).Stop, context.AfterFunc(v.Until, v.cancel))
	if draining, ok := v.client.Value(drainKey{}).(context.Context); ok {
		v.stops = append(v.stops, context.AfterFunc(draining, v.cancel))
	}
	v.Gone()
}

// isGone reports whether the client gets nothing any more.
func (v *leaving) isGone() bool {
	if v == nil {
		return false
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.gone
}

// failed reports whether the response is not complete.
func (v *leaving) failed() bool {
	if v.isGone() {
		return v.ctx.Err() != nil
	}
	return v.client.Err() != nil
}

// end is called when the response has ended.
func (v *leaving) end() {
	if v == nil {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, stop := range v.stops {
		stop()
	}
	if v.gone {
		v.Among.exit(v.Account)
	}
	v.over, v.gone = true, false
	v.cancel()
}
