// SPDX-License-Identifier: MIT

package diana

import (
	"cmp"
	"context"

	"github.com/diana-limiter/diana/internal/plan"
)

// Prepared is a method and a path of a Limiter whose rules are found once for each configuration, and not for each
// request. It is for what a program does under few names: functions, jobs, methods of an RPC, queues. It is safe for
// concurrent use, and needs no end.
type Prepared struct {
	limiter *Limiter
	rules   plan.Prepared
}

// Prepare returns a Prepared for a method and a path, which are as in Request. The Limiter does not keep it. A program
// that takes methods or paths from its clients must not keep one for each of them, because they are without end.
func (l *Limiter) Prepare(method, path string) *Prepared {
	return &Prepared{l, plan.Prepared{Method: method, Path: path}}
}

// Take evaluates a request as [Limiter.Take] does. An empty Method or Path of r means that of p. A request that has
// another one, or several, is evaluated by the rules of its own.
func (p *Prepared) Take(ctx context.Context, r Request) (d Decision, err error) {
	r.Method, r.Path = cmp.Or(r.Method, p.rules.Method), cmp.Or(r.Path, p.rules.Path)
	err = p.limiter.takeInto(ctx, &d, &r, &p.rules)
	return d, err
}
