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

// The group gateway measures servers over the loopback network. wrk sends requests on 64
// connections, and each server is a process of its own. The processor time of that process
// matters beside the rate, because wrk and the upstream use the same cores.
//
// Every server logs each forwarded request to /dev/null, and logs no refusal.

var (
	requestRate = figure{name: "requests/s", format: perSecondText, better: more}
	serverTime  = figure{name: "CPU/request", format: secondsText} // of the server's process
)

// The names that lines mention.
const (
	forwardWorkload = "a gateway forwards, 64 connections"
	refuseWorkload  = "a gateway refuses, 64 connections"

	dianaServe = "diana serve, 3 rules"
	dianaPlain = dianaServe + ", no RateLimit fields"
	plainProxy = "the same reverse proxy without Diana"
	bare503    = "bare handler that answers 503"
	bareCopy   = "bare handler that sends Diana's answer"
	nginxThree = "nginx, 3 limit_req"
)

func gatewayGroup() group {
	return group{
		name: "gateway", title: "As a gateway", measure: measureGateway, needs: gatewayNeeds,
		figures: []figure{requestRate, p50, p99, serverTime},
		lines: []line{
			compare("requests/s forwarded", forwardWorkload, requestRate, dianaServe, plainProxy).must("M3", ratioAtLeast(0.97)),
			compare("requests/s refused", refuseWorkload, requestRate, dianaServe, bareCopy).must("M3", ratioAtLeast(0.95)),
			compare("the same", refuseWorkload, requestRate, dianaServe, bare503).must("M3", ratioAtLeast(0.85)),
			compare("requests/s refused, without fields", refuseWorkload, requestRate, dianaPlain, bestRival),
		},
	}
}

// httpSystem is a server to measure.
type httpSystem struct {
	workload string
	name     string
	work     string // see row
	kind     kind
	quick    bool // belongs to a quick run
	command  commander

	server *httpServer
}

// httpSystems lists systems that a target compares next to each other.
func httpSystems() []*httpSystem {
	return []*httpSystem{
		{forwardWorkload, dianaServe, "", diana, true, dianaCommand(rulesOf(1000, true, plenty)), nil},
		{forwardWorkload, plainProxy, "", floor, true, ownCommand("proxy"), nil},
		{forwardWorkload, "diana serve, no rules", "no rules", diana, false, dianaCommand("limits: []\n"), nil},
		{forwardWorkload, nginxThree, "", rival, false, nginxCommand(nginxForwards), nil},
		{forwardWorkload, "nginx without limit_req", "", floor, false, nginxCommand(nginxPlain), nil},

		{refuseWorkload, dianaServe, "", diana, true, dianaCommand(refusingRules), nil},
		{refuseWorkload, bare503, "", floor, true, ownCommand("503"), nil},
		{refuseWorkload, dianaPlain, "", diana, false, dianaCommand("response: {headers: false}\n" + refusingRules), nil},
		{refuseWorkload, bareCopy, "", floor, false, likeDiana, nil},
		{refuseWorkload, nginxThree, "", rival, false, nginxCommand(nginxRefuses), nil},
	}
}

// refusingRules allow a device one request a day.
const refusingRules = "limits: [{url: /, rules: [{rpu: 1000000000}, {actor: ip, rpu: 1000000000}, {actor: device, unit: day, rpu: 1}]}]\n"

// gatewayPath is the path of all requests. In rulesOf it has three rules.
var gatewayPath = fmt.Sprintf("/api/v%d/orders", urlAsked)

// gatewayNeeds returns an error if a program of this group is missing.
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

func measureGateway(ctx context.Context, r *run) error { return inYard(ctx, r, gatewaysIn) }

func gatewaysIn(ctx context.Context, r *run, y *yard) error {
	r.origin.Machine.Wrk = versionOf("wrk")
	if !r.quick {
		r.origin.Machine.Nginx = versionOf(nginxProgram())
	}
	r.note("  building diana")
	if err := y.prepare(ctx, "upstream"); err != nil {
		return err
	}
	systems, err := y.startAll(httpSystems(), r.quick)
	if err != nil {
		return err
	}
	if !r.quick {
		r.note("  warming up")
		for _, s := range systems {
			if _, err := wrk(ctx, y, s); err != nil {
				return err
			}
		}
	}
	r.note("  %s, and %s", forwardWorkload, refuseWorkload)
	return r.interleave(ctx, len(systems), func(_, i int) error {
		s := systems[i]
		got, err := wrk(ctx, y, s)
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		m := r.working(s.workload, s.name, s.work, s.kind)
		got.addTo(m)
		return nil
	})
}

// wrkResult is the result of one run of wrk.
type wrkResult struct {
	requests, refused float64
	broken            float64 // requests without an answer
	took, p50, p99    time.Duration
	cpu               float64 // seconds of processor time of the server
}

// addTo adds the figures of the run to a row.
func (got *wrkResult) addTo(m *row) {
	m.add(requestRate, got.requests/got.took.Seconds())
	m.add(p50, got.p50.Seconds())
	m.add(p99, got.p99.Seconds())
	if got.cpu > 0 {
		m.add(serverTime, got.cpu/got.requests)
	}
}

// wrkScript prints the result in one line.
const wrkScript = `
function done(summary, latency)
  local e = summary.errors
  print("result", summary.requests, e.status, e.connect + e.read + e.write + e.timeout,
    summary.duration, latency:percentile(50), latency:percentile(99))
end
`

// wrk sends requests to a server for a second. It returns an error if the server does not answer
// as intended, because then the figures are of something else.
func wrk(ctx context.Context, y *yard, s *httpSystem) (wrkResult, error) {
	got, err := y.wrk(ctx, s.server, gatewayPath, "X-Device-Id: 0a1b2c3d")
	if err == nil {
		err = got.as(s.workload == refuseWorkload)
	}
	return got, err
}

// wrk sends requests with some header fields to a server for a second, on 64 connections.
func (y *yard) wrk(ctx context.Context, s *httpServer, path string, fields ...string) (got wrkResult, err error) {
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	args := []string{"-t1", "-c64", "-d1s", "-s", y.script}
	for _, field := range fields {
		args = append(args, "-H", field)
	}
	before := processTime(s.PID)
	out, err := exec.CommandContext(ctx, "wrk", append(args, "http://"+s.address+path)...).Output()
	if err != nil {
		return got, fmt.Errorf("wrk: %w: %s", err, out)
	}
	got.cpu = processTime(s.PID) - before
	return got, got.read(string(out))
}

// as returns an error if the server has not answered all requests, or not as intended but for one in a
// hundred.
func (got *wrkResult) as(refused bool) error {
	wrong := got.refused
	if refused {
		wrong = got.requests - got.refused
	}
	if got.requests == 0 || wrong > got.requests/100 || got.broken > 0 {
		return fmt.Errorf("of %.0f requests %.0f had an error status and %.0f had no answer", got.requests, got.refused, got.broken)
	}
	return nil
}

// httpServer is a running server.
type httpServer struct {
	*testproc.Process
	address string
}

var errEnded = errors.New("the process has ended")
