// SPDX-License-Identifier: MIT

package measure

import (
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// pin keeps this thread on one core. A failure leaves slices in which two threads share a core, and those do
// not count.
func pin(thread int) {
	var set unix.CPUSet
	set.Set(thread % runtime.NumCPU())
	_ = unix.SchedSetaffinity(0, &set)
}

// suspensions returns how often the system has suspended this thread for another one.
func suspensions() int64 {
	var u unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_THREAD, &u) // never fails
	return u.Nivcsw
}

// OwnTime returns the processor time of this process.
func OwnTime() time.Duration {
	var u unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &u) // never fails
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
