// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/diana-limiter/diana/internal/testproc"
)

// The group exactness measures how exactly limits are kept. One driver with 64 clients asks each system
// from outside for one key, far more often than the limit allows, and compares it with its own promise.
// Each phase has a key of its own.

// The phases. An outage of Redis meets clients that have used up their limit.
const (
	coldPhase   = "1,000 a minute, a new key"
	steadyPhase = "100 a second, steadily"
	reloadPhase = "1,000 a minute, three reloads"
	killPhase   = "1,000 a minute, Redis is killed and returns empty"
	pausePhase  = "1,000 a minute, Redis is paused"
)

var (
	beyond     = figure{name: "beyond", format: plainText}                          // its promise, certainly
	mostBeyond = figure{name: "at most beyond", format: plainText, better: neither} // what the driver cannot exclude
	short      = figure{name: "short", format: plainText}                           // of its promise, certainly
	admitted   = figure{name: "admitted", format: plainText, better: neither}
	refused    = figure{name: "refused", format: plainText, better: neither}
	unanswered = figure{name: "unanswered", format: plainText}
	alone      = figure{name: "allowed without Redis", format: plainText, better: neither} // as Diana reports
	meanwhile  = [4]figure{                                                                // during an outage, in the order of answerKind
		{name: "allowed meanwhile", format: plainText, better: neither},
		{name: "refused meanwhile", format: plainText, better: neither},
		{name: "errors meanwhile", format: plainText},
		{name: "unanswered meanwhile", format: plainText},
	}
)

func exactnessGroup() group {
	return group{
		name: "exactness", title: "Exactness", measure: measureExactness, table: exactnessTable,
		figures: slices.Concat([]figure{beyond, mostBeyond, short, admitted, refused, failures, unanswered, alone}, meanwhile[:],
			[]figure{allowed, promised, offered, refilled}),
		lines: []line{
			custom("Limits that Diana kept exactly by W, TB, SW and SL, with 3 processes and 256 callers each", measureKept).must("G5",
				bound{"all", func(m measured) bool { return m.value == 0 }}),
		},
	}
}

func measureExactness(ctx context.Context, r *run) error {
	return inYard(ctx, r, func(ctx context.Context, r *run, y *yard) error {
		server, stop, err := startRedis(r)
		if err != nil {
			return err
		}
		defer stop()
		if err := measureExact(ctx, r, server); err != nil {
			return err
		}
		all, err := openExactYard(ctx, r, &exactYard{yard: y, redis: server})
		if err != nil {
			return err
		}
		return all.measure(ctx, r)
	})
}

// exactRun is the systems of a run and the yard of their servers.
type exactRun struct {
	*exactYard
	systems []*exactSystem
}

// openExactYard finds the programs of the systems. Systems without a program are left out.
func openExactYard(ctx context.Context, r *run, y *exactYard) (*exactRun, error) {
	if err := y.settle(); err != nil {
		return nil, err
	}
	if y.nginx = nginxProgram(); y.nginx == "" {
		r.note("  nginx is missing")
	}
	if !r.quick {
		r.note("  building %s", envoyExact)
		var err error
		if y.envoy, err = buildEnvoy(ctx, y.dir); err != nil {
			r.note("  %s cannot be built: %v", envoyExact, err)
		}
	}
	systems := slices.DeleteFunc(exactSystems(), func(s *exactSystem) bool {
		return r.quick && !r.tiny && !s.quick || s.name == nginxExact && y.nginx == "" || s.name == envoyExact && y.envoy == ""
	})
	return &exactRun{y, systems}, nil
}

func (x *exactRun) measure(ctx context.Context, r *run) error {
	rounds := r.atMost(2) // because each takes a minute
	return rounds.interleave(ctx, len(x.systems), func(round, i int) error {
		s := x.systems[i]
		r.note("  round %d of %d: %s", round+1, rounds.rounds, s.name)
		if _, err := x.redis.Do("FLUSHALL", "SYNC"); err != nil {
			return err
		}
		err := s.start(x.exactYard, s)
		defer s.stop()
		if err == nil {
			err = x.phases(ctx, r, s, round)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		return nil
	})
}

// phases measures a system in all phases. The outages are in the first round only.
func (x *exactRun) phases(ctx context.Context, r *run, s *exactSystem, round int) error {
	if err := s.becomesReady(ctx); err != nil {
		return err
	}
	part := r.span(500*time.Millisecond, 100*time.Millisecond)
	if err := x.phase(ctx, r, s, coldPhase, "minute", 2*part); err != nil {
		return err
	}
	if err := x.phase(ctx, r, s, steadyPhase, "second", 5*part); err != nil {
		return err
	}
	if s.reload != nil {
		reload := func() error { return s.reload(x.exactYard, s) }
		if err := x.phase(ctx, r, s, reloadPhase, "minute", 4*part,
			step{part / 10, reload}, step{part, reload}, step{2 * part, reload}); err != nil {
			return err
		}
	}
	if !s.redis || round > 0 {
		return nil
	}
	kill := func() error { return caught(x.redis.Kill) }
	restart := func() error { return caught(x.redis.Restart) }
	if err := x.phase(ctx, r, s, killPhase, "minute", 8*part, step{2 * part, kill}, step{5 * part, restart}); err != nil {
		return err
	}
	if err := s.becomesReady(ctx); err != nil {
		return err
	}
	freeze := func() error { return caught(x.redis.Freeze) }
	thaw := func() error { return caught(x.redis.Thaw) }
	return x.phase(ctx, r, s, pausePhase, "minute", 8*part, step{2 * part, freeze}, step{5 * part, thaw})
}

// phase lets the clients ask and adds what came of it.
func (x *exactRun) phase(ctx context.Context, r *run, s *exactSystem, phase, unit string, d time.Duration, steps ...step) error {
	q := exactQuotas[unit]
	x.keys++
	before, err := s.allowedAlone()
	if err != nil {
		return err
	}
	h, outage, err := s.history(ctx, unit, fmt.Sprintf("key%d", x.keys), d, steps...)
	if err != nil {
		return fmt.Errorf("%s: %w", phase, err)
	}
	after, err := s.allowedAlone()
	if err != nil {
		return err
	}
	m := r.row(phase, s.name, s.kind)
	if s.kind == diana && s.redis {
		m.add(alone, after-before)
	}
	m.add(beyond, h.beyond(s.promise, q))
	m.add(mostBeyond, max(h.atMostBeyond(s.promise, q), h.beyond(s.promise, q)))
	n := h.counts(0, d+time.Hour)
	for i, f := range []figure{admitted, refused, failures, unanswered} {
		m.add(f, n[i])
	}
	if phase != killPhase && phase != pausePhase {
		m.add(short, h.short(s.promise, q))
		return nil
	}
	n = h.counts(outage[0], outage[1])
	for i, f := range meanwhile {
		m.add(f, n[i])
	}
	return nil
}

// poll calls done until it returns nil, for a while.
func poll(ctx context.Context, done func() error) error {
	return testproc.Poll(testproc.Patience, func() error {
		select {
		case <-ctx.Done():
			return nil // the next request returns the error
		default:
			return done()
		}
	})
}
