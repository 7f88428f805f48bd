// SPDX-License-Identifier: MIT

package diana

// Idle reports whether no request waits in a queue.
func (l *Limiter) Idle() bool { return l.decider.Idle() }
