// SPDX-License-Identifier: MIT

package source

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

const (
	// getTimeout is how long a centre may take to answer.
	getTimeout = 4 * time.Second

	// A centre that is out of reach is asked again after a time that grows from shortest to
	// longest. It is a random part of that, so that a hundred gateways that have lost it
	// at once do not come back at once; still each is back within ten seconds.
	shortestPause = 500 * time.Millisecond
	longestPause  = 5 * time.Second

	// lookAnyway is how long a Source is believed that says nothing. A watch can get lost
	// in a way that nobody notices.
	lookAnyway = 30 * time.Second
)

// Follower is told about a document.
type Follower struct {
	// Changed is called with each document that differs from the one before.
	Changed func(Document)

	// Reached is called when the centre can no longer be asked, with the reason, and with
	// nil when it can be asked again.
	Reached func(error)
}

// Follow tells a Follower about the document of a Source, until ctx ends. The document was
// last seen as seen, unless lost says why the centre could not be asked.
func Follow(ctx context.Context, s Source, seen Document, lost error, f Follower) {
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

// Get asks a Source, for no longer than that, and its error says so.
func Get(ctx context.Context, s Source, within time.Duration) (Document, error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	d, err := s.Get(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("no answer within %v: %w", within, err)
	}
	return d, err
}

// wait waits for a Source, for no longer than it is believed. An error means that it
// could not be told whether the document has changed.
func wait(ctx context.Context, s Source, d Document) error {
	ctx, cancel := context.WithTimeout(ctx, lookAnyway*9/10+rand.N(lookAnyway/5))
	defer cancel()
	if err := s.Wait(ctx, d); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return nil
}

func same(a, b Document) bool { return a.Exists == b.Exists && bytes.Equal(a.Text, b.Text) }

// sleep returns false if ctx ends first.
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
