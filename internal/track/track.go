// SPDX-License-Identifier: MIT

// Package track follows the document of a source: it retries, times out and detects changes, for all
// sources alike.
package track

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/diana-limiter/diana/source"
)

const (
	// getTimeout is how long a Get may take.
	getTimeout = 4 * time.Second

	// Follow retries a centre that is out of reach after a pause that grows from shortestPause
	// to longestPause. A random part of the pause spreads the retries of gateways that lost
	// the centre at the same moment. Each gateway reaches it again within ten seconds.
	shortestPause = 500 * time.Millisecond
	longestPause  = 5 * time.Second

	// longestWait is how long a Wait may take before Follow calls Get anyway, because a watch
	// can be lost without an error.
	longestWait = 30 * time.Second
)

// Follower has the functions that Follow calls, one at a time.
type Follower struct {
	// Changed is called with each document that differs from the previous one.
	Changed func(source.Document)

	// Reached is called with an error when the centre goes out of reach, and with nil when
	// it is within reach again.
	Reached func(error)
}

// Follow reports changes of the document of a source.Source to a Follower, until ctx ends. seen is
// the document that the caller has read last. If the caller could not read it, lost is the
// error; then Follow reports the first document that it reads.
func Follow(ctx context.Context, s source.Source, seen source.Document, lost error, f Follower) {
	pause := shortestPause
	unknown := lost != nil
	if lost != nil && !sleep(ctx, rand.N(pause)) {
		return
	}
	for {
		d, err := Get(ctx, s, getTimeout)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			if lost == nil {
				f.Reached(err)
			}
			lost = err
			if !sleep(ctx, pause/2+rand.N(pause/2)) {
				return
			}
			pause = min(2*pause, longestPause)
			continue
		case lost != nil:
			lost = nil
			f.Reached(nil)
		}
		pause = shortestPause
		if unknown || !same(d, seen) {
			f.Changed(d)
		}
		seen, unknown = d, false
		err = wait(ctx, s, d)
		if ctx.Err() != nil || err != nil && !sleep(ctx, rand.N(shortestPause)) {
			return
		}
	}
}

// Get calls s.Get with a timeout. Its error names the timeout if that has ended the call.
func Get(ctx context.Context, s source.Source, within time.Duration) (source.Document, error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	d, err := s.Get(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("no answer within %v: %w", within, err)
	}
	return d, err
}

// wait calls s.Wait, for about longestWait at most. An error means that s could not find out
// whether the document has changed.
func wait(ctx context.Context, s source.Source, d source.Document) error {
	ctx, cancel := context.WithTimeout(ctx, longestWait*9/10+rand.N(longestWait/5))
	defer cancel()
	if err := s.Wait(ctx, d); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return nil
}

func same(a, b source.Document) bool { return a.Exists == b.Exists && bytes.Equal(a.Text, b.Text) }

// sleep waits for d. It returns false if ctx ends first.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
