// SPDX-License-Identifier: MIT

package measure

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// Machine is what the figures depend on.
type Machine struct {
	CPU   string `json:"cpu"`
	Cores int    `json:"cores"`
	OS    string `json:"os"`
	Go    string `json:"go"`
	Redis string `json:"redis,omitempty"`
	Wrk   string `json:"wrk,omitempty"`
	Nginx string `json:"nginx,omitempty"`

	// Others is the share of the cores that programs outside the run used, in per cent.
	// It is 0 if the system does not say.
	Others float64 `json:"others,omitempty"`
}

// ThisMachine returns what it can find out about the machine.
func ThisMachine() Machine {
	m := Machine{CPU: runtime.GOARCH, Cores: runtime.NumCPU(), OS: runtime.GOOS, Go: runtime.Version()}
	info, _ := os.ReadFile("/proc/cpuinfo") // only Linux has it
	if _, name, ok := strings.Cut(string(info), "\nmodel name"); ok {
		name, _, _ = strings.Cut(name, "\n")
		m.CPU = strings.TrimLeft(name, "\t :")
	}
	return m
}

// Revision returns the revision of Diana, or "" outside of a Git repository.
func Revision() string {
	out, err := exec.Command("git", "describe", "--always", "--dirty").Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}

// VersionOf returns the version that a program prints with -v in its first line: the word with a dot.
func VersionOf(program string) string {
	out, _ := exec.Command(program, "-v").CombinedOutput() // wrk prints its version and fails
	line, _, _ := strings.Cut(string(out), "\n")
	for _, word := range strings.Fields(line) {
		if strings.Contains(word, ".") {
			return word
		}
	}
	return ""
}

// Linux reports processor time in /proc, in hundredths of a second. On other systems every
// processor time is 0.

// ProcessTime returns the processor time of a process in seconds.
func ProcessTime(pid int) float64 {
	times := processTimes(strconv.Itoa(pid))
	return times[0] + times[1]
}

// MainThreadTime returns the processor time of the main thread of a process, in nanoseconds instead of hundredths of a
// second, or 0 if the system does not tell.
func MainThreadTime(pid int) (t time.Duration) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/schedstat", pid))
	if err != nil {
		return 0
	}
	if _, err := fmt.Sscan(string(stat), &t); err != nil {
		return 0
	}
	return t
}

// processTimes returns the time of a process in its own code and in the kernel, and then the
// same of its children that have ended.
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

// Spent is how busy a machine has been.
type Spent struct{ all, busy, own float64 }

// MachineTime returns the processor time since the machine started: all of it, the busy part,
// and the part of this program with its children that have ended.
func MachineTime() (s Spent) {
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

// OthersSince returns the share of the machine that other programs used since before, in per
// cent.
func (s Spent) OthersSince(before Spent) float64 {
	if s.all <= before.all {
		return 0
	}
	others := (s.busy - before.busy) - (s.own - before.own)
	return 100 * max(others, 0) / (s.all - before.all)
}
