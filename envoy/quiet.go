// SPDX-License-Identifier: MIT

package envoy

import (
	"context"
	"log/slog"
	"sync/atomic"
)

// quiet is a handler that drops the line about a changed configuration while a limit that a request brings
// is put in force. The limiter takes that for a change, and an operator has changed nothing.
type quiet struct {
	slog.Handler
	on *atomic.Bool
}

// Handle implements slog.Handler.
func (q quiet) Handle(ctx context.Context, r slog.Record) error {
	if q.on.Load() && r.Message == "configuration changed" {
		return nil
	}
	return q.Handler.Handle(ctx, r)
}
