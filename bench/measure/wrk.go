// SPDX-License-Identifier: MIT

package measure

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"time"
)

// Wrk is how the program wrk sends requests: on 64 connections, for a second.
type Wrk struct {
	Path   string
	Fields []string // such as "X-Device-Id: 0a1b2c3d"
	Script string   // further Lua
}

// wrkScript prints the result in one line.
const wrkScript = `
function done(summary, latency)
  local e = summary.errors
  print("result", summary.requests, e.status, e.connect + e.read + e.write + e.timeout,
    summary.duration, latency:percentile(50), latency:percentile(99))
end
`

// WrkResult is the result of one run of wrk.
type WrkResult struct {
	requests, refused float64
	broken            float64 // requests without an answer
	took, p50, p99    float64 // microseconds
	cpu               float64 // seconds of processor time of the server
}

// Send sends requests to a server. It returns an error if a request has no answer, or if more than one in a hundred
// is not refused or allowed as intended. Then the figures are of something else.
func (w *Wrk) Send(ctx context.Context, r *Run, y *Yard, s *Server, refused bool) (got WrkResult, err error) {
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	text := wrkScript + w.Script
	if r.Quick { // wrk sends for at least a second
		text += "function delay() return 50 end\n" // milliseconds, on each connection
	}
	script, err := y.File("wrk.lua", text)
	if err != nil {
		return got, err
	}
	args := []string{"-t1", "-c64", "-d1s", "-s", script}
	for _, field := range w.Fields {
		args = append(args, "-H", field)
	}
	before := s.Time()
	out, err := exec.CommandContext(ctx, "wrk", append(args, "http://"+s.Address+w.Path)...).Output()
	if err != nil {
		return got, fmt.Errorf("wrk: %w: %s", err, out)
	}
	got.cpu = s.Time() - before
	_, line, ok := strings.Cut(string(out), "result\t")
	if _, err := fmt.Sscan(line, &got.requests, &got.refused, &got.broken, &got.took, &got.p50, &got.p99); err != nil || !ok {
		return got, fmt.Errorf("wrk printed %q", out)
	}
	wrong := got.refused
	if refused {
		wrong = got.requests - got.refused
	}
	// A limit of one request allows the first. A quick run may end before a busy machine has sent any.
	if got.requests == 0 && !r.Quick || wrong > max(1, got.requests/100) || got.broken > 0 {
		return got, fmt.Errorf("of %.0f requests %.0f had an error status and %.0f had no answer", got.requests, got.refused, got.broken)
	}
	return got, nil
}

// AddTo adds the figures of the run to a row.
func (got *WrkResult) AddTo(m *Row, rate, p50, p99, cpu Figure) {
	m.Add(rate, got.requests/got.took*1e6)
	m.Add(p50, got.p50/1e6)
	m.Add(p99, got.p99/1e6)
	if got.cpu > 0 && got.requests > 0 {
		m.Add(cpu, got.cpu/got.requests)
	}
}
