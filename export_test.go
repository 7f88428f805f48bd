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
	var l lines // its waiter enters no room
	w := &waiter{until: until}
	l.arrive(w, 1)
	wait, _ := l.position(w, 1)
	return wait > 0
}

// WaitRoom is the account of those who wait.
type WaitRoom struct{ room waitRoom }

// NewWaitRoom returns an empty WaitRoom.
func NewWaitRoom() *WaitRoom { return &WaitRoom{} }

// Divide is waitRoom.divide.
func (w *WaitRoom) Divide(counters map[string]bool) { w.room.divide(counters) }

// Enter is waitRoom.enter.
func (w *WaitRoom) Enter(counters string) bool { return w.room.enter(counters) }

// Leave is waitRoom.leave.
func (w *WaitRoom) Leave(counters string) { w.room.leave(counters) }

// Used returns how many wait, how many of them in places for any rule, and under how many rules.
func (w *WaitRoom) Used() [3]int { return [3]int{w.room.waiting, w.room.shared, len(w.room.by)} }
