// SPDX-License-Identifier: MIT

// Package established has what filters have established about a request. The request's context carries it.
package established

import (
	"context"

	"github.com/diana-limiter/diana/rule"
)

// Facts are what filters have established about a request. Their maps never change.
type Facts struct {
	Actors map[string]string     // as rule.Request has them
	Costs  map[string]int64      // the same
	Proofs map[string]rule.Proof // the same
}

type key struct{}

// In returns the facts in a context.
func In(ctx context.Context) Facts {
	f, _ := ctx.Value(key{}).(Facts)
	return f
}

// Within returns ctx with the facts in place of others.
func (f Facts) Within(ctx context.Context) context.Context { return context.WithValue(ctx, key{}, f) }
