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

// WaitsBefore reports whether a waiter stands still before it is in a line, when its memory
// was that of one who waited until so many microseconds.
func WaitsBefore(until int64) bool {
	var l lines
	w := &waiter{until: until}
	l.arrive(w, 1)
	wait, _ := l.position(w, 1)
	return wait > 0
}
