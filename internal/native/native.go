// SPDX-License-Identifier: MIT

// Package native has what the adapters share whose requests are each a rule.Native.
package native

import (
	"context"
	"net/http"
	"slices"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/internal/established"
)

// Upstream returns the fields that the handler of an allowed request gets in place of those of the client, see
// diana.Decision.SetUpstream. A field without lines is one that the handler must not see. The context also has what the
// credentials have proved, for further filters. Without credentials it costs nothing, because then nobody has read the
// whole header.
func Upstream(ctx context.Context, d *diana.Decision) (context.Context, http.Header) {
	q := d.Request()
	if q == nil || q.HTTP == nil {
		return ctx, nil
	}
	before, after := q.HTTP.Header, q.HTTP.Header.Clone()
	d.SetUpstream(after)
	changed := http.Header{}
	for name := range before {
		if after[name] == nil {
			changed[name] = nil
		}
	}
	for name, lines := range after {
		if !slices.Equal(lines, before[name]) {
			changed[name] = lines
		}
	}
	if len(changed) > 0 {
		facts := established.In(ctx)
		facts.Proofs = q.Proofs
		ctx = facts.Within(ctx)
	}
	return ctx, changed
}

// WithActor returns ctx with an actor that the program knows, as diana.WithActor does. An empty kind is none.
func WithActor(ctx context.Context, kind, value string) context.Context {
	if kind == "" {
		return ctx
	}
	return diana.WithActor((&http.Request{}).WithContext(ctx), kind, value).Context()
}
