// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"fmt"

	"github.com/diana-limiter/diana/bench/measure"
	"github.com/diana-limiter/diana/bench/page"
	"github.com/diana-limiter/diana/bench/rivals"
)

// The group gateway measures servers over the loopback network. wrk sends requests on 64
// connections, and each server is a process of its own. The processor time of that process
// matters beside the rate, because wrk and the upstream use the same cores.
//
// Every server logs each forwarded request to /dev/null, and logs no refusal.

var (
	requestRate = measure.Figure{Name: "requests/s", Format: measure.PerSecondText, Better: measure.More}
	serverTime  = measure.Figure{Name: "CPU/request", Format: measure.SecondsText} // of the server's process
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
	return group{measure: measureGateway, Chapter: page.Chapter{
		Name: "gateway", Title: "As a gateway",
		Figures: []measure.Figure{requestRate, p50, p99, serverTime},
		Lines: []page.Line{
			page.Compare("requests/s forwarded", forwardWorkload, requestRate, dianaServe, plainProxy).Must("M3", page.RatioAtLeast(0.97)),
			page.Compare("requests/s refused", refuseWorkload, requestRate, dianaServe, bareCopy).Must("M3", page.RatioAtLeast(0.95)),
			page.Compare("the same", refuseWorkload, requestRate, dianaServe, bare503).Must("M3", page.RatioAtLeast(0.85)),
			page.Compare("requests/s refused, without fields", refuseWorkload, requestRate, dianaPlain, page.BestRival),
		},
	}}
}

// webSystem is a server to measure.
type webSystem struct {
	workload string
	name     string
	work     string // see measure.Row
	kind     measure.Kind
	refuses  bool
	command  measure.Command
	server   *measure.Server
}

// webLoad is what wrk sends to systems, and the figures of it.
type webLoad struct {
	measure.Wrk
	rate, cpu measure.Figure
}

// measure measures systems that a target compares next to each other. The first round warms up.
func (l *webLoad) measure(ctx context.Context, r *measure.Run, y *measure.Yard, systems []*webSystem) (err error) {
	if err := measure.Needs("wrk"); err != nil {
		return err
	}
	r.Origin.Machine.Wrk = measure.VersionOf("wrk")
	for _, s := range systems {
		if s.server, err = y.Start(s.command); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	r.Note("  %s", systems[0].workload)
	send := func(add bool) func(int, int) error {
		return func(_, i int) error {
			s := systems[i]
			got, err := l.Send(ctx, r, y, s.server, s.refuses)
			if err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
			if add {
				got.AddTo(r.Working(s.workload, s.name, s.work, s.kind), l.rate, p50, p99, l.cpu)
			}
			return nil
		}
	}
	if !r.Quick {
		if err := r.AtMost(1).Interleave(ctx, len(systems), send(false)); err != nil {
			return err
		}
	}
	return r.Interleave(ctx, len(systems), send(true))
}

// dianaCommand is the gateway with a configuration.
func dianaCommand(config string) measure.Command {
	return func(y *measure.Yard, address string) ([]string, error) {
		file, err := y.File("diana.yaml", config)
		return dianaArguments(y, address, file), err
	}
}

// dianaArguments starts the gateway with a configuration file.
func dianaArguments(y *measure.Yard, address, file string) []string {
	return []string{y.Diana, "serve", "--config", file, "--listen", address, "--admin", "127.0.0.1:0", "--upstream", y.Upstream}
}

// copyOf is a server that sends the same answer as another one, to an "allowed" or a "refused" request.
func copyOf(other measure.Command, path, decision string) measure.Command {
	return func(y *measure.Yard, address string) ([]string, error) {
		server, err := y.Start(other)
		if err != nil {
			return nil, err
		}
		return y.Own(decision, "http://"+server.Address+path)(y, address)
	}
}

// refusingRules allow a device one request a day.
const refusingRules = "limits: [{url: /, rules: [{rpu: 1000000000}, {actor: ip, rpu: 1000000000}, {actor: device, unit: day, rpu: 1}]}]\n"

func measureGateway(ctx context.Context, r *measure.Run) error {
	r.Origin.Machine.Nginx = measure.VersionOf(measure.Program("nginx"))
	return measure.InYard(ctx, r, "upstream", func(y *measure.Yard) error {
		load := webLoad{measure.Wrk{Path: rivals.PathAsked, Fields: []string{"X-Device-Id: 0a1b2c3d"}}, requestRate, serverTime}
		return load.measure(ctx, r, y, []*webSystem{
			{workload: forwardWorkload, name: dianaServe, kind: measure.Diana, command: dianaCommand(rulesOf(1000, plenty))},
			{workload: forwardWorkload, name: plainProxy, kind: measure.Floor, command: measure.Own("proxy")},
			{workload: forwardWorkload, name: "diana serve, no rules", work: "no rules", kind: measure.Diana, command: dianaCommand("limits: []\n")},
			{workload: forwardWorkload, name: nginxThree, kind: measure.Rival, command: rivals.Nginx(rivals.NginxForwards)},
			{workload: forwardWorkload, name: "nginx without limit_req", kind: measure.Floor, command: rivals.Nginx(rivals.NginxPlain)},

			{workload: refuseWorkload, name: dianaServe, kind: measure.Diana, refuses: true, command: dianaCommand(refusingRules)},
			{workload: refuseWorkload, name: bare503, kind: measure.Floor, refuses: true, command: measure.Own("503")},
			{workload: refuseWorkload, name: dianaPlain, kind: measure.Diana, refuses: true, command: dianaCommand("response: {headers: false}\n" + refusingRules)},
			{workload: refuseWorkload, name: bareCopy, kind: measure.Floor, refuses: true, command: copyOf(dianaCommand(refusingRules), rivals.PathAsked, "refused")},
			{workload: refuseWorkload, name: nginxThree, kind: measure.Rival, refuses: true, command: rivals.Nginx(rivals.NginxRefuses)},
		})
	})
}
