// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"time"

	"github.com/diana-limiter/diana/internal/testproc"
)

// What is measured of the gateway, through the network of this machine: wrk asks over 64
// connections, again and again, and each server is a process of its own. Besides what wrk
// sees there is the processor's time that the server has used, which says more where wrk
// and the upstream want the same cores.
//
// All write a line of a log for what they pass on, to nowhere, and none for what they
// refuse.

// The figures of this group, besides p50 and p99.
const (
	requestRate = "requests/s"
	serverTime  = "CPU/request" // of the server's process
)

// The names of those that targets speak of.
const (
	passedWorkload  = "a gateway passes on, 64 connections"
	refusedByServer = "a gateway refuses, 64 connections"

	dianaServe = "diana serve, 3 rules"
	plainProxy = "the same reverse proxy without Diana"
	bare503    = "bare handler that answers 503"
)

// httpSystem is one who is measured.
type httpSystem struct {
	workload string
	name     string
	kind     kind
	quick    bool // is part of a quick run
	command  commander

	server *httpServer
}

// httpSystems has those next to each other that a target compares.
func httpSystems() []*httpSystem {
	return []*httpSystem{
		{passedWorkload, dianaServe, diana, true, dianaCommand(rulesOf(1000, true)), nil},
		{passedWorkload, plainProxy, floor, true, ownCommand("proxy"), nil},
		{passedWorkload, "diana serve, no rules", diana, false, dianaCommand("limits: []\n"), nil},
		{passedWorkload, "nginx, 3 limit_req", rival, false, nginxCommand(nginxPasses), nil},
		{passedWorkload, "nginx without limit_req", floor, false, nginxCommand(nginxPlain), nil},

		{refusedByServer, dianaServe, diana, true, dianaCommand(refusingRules), nil},
		{refusedByServer, bare503, floor, true, ownCommand("503"), nil},
		{refusedByServer, dianaServe + ", no RateLimit fields", diana, false, dianaCommand("response: {headers: false}\n" + refusingRules), nil},
		{refusedByServer, "bare handler that sends Diana's answer", floor, false, likeDiana, nil},
		{refusedByServer, "nginx, 3 limit_req", rival, false, nginxCommand(nginxRefuses), nil},
	}
}

// refusingRules let a device do one request a day.
const refusingRules = "limits: [{url: /, rules: [{rpu: 1000000000}, {actor: ip, rpu: 1000000000}, {actor: device, unit: day, rpu: 1}]}]\n"

// gatewayPath is the path that is asked for, of which rulesOf has three rules.
var gatewayPath = fmt.Sprintf("/api/v%d/orders", urlAsked)

// gatewayNeeds finds the programs that this group takes, before anything is measured.
func gatewayNeeds(r *run) error {
	if _, err := exec.LookPath("wrk"); err != nil {
		return missing("wrk")
	}
	if !r.quick && nginxProgram() == "" {
		return missing("nginx")
	}
	return nil
}

func missing(program string) error {
	return fmt.Errorf("%s is missing: install it (Debian: apt-get install %[1]s)", program)
}

func measureGateway(ctx context.Context, r *run) error { return inYard(ctx, r.gateway) }

func (r *run) gateway(ctx context.Context, y *yard) error {
	r.report.Machine.Wrk = versionOf("wrk", "-v")
	if !r.quick {
		r.report.Machine.Nginx = versionOf(nginxProgram(), "-v")
	}
	r.note("  building diana")
	if err := y.prepare(ctx, "upstream"); err != nil {
		return err
	}
	systems, err := y.startAll(httpSystems(), r.quick)
	if err != nil {
		return err
	}
	if r.quick { // wrk knows no less than a second
		once := *r
		once.rounds = 1
		r = &once
	} else {
		r.note("  warming up")
		for _, s := range systems {
			if _, err := wrk(ctx, y, s); err != nil {
				return err
			}
		}
	}
	r.note("  %s, and %s", passedWorkload, refusedByServer)
	return r.interleave(ctx, len(systems), func(_, i int) error {
		s := systems[i]
		got, err := wrk(ctx, y, s)
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		m := r.row(s.workload, s.name, s.kind)
		m.add(requestRate, got.requests/got.took.Seconds())
		m.add(p50, got.p50.Seconds())
		m.add(p99, got.p99.Seconds())
		if got.cpu > 0 {
			m.add(serverTime, got.cpu/got.requests)
		}
		return nil
	})
}

// wrkResult is what came of a second.
type wrkResult struct {
	requests, refused float64
	took, p50, p99    time.Duration
	cpu               float64 // seconds of the server's
}

// wrkScript makes what wrk has found out easy to read.
const wrkScript = `
function done(summary, latency)
  local e = summary.errors
  print("result", summary.requests, e.status, e.connect + e.read + e.write + e.timeout,
    summary.duration, latency:percentile(50), latency:percentile(99))
end
`

// wrk asks a server for a second. It is an error if the server does not answer as it is
// meant to: what is quick then is not what was to be measured.
func wrk(ctx context.Context, y *yard, s *httpSystem) (got wrkResult, err error) {
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	before := processTime(s.server.PID)
	cmd := exec.CommandContext(ctx, "wrk", "-t1", "-c64", "-d1s", "-s", y.script,
		"-H", "X-Device-Id: 0a1b2c3d", "http://"+s.server.address+gatewayPath)
	out, err := cmd.Output()
	if err != nil {
		return got, fmt.Errorf("wrk: %w: %s", err, out)
	}
	got.cpu = processTime(s.server.PID) - before
	var broken float64
	if err := got.read(string(out), &broken); err != nil {
		return got, err
	}
	wrong := got.refused
	if s.workload == refusedByServer {
		wrong = got.requests - got.refused
	}
	if got.requests == 0 || wrong > got.requests/100 || broken > 0 {
		return got, fmt.Errorf("of %.0f requests %.0f were answered with an error, and %.0f not at all", got.requests, got.refused, broken)
	}
	return got, nil
}

// httpServer is a server that runs.
type httpServer struct {
	*testproc.Process
	address string
}

var errEnded = errors.New("it has ended")
