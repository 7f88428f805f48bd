// SPDX-License-Identifier: MIT

//go:build unix

package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"syscall"
	"testing"
	"time"

	"github.com/diana-limiter/diana/cmd/diana/internal/simulate"
	"github.com/diana-limiter/diana/internal/race"
)

var replaySize = flag.Int64("replaysize", 2, "MiB of the log that TestReplaySize makes, in each form")

const replayRules = `
limits:
- url: /
  rules:
  - {name: everyone, rpu: 400, burst: 1000}
  - {name: address, actor: ip, rpu: 120, unit: minute, algo: SW}
  - {name: device, actor: device, rpu: 60, unit: minute}
- url: /sample
  rules: [{name: sample, actor: ip, rpu: 10, unit: 10s, algo: W}]
- url: POST /login
  rules: [{name: logins, actor: ip, rpu: 5, unit: minute}]
`

// diana replay reads a log of any size once, in little memory. With -replaysize 1024 -v the test
// prints how long a gigabyte takes.
func TestReplaySize(t *testing.T) {
	t.Parallel()
	if race.Enabled {
		t.Skip("it has one goroutine, and runs without the race detector")
	}
	dir := t.TempDir()
	config := filepath.Join(dir, "diana.yaml")
	if err := os.WriteFile(config, []byte(replayRules), 0o644); err != nil {
		t.Fatal(err)
	}
	for name, line := range map[string]func(*madeRequest) string{"combined": (*madeRequest).combined, "JSON": (*madeRequest).json} {
		file := filepath.Join(dir, name)
		f, err := os.Create(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := newMadeLog(1, 15*time.Millisecond).write(f, *replaySize<<20, line); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		program := exec.Command("diana", "replay", "--json", "--config", config, file)
		var out, errs bytes.Buffer
		program.Stdout, program.Stderr = &out, &errs
		debug.FreeOSMemory() // because the peak of a child begins with that of the process that starts it
		_ = os.WriteFile("/proc/self/clear_refs", []byte("5"), 0)
		begin := time.Now()
		if err := program.Run(); err != nil {
			t.Fatal(err, errs.String())
		}
		took := time.Since(begin)
		var r simulate.Report
		if err := json.Unmarshal(out.Bytes(), &r); err != nil {
			t.Fatal(err)
		}
		if int(r.Requests) != r.Files[0].Lines || r.Config.Refused == 0 || r.Files[0].Late > 0 {
			t.Errorf("%s: %d requests in %+v, %d refused", name, r.Requests, r.Files, r.Config.Refused)
		}
		peak := program.ProcessState.SysUsage().(*syscall.Rusage).Maxrss >> 10
		t.Logf("%s: %d lines in %v: %.0f lines/s, %.0f MiB/s; CPU %v; at most %d MiB of memory; %d refused, %d actors counted under %d rules",
			name, r.Requests, took, float64(r.Requests)/took.Seconds(), float64(*replaySize)/took.Seconds(),
			program.ProcessState.UserTime()+program.ProcessState.SystemTime(), peak, r.Config.Refused, len(r.Config.Rules[1].Most), len(r.Config.Rules))
		if peak > 256 {
			t.Errorf("%s: %d MiB of memory", name, peak)
		}
		_ = os.Remove(file)
	}
}
