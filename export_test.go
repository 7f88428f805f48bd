// SPDX-License-Identifier: MIT

package diana

// MostWaiting is for tests.
const MostWaiting = mostWaiting

// Idle reports whether nobody stands in a line.
func (l *Limiter) Idle() bool {
	l.lines.mu.Lock()
	defer l.lines.mu.Unlock()
	return l.lines.some.Load() == 0 && len(l.lines.by) == 0
}
