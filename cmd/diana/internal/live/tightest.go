// SPDX-License-Identifier: MIT

package live

import (
	"context"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/limit"
	"github.com/diana-limiter/diana/rule"
)

// tightest fills in what is left for the actor of a rule that has least: of the most refused actors, or of all
// clients if the rule counts them together. It looks at local rules alone, because a page must not cost calls of
// Redis each second. It looks at ten counters at most, and changes nothing.
func (r *Rule) tightest(peek func(ctx context.Context, rule string, actor ...string) ([]diana.Explanation, []diana.Verdict, error)) {
	if r.Scope == rule.Global.String() {
		return
	}
	actors := []string{rule.All.String()}
	for _, top := range r.Top {
		if top.Actor != "" {
			actors = append(actors, top.Actor)
		}
	}
	for _, actor := range actors {
		explained, verdicts, _ := peek(context.Background(), r.Name, actor) // another rule than one of all clients has no such actor
		for i := range verdicts {
			if n := verdicts[i].Remaining; n != limit.Unknown && (r.Remaining == nil || n < *r.Remaining) {
				r.Remaining, r.RemainingActor = &n, explained[i].Key
			}
		}
	}
}
