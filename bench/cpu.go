// SPDX-License-Identifier: MIT

package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// The processor's time, as Linux tells it in /proc, in hundredths of a second. Elsewhere
// there is none.

// processTime returns for how many seconds a process has kept processors busy; 0 if that
// is not known.
func processTime(pid int) float64 {
	times := processTimes(strconv.Itoa(pid))
	return times[0] + times[1]
}

// processTimes returns the time of a process, its own and in the kernel, and that of the
// children that have ended.
func processTimes(pid string) (seconds [4]float64) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%s/stat", pid))
	if err != nil {
		return seconds
	}
	// number (name) state ...
	_, rest, _ := strings.Cut(string(stat), ") ")
	fields := strings.Fields(rest)
	for i := range seconds {
		if 11+i < len(fields) {
			seconds[i], _ = hundredths(fields[11+i])
		}
	}
	return seconds
}

func hundredths(text string) (float64, error) {
	n, err := strconv.ParseFloat(text, 64)
	return n / 100, err
}

// spent is how busy a machine has been.
type spent struct{ all, busy, own float64 }

// machineTime returns how busy the machine has been since it was started, and this
// program with its children that have ended.
func machineTime() (s spent) {
	stat, err := os.ReadFile("/proc/stat")
	if err != nil {
		return s
	}
	line, _, _ := strings.Cut(string(stat), "\n")
	// cpu user nice system idle iowait irq softirq steal
	for i, field := range strings.Fields(line) {
		if v, err := hundredths(field); err == nil && 1 <= i && i <= 8 {
			s.all += v
			if i != 4 && i != 5 {
				s.busy += v
			}
		}
	}
	for _, v := range processTimes("self") {
		s.own += v
	}
	return s
}

// othersSince returns which part of the machine other programs have had since before,
// in per cent.
func (s spent) othersSince(before spent) float64 {
	if s.all <= before.all {
		return 0
	}
	others := (s.busy - before.busy) - (s.own - before.own)
	return 100 * max(others, 0) / (s.all - before.all)
}
