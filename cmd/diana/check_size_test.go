// SPDX-License-Identifier: MIT

//go:build unix

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strings"
	"syscall"
	"testing"

	"github.com/diana-limiter/diana/internal/race"
)

// hostileTexts returns texts of size bytes that need much memory, as attacks have found them.
func hostileTexts(size int) map[string]string {
	fill := func(begin, item, end string) string {
		var b strings.Builder
		b.WriteString(begin)
		for i := 100_000; b.Len() < size-len(item)-len(end); i++ {
			b.WriteString(strings.ReplaceAll(item, "#", fmt.Sprint(i)))
		}
		return b.String() + end
	}
	const anEntry = "- url: /api/v#/orders\n  rules:\n  - {rpu: 100, unit: minute, actor: account}\n"
	const aRule = "url: /\nrules:\n- rpu: 1\n  actor: account\n  "
	return map[string]string{
		"entries":          fill("limits:\n", anEntry, ""),
		"error at the end": fill("limits:\n", anEntry, "- a: b: c\n"),
		"except on a line": fill(aRule+"except: [", "v#,", "]"),
		"overrides on one": fill(aRule+"overrides: {", "v#: {rpu: 2}, ", "}"),
		"empty lists":      fill("[", "[],", "]"),
		"empty key":        fill(": [", "[],", "]"), // which no outline follows
		"comments":         fill("", "- # x\n  # y\n\n", ""),
		"tags":             fill("", "- !!str x\n", ""),
		"documents":        fill("", "---\n", ""),
	}
}

// A text of a configuration, valid or not, needs at most 30 times its size and 16 MiB of memory.
func TestCheckSize(t *testing.T) {
	t.Parallel()
	if race.Enabled {
		t.Skip("it has one goroutine, and runs without the race detector")
	}
	const size = 1 << 20
	file := filepath.Join(t.TempDir(), "diana.yaml")
	peak := func(text string) int64 {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		debug.FreeOSMemory() // because the peak of a child begins with that of the process that starts it
		_ = os.WriteFile("/proc/self/clear_refs", []byte("5"), 0)
		program := exec.Command("diana", "check", file)
		_ = program.Run()
		return program.ProcessState.SysUsage().(*syscall.Rusage).Maxrss << 10
	}
	idle := peak("url: /\nrules: [{rpu: 1}]\n")
	for name, text := range hostileTexts(size) {
		got := peak(text) - idle
		t.Logf("%s: %d MiB", name, got>>20)
		if got > 30*size+16<<20 {
			t.Errorf("%s: %d bytes need %d bytes of memory above idle", name, len(text), got)
		}
	}
}
