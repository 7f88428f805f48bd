// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"fmt"
	"io"
	"net/http"

	"github.com/diana-limiter/diana/bench/measure"
	"github.com/diana-limiter/diana/bench/page"
	"github.com/diana-limiter/diana/bench/rivals"
)

// The group console measures what the console costs a gateway with 10,000 rules, whose requests come from 100,000
// devices: its memory of recent requests, and one open page. A page is a client that reads the stream of the view
// Live. It runs while its gateway is measured, and at no other time.

const (
	consoleWorkload = "a gateway with 10,000 rules forwards for 100,000 devices"

	dianaForgets = "diana serve --recent 0"
	dianaRecalls = "diana serve"
	dianaShown   = "diana serve, one page is open"
)

func consoleGroup() group {
	return group{measure: measureConsole, Chapter: page.Chapter{
		Name: "console", Title: "The console",
		Figures: []measure.Figure{requestRate, p50, p99, serverTime},
		Lines: []page.Line{
			page.Compare("requests/s with a memory of recent requests", consoleWorkload, requestRate, dianaRecalls, dianaForgets).Must("O1", page.RatioAtLeast(0.99)),
			page.Compare("the same: processor a request", consoleWorkload, serverTime, dianaRecalls, dianaForgets),
			page.Compare("requests/s with an open page", consoleWorkload, requestRate, dianaShown, dianaRecalls).Must("O1", page.RatioAtLeast(0.98)),
			page.Compare("the same: processor a request", consoleWorkload, serverTime, dianaShown, dianaRecalls),
		},
	}}
}

// consoleScript has each request come from one of 100,000 devices.
const consoleScript = `
local devices = {}
for i = 1, 100000 do devices[i] = string.format("%08x", i * 2654435 % 4294967296) end
function request()
  return wrk.format("GET", nil, {["X-Device-Id"] = devices[math.random(#devices)]})
end
`

func measureConsole(ctx context.Context, r *measure.Run) error {
	return measure.InYard(ctx, r, "upstream", func(y *measure.Yard) error {
		admin, config := y.FreeAddress(), rulesOf(10_000, plenty)
		load := webLoad{
			Wrk: measure.Wrk{Path: rivals.PathAsked, Script: consoleScript}, rate: requestRate, cpu: serverTime,
			warm:  10, // so that the memories of requests are full
			slots: 4,  // because the differences are small
		}
		return load.measure(ctx, r, y, []*webSystem{
			{workload: consoleWorkload, name: dianaForgets, kind: measure.Diana, quick: true, command: dianaCommand(config, "--recent", "0")},
			{workload: consoleWorkload, name: dianaRecalls, kind: measure.Diana, quick: true, command: dianaCommand(config)},
			{workload: consoleWorkload, name: dianaShown, kind: measure.Diana, quick: true, command: dianaCommand(config, "--admin", admin), page: func(ctx context.Context) (io.ReadCloser, error) {
				return openPage(ctx, admin)
			}},
		})
	})
}

// openPage opens the stream that the page reads.
func openPage(ctx context.Context, admin string) (io.ReadCloser, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+admin+"/api/v1/live/stream?rules=50", nil)
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
