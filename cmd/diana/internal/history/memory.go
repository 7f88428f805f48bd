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

// Memory has a gateway remember its requests. A nil memory remembers none.
type Memory struct {
	ring *Ring
	pool sync.Pool // of *visit
}

// NewMemory returns the memory of the flags, or nil. active returns the configuration in force at each request.
func (f *Flags) NewMemory(active func() *config.Config) *Memory {
	if f.Recent == 0 {
		return nil
	}
	m := &Memory{}
	m.pool.New = func() any { return &visit{} }
	m.ring = New(Options{
		Requests: f.Recent, Plain: f.RecentActors == "plain", Vocabulary: command.Vocabulary(),
		Config: active,
	})
	return m
}

// Observe has the limiter of these options tell its decisions.
func (m *Memory) Observe(o *diana.Options) {
	if m == nil {
		return
	}
	o.OnDecision = func(d *diana.Decision) {
		ticket := m.ring.Decided(d)
		if v, ok := d.Writer().(*visit); ok {
			v.ticket = ticket
		}
	}
	o.InOrder = m.ring.Whole // a share of the clients cannot be played back exactly anyway
	o.OnDone = func(d *diana.Decision) {
		if v, ok := d.Writer().(*visit); ok {
			m.ring.Ended(v.ticket, d, v.Status, v.Bytes)
		}
	}
}

// Ring returns the ring; nil if there is none.
func (m *Memory) Ring() *Ring {
	if m == nil {
		return nil
	}
	return m.ring
}

// Resetter notes each reset.
func (m *Memory) Resetter(reset func(ctx context.Context, rule string, actor ...string) error) func(ctx context.Context, rule string, actor ...string) error {
	return func(ctx context.Context, rule string, actor ...string) error {
		m.Ring().Note(Reset)
		return reset(ctx, rule, actor...)
	}
}

// visit is the ResponseWriter of one request, with its place in the ring.
type visit struct {
	logs.Recorder
	ticket Ticket
}

// Filter is the filter in front of the limiter.
func (m *Memory) Filter(next http.Handler) http.Handler {
	if m == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		v := m.pool.Get().(*visit)
		*v = visit{Recorder: logs.Recorder{ResponseWriter: w}}
		next.ServeHTTP(v, r)
		if v.Status != http.StatusSwitchingProtocols { // a connection that was taken over may still use it
			*v = visit{}
			m.pool.Put(v)
		}
	})
}
