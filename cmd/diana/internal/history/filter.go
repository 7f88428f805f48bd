// SPDX-License-Identifier: MIT

package history

import (
	"context"
	"fmt"
	"net/http"
	"sync"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/cmd/diana/internal/command"
	"github.com/diana-limiter/diana/cmd/diana/internal/logs"
	"github.com/diana-limiter/diana/config"
)

// Flags are the flags of serve for the requests that it remembers.
type Flags struct {
	Recent       int    `default:"100000" placeholder:"N" help:"Number of requests that the gateway remembers, in at most 64 MiB, to try a change of the configuration on them (${default}). 0: none."`
	RecentActors string `enum:"hash,plain" default:"hash" placeholder:"hash|plain" help:"How the gateway remembers clients: by a hash, or plainly (${default})."`
}

// Valid returns an error if a flag is wrong.
func (f *Flags) Valid() error {
	if f.Recent < 0 || f.Recent > mostRecent {
		return fmt.Errorf("--recent: %d, expected a number from 0 to %d", f.Recent, mostRecent)
	}
	return nil
}

const mostRecent = 10_000_000

// NewRing returns the ring of the flags, or nil. active returns the configuration in force at each request.
func (f *Flags) NewRing(active func() *config.Config) *Ring {
	if f.Recent == 0 {
		return nil
	}
	return New(Options{Requests: f.Recent, Plain: f.RecentActors == "plain", Vocabulary: command.Vocabulary(), Config: active})
}

// Observe has the limiter of these options tell its decisions. It reads each configuration before that is in force,
// because that takes 40 ms for 100,000 entries, and requests would wait for it.
func (r *Ring) Observe(o *diana.Options) {
	if r == nil {
		return
	}
	accept := o.Accept
	o.Accept = func(c *config.Config) error {
		if accept != nil {
			if err := accept(c); err != nil {
				return err
			}
		}
		next, err := newReads(c, r.options.Vocabulary)
		r.next.Store(next)
		return err
	}
	o.OnDecision = func(d *diana.Decision) {
		at := r.decided(d)
		if v, ok := d.Writer().(*visit); ok {
			v.place = at
		}
	}
	o.InOrder = r.Whole // a share of the clients cannot be played back exactly anyway
	o.OnDone = func(d *diana.Decision) {
		if v, ok := d.Writer().(*visit); ok {
			r.complete(v.place, d, v.Status, v.Bytes)
		}
	}
}

// Resetter notes each reset.
func (r *Ring) Resetter(reset func(ctx context.Context, rule string, actor ...string) error) func(ctx context.Context, rule string, actor ...string) error {
	return func(ctx context.Context, rule string, actor ...string) error {
		r.Note(Reset)
		return reset(ctx, rule, actor...)
	}
}

// visit is the ResponseWriter of one request, with its place in the ring.
type visit struct {
	logs.Recorder
	place place
}

// Filter is the filter in front of the limiter.
func (r *Ring) Filter(next http.Handler) http.Handler {
	if r == nil {
		return next
	}
	visits := sync.Pool{New: func() any { return &visit{} }}
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		v := visits.Get().(*visit)
		*v = visit{Recorder: logs.Recorder{ResponseWriter: w}}
		next.ServeHTTP(v, req)
		if v.Status != http.StatusSwitchingProtocols { // a connection that was taken over may still use it
			*v = visit{}
			visits.Put(v)
		}
	})
}
