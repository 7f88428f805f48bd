// SPDX-License-Identifier: MIT

package envoy

import (
	"context"
	"log/slog"
)

// quiet is a handler that drops the line of the limiter about a changed configuration. The limiter takes a
// limit that a request brings for a change, and an operator has changed nothing. Of a change of the files it
// would show URLs and actors that no file has, see logChange.
type quiet struct{ slog.Handler }

// Handle implements slog.Handler.
func (q quiet) Handle(ctx context.Context, r slog.Record) error {
	if r.Message == configurationChanged {
		return nil
	}
	return q.Handler.Handle(ctx, r)
}

const configurationChanged = "configuration changed"
