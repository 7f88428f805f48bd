// SPDX-License-Identifier: MIT

// Package decide evaluates one request: it finds the rules of the request, charges all of them or
// none, and holds a request that has to wait.
//
//	Decider.Take ─ Limits.Set.Find ─ the rules of the request
//	             ─ plain ─────────── a few plain local rules are taken in one call, and that is all; otherwise
//	             ─ Evaluation.fill ─ a charge for each rule, by store
//	             ─ Evaluation.ask ── the local store first; the other stores for what it allows
//	             ─ turn ──────────── a request over a limit with a wait joins a wait queue
//	             ─ Evaluation.wait ─ a leaky bucket's scheduled time
//	             ─ Evaluation.report  verdicts, tallies, notes of refusals
//
// A [Decider] outlives configurations: it has the local store, the wait queues and the tallies.
// [Limits] are one configuration, bound to the stores that count it.
package decide
