// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"fmt"
	"net/http"
	"sync"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/cmd/diana/internal/recent"
	"github.com/diana-limiter/diana/cmd/diana/internal/whatif"
	"github.com/diana-limiter/diana/config"
)

// recentFlags are the flags of serve for the requests that it remembers.
type recentFlags struct {
	Recent       int    `default:"100000" placeholder:"N" help:"Number of requests that the gateway remembers, in at most 64 MiB, to try a change of the configuration on them (${default}). 0: none."`
	RecentActors string `enum:"hash,plain" default:"hash" placeholder:"hash|plain" help:"How the gateway remembers clients: by a hash, or plainly (${default})."`
}

func (f *recentFlags) valid() error {
	if f.Recent < 0 || f.Recent > mostRecent {
		return fmt.Errorf("--recent: %d, expected a number from 0 to %d", f.Recent, mostRecent)
	}
	return nil
}

const mostRecent = 10_000_000

// memory has a gateway remember its requests. A nil memory remembers none.
type memory struct {
	ring  *recent.Ring
	pool  sync.Pool             // of *visit
	inUse func() *config.Config // set before the first request
}

// newMemory returns the memory of the flags, or nil. Its owner sets inUse before the first request.
func (f *recentFlags) newMemory() *memory {
	if f.Recent == 0 {
		return nil
	}
	m := &memory{}
	m.pool.New = func() any { return &visit{} }
	m.ring = recent.New(recent.Options{
		Requests: f.Recent, Plain: f.RecentActors == "plain", Vocabulary: vocabulary(),
		Config: func() *config.Config { return m.inUse() },
	})
	return m
}

// observe has the limiter of these options tell its decisions.
func (m *memory) observe(o *diana.Options) {
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
			m.ring.Ended(v.ticket, d, v.status, v.bytes)
		}
	}
}

// follow sets the limiter whose requests are remembered.
func (m *memory) follow(limiter *diana.Limiter) {
	if m != nil {
		m.inUse = limiter.Config
	}
}

// whatIf returns what evaluates proposed configurations for a limiter.
func (m *memory) whatIf(limiter *diana.Limiter, accept func(*config.Config) error) *whatif.WhatIf {
	return whatif.New(whatif.Options{
		Ring: m.latest(), Vocabulary: vocabulary(), Config: limiter.Config, Status: limiter.Status,
		Rejected: limiter.Rejected, Accept: accept,
	})
}

// latest returns the ring; nil if there is none.
func (m *memory) latest() *recent.Ring {
	if m == nil {
		return nil
	}
	return m.ring
}

// resetter notes each reset.
func (m *memory) resetter(reset resetter) resetter {
	return func(ctx context.Context, rule string, actor ...string) error {
		m.latest().Note(recent.Reset)
		return reset(ctx, rule, actor...)
	}
}

// visit is the ResponseWriter of one request, with its place in the ring.
type visit struct {
	recorder
	ticket recent.Ticket
}

// filter is the filter in front of the limiter.
func (m *memory) filter(next http.Handler) http.Handler {
	if m == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		v := m.pool.Get().(*visit)
		*v = visit{recorder: recorder{ResponseWriter: w}}
		next.ServeHTTP(v, r)
		if v.status != http.StatusSwitchingProtocols { // a connection that was taken over may still use it
			*v = visit{}
			m.pool.Put(v)
		}
	})
}
