// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"fmt"
	"os/exec"
	"time"
)

// The group decisions measures servers that decide for another gateway, which asks them about each request:
//
//   - Envoy's rate limit service over gRPC. Callers share four connections, as the workers of an Envoy have
//     one connection each. A question has one descriptor, one of 10,000 addresses, which Redis counts.
//   - /check over HTTP, by wrk on 64 connections, with three local rules.
//
// Each server is a process of its own. No limit over gRPC is ever reached, because a refusal that is certain
// costs Diana no call of Redis.

var (
	callRate = figure{name: "calls/s", format: perSecondText, better: more}
	callTime = figure{name: "CPU/call", format: secondsText} // of the server's process
)

// The names that lines mention.
const (
	allowedCheck = "a gateway asks at /check, allowed"
	refusedCheck = "a gateway asks at /check, refused"

	dianaGRPC  = "diana serve --grpc"
	bareGRPC   = "bare gRPC server that answers OK"
	dianaCheck = "diana serve --check, 3 rules"
	bare200    = "bare handler that answers 200"
)

func grpcWorkload(callers int) string {
	return fmt.Sprintf("Envoy asks over gRPC, %d callers", callers)
}

// grpcCallers are the numbers of callers.
var grpcCallers = []int{4, 64}

func decisionsGroup() group {
	return group{
		name: "decisions", title: "Deciding for other gateways", measure: measureDecisions, needs: needsWrk,
		figures: []figure{callRate, p50, p99, callTime},
		lines:   decisionsLines(),
	}
}

func decisionsLines() (lines []line) {
	for _, n := range grpcCallers {
		workload := grpcWorkload(n)
		lines = append(lines,
			compare(fmt.Sprintf("calls/s over gRPC, %d callers", n), workload, callRate, dianaGRPC, envoyExact).must("D1", ratioAtLeast(2.5)),
			compare("the same", workload, callRate, dianaGRPC, bareGRPC).must("D1", ratioAtLeast(0.75)),
			compare("the same: p99", workload, p99, dianaGRPC, envoyExact).must("D1", ratioAtLeast(2)),
			compare("the same: processor a call", workload, callTime, dianaGRPC, envoyExact),
		)
	}
	return append(lines,
		compare("questions/s at /check, allowed", allowedCheck, callRate, dianaCheck, bare200).must("D1", ratioAtLeast(0.85)),
		compare("questions/s at /check, refused", refusedCheck, callRate, dianaCheck, bare200).must("D1", ratioAtLeast(0.85)),
		compare("the same", refusedCheck, callRate, dianaCheck, bareCopy),
	)
}

// needsWrk returns an error if wrk is missing.
func needsWrk(*run) error {
	if _, err := exec.LookPath("wrk"); err != nil {
		return missing("wrk")
	}
	return nil
}

func measureDecisions(ctx context.Context, r *run) error {
	return inYard(ctx, r, func(ctx context.Context, r *run, y *yard) error {
		r.origin.Machine.Wrk = versionOf("wrk")
		r.note("  building diana")
		if err := y.prepare(ctx, "upstream"); err != nil {
			return err
		}
		if err := measureGRPC(ctx, r, y); err != nil {
			return err
		}
		return measureCheck(ctx, r, y)
	})
}

// checkFields are the fields by which a gateway names the request.
var checkFields = []string{
	"X-Forwarded-Method: GET", "X-Forwarded-Uri: " + gatewayPath + "?page=2", "X-Forwarded-Host: shop.example",
	"X-Forwarded-For: 192.0.2.7", "X-Device-Id: 0a1b2c3d",
}

// questionRules allow a client the given number of requests a day.
func questionRules(rpu int) commander {
	return func(y *yard, address string) ([]string, error) {
		file, err := y.file("check.yaml", fmt.Sprintf("limits: [{url: /, rules: [{rpu: 1000000000}, "+
			"{actor: device, rpu: 1000000000}, {actor: ip, unit: day, rpu: %d}]}]\n", rpu))
		return []string{y.diana, "serve", "--config", file, "--check", address, "--admin", "127.0.0.1:0"}, err
	}
}

// copyCheck is a server that sends the refusal of Diana.
func copyCheck(y *yard, address string) ([]string, error) {
	server, err := y.start(questionRules(1))
	if err != nil {
		return nil, err
	}
	return []string{y.self, serverCommand, address, "copy", "http://" + server.address + "/check"}, nil
}

func checkSystems() []*httpSystem {
	return []*httpSystem{
		{allowedCheck, dianaCheck, "", diana, true, questionRules(1_000_000_000), nil},
		{allowedCheck, bare200, "", floor, true, ownCommand("200"), nil},
		{refusedCheck, dianaCheck, "", diana, true, questionRules(1), nil},
		{refusedCheck, bareCopy, "", floor, false, copyCheck, nil},
		{refusedCheck, bare200, "", floor, true, ownCommand("200"), nil},
	}
}

func measureCheck(ctx context.Context, r *run, y *yard) error {
	systems, err := y.startAll(checkSystems(), r.quick)
	if err != nil {
		return err
	}
	r.note("  %s, and %s", allowedCheck, refusedCheck)
	return r.interleave(ctx, len(systems), func(round, i int) error {
		s := systems[i]
		if round == 0 && !r.quick { // warm up
			if _, err := y.wrk(ctx, s.server, "/check", checkFields...); err != nil {
				return err
			}
		}
		got, err := y.wrk(ctx, s.server, "/check", checkFields...)
		if err == nil {
			err = got.as(s.workload == refusedCheck && s.name != bare200)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		addCalls(r.working(s.workload, s.name, s.work, s.kind), got.requests, got.took, got.p50, got.p99, got.cpu)
		return nil
	})
}

// addCalls adds what n calls took. cpu is seconds of the server's processor, or 0 if it is unknown.
func addCalls(m *row, n float64, took, half, most time.Duration, cpu float64) {
	m.add(callRate, n/took.Seconds())
	m.add(p50, half.Seconds())
	m.add(p99, most.Seconds())
	if cpu > 0 {
		m.add(callTime, cpu/n)
	}
}
