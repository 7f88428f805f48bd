// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/diana-limiter/diana/cmd/diana/internal/command"
	"github.com/diana-limiter/diana/cmd/diana/internal/live"
)

// topScreen shows the table in a terminal.
type topScreen struct {
	output *command.Output
	ask    func(ctx context.Context, rules int) (*live.Snapshot, error)
	size   func() (width, height int)
}

// lastAnswer is an error that another question would not change.
type lastAnswer struct{ error }

// follow shows the table at once and at each tick, until ctx ends. A gateway that has answered once may be away, as
// while it starts again: the table then says since when.
func (t *topScreen) follow(ctx context.Context, tick <-chan time.Time) error {
	var latest *live.Snapshot
	for {
		width, height := t.size()
		s, err := t.ask(ctx, max(height/2, 1))
		if ctx.Err() != nil {
			return nil //nolint:nilerr // the operator has ended the command
		}
		switch {
		case err != nil && (latest == nil || errors.As(err, new(lastAnswer))):
			return err
		case err != nil:
			t.show(fmt.Sprintf("NO ANSWER since %s: %s\n", latest.At.Local().Format(time.TimeOnly), command.Legible(err.Error())), latest, width, height)
		default:
			latest = s
			t.show("", s, width, height)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick:
		}
	}
}

// show replaces what the terminal shows.
func (t *topScreen) show(first string, s *live.Snapshot, width, height int) {
	t.output.Printf("\x1b[H\x1b[J%s", fitted(first+topTable(s, height), width, height))
}
