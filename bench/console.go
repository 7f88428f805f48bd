// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
)

// The group console measures what the console costs a gateway with 10,000 rules, whose requests come from 100,000
// devices: its memory of recent requests, and one open page. A page is a client that reads the stream of the view
// Live. It runs while its gateway is measured, and at no other time.

const (
	consoleWorkload = "a gateway with 10,000 rules forwards for 100,000 devices"

	dianaForgets = "diana serve --recent 0"
	dianaRecalls = "diana serve"
	dianaShown   = "diana serve, one page is open"

	consoleSlots = 4 // of a second for each system in a round, because the differences are small
)

func consoleGroup() group {
	return group{
		name: "console", title: "The console", measure: measureConsole, needs: needsWrk,
		figures: []figure{requestRate, p50, p99, serverTime},
		lines: []line{
			compare("requests/s with a memory of recent requests", consoleWorkload, requestRate, dianaRecalls, dianaForgets).must("O1", ratioAtLeast(0.99)),
			compare("the same: processor a request", consoleWorkload, serverTime, dianaRecalls, dianaForgets),
			compare("requests/s with an open page", consoleWorkload, requestRate, dianaShown, dianaRecalls).must("O1", ratioAtLeast(0.98)),
			compare("the same: processor a request", consoleWorkload, serverTime, dianaShown, dianaRecalls),
		},
	}
}

// consoleScript has each request come from one of 100,000 devices.
const consoleScript = wrkScript + `
local devices = {}
for i = 1, 100000 do devices[i] = string.format("%08x", i * 2654435 % 4294967296) end
function request()
  return wrk.format("GET", nil, {["X-Device-Id"] = devices[math.random(#devices)]})
end
`

// consoleSystem is a gateway to measure.
type consoleSystem struct {
	name   string
	kind   kind
	flags  []string
	page   bool
	admin  string
	server *httpServer
}

func measureConsole(ctx context.Context, r *run) error { return inYard(ctx, r, consolesIn) }

func consolesIn(ctx context.Context, r *run, y *yard) error {
	r.origin.Machine.Wrk = versionOf("wrk")
	r.note("  building diana")
	if err := y.prepare(ctx, "upstream"); err != nil {
		return err
	}
	var err error
	if y.script, err = y.file("devices.lua", consoleScript); err != nil {
		return err
	}
	config, err := y.file("diana.yaml", rulesOf(10_000, true, plenty))
	if err != nil {
		return err
	}
	systems := []*consoleSystem{
		{name: dianaForgets, kind: diana, flags: []string{"--recent", "0"}},
		{name: dianaRecalls, kind: diana},
		{name: dianaShown, kind: diana, page: true},
	}
	for _, s := range systems {
		s.admin = y.freeAddress()
		s.server, err = y.start(func(y *yard, address string) ([]string, error) {
			return append(dianaArguments(y, address, config), append(s.flags, "--admin", s.admin)...), nil
		})
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	if !r.quick {
		r.note("  warming up, so that the memories of requests are full")
		for _, s := range systems {
			for range 10 {
				if _, err := y.wrk(ctx, s.server, gatewayPath); err != nil {
					return err
				}
			}
		}
	}
	r.note("  %s", consoleWorkload)
	return r.interleave(ctx, len(systems)*r.count(consoleSlots, 1), func(_, i int) error {
		s := systems[i%len(systems)]
		got, err := s.measure(ctx, y)
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		m := r.row(consoleWorkload, s.name, s.kind)
		got.addTo(m)
		return nil
	})
}

// measure sends requests for a second, while the page is open if the system has one.
func (s *consoleSystem) measure(ctx context.Context, y *yard) (got wrkResult, err error) {
	if s.page {
		page, err := s.open(ctx)
		if err != nil {
			return got, err
		}
		defer func() { _ = page.Close() }() // nothing is lost
		go func() { _, _ = io.Copy(io.Discard, page) }()
	}
	if got, err = y.wrk(ctx, s.server, gatewayPath); err == nil {
		err = got.as(false)
	}
	return got, err
}

// open opens the stream that the page reads.
func (s *consoleSystem) open(ctx context.Context) (io.ReadCloser, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.admin+"/api/v1/live/stream?rules=50", nil)
	if err != nil {
		return nil, err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	if answer.StatusCode != http.StatusOK {
		_ = answer.Body.Close() // nothing is lost
		return nil, fmt.Errorf("the stream of the page: %s", answer.Status)
	}
	return answer.Body, nil
}
