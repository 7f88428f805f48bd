// SPDX-License-Identifier: MIT

package diana

import (
	"sync/atomic"
	"time"

	"github.com/diana-limiter/diana/internal/plan"
)

// warnEvery is how often at most a rule's overflow is logged.
const warnEvery = time.Minute

// part returns the part of a rule's tally in which this evaluation counts.
func (j *judgement) part(r *plan.Rule) *part {
	parts := j.active.enforced[r.Index].record.tally
	return &parts[j.nth&uint32(len(parts)-1)]
}

// overflowed counts a request that the overflow counter of a rule has judged, and logs that
// now and then: clients that have done nothing wrong are refused together with those that have.
func (j *judgement) overflowed(r *plan.Rule, now int64) {
	j.part(r).overflow.Add(1)
	if !due(&j.active.enforced[r.Index].record.warned, now) {
		return
	}
	j.limiter.options.Logger.Warn("new actors of a rule share one counter, because max_keys leaves no room for them: "+
		"raise max_keys, or count the rule by what a client cannot invent",
		"rule", r.Name, "max_keys", j.active.config.MaxKeys)
}

// due reports whether it is time for another warning, to one caller alone.
func due(last *atomic.Int64, now int64) bool {
	before := last.Load()
	return (before == 0 || now-before >= warnEvery.Microseconds()) && last.CompareAndSwap(before, now)
}
