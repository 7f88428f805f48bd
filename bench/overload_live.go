// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/diana-limiter/diana/bench/measure"
	"github.com/diana-limiter/diana/bench/page"
)

// The group live confirms the simulator of the group overload: diana serve in front of an upstream whose servers are
// timers, so they take no processor. Arrivals, priorities and clients are those of the simulator. A client leaves when
// its answer is too late to count, and the upstream works on. It takes seven minutes, so it runs only by its name.

// liveUpstream is an upstream of timers.
type liveUpstream struct {
	servers int
	mean    time.Duration
}

func liveUpstreams() []liveUpstream {
	return []liveUpstream{{4, 20 * time.Millisecond}, {16, 40 * time.Millisecond}, {64, 160 * time.Millisecond}}
}

func (u *liveUpstream) workload(load float64) string {
	return fmt.Sprintf("live, %d servers, %g x", u.servers, load)
}

const liveName = "live"

func liveGroup() group {
	return group{measure: measureLive, Chapter: page.Chapter{Name: liveName, Figures: overloadFigures}}
}

func measureLive(ctx context.Context, r *measure.Run) error {
	return measure.InYard(ctx, r, "upstream", func(y *measure.Yard) error {
		upstreams, loads := liveUpstreams(), []float64{0.5, 1, 2, 5}
		if r.Quick {
			upstreams, loads = upstreams[1:2], loads[2:3]
		}
		for _, u := range upstreams {
			rules := []struct {
				name, rules string
				kind        measure.Kind
			}{
				{adaptiveDiana, adaptiveRules, measure.Diana},
				{"nothing", "limits: []\n", measure.Floor},
			}
			for _, load := range loads {
				for _, s := range rules {
					o, err := u.run(ctx, r, y, s.rules, load)
					if err != nil {
						return fmt.Errorf("%s, %s: %w", u.workload(load), s.name, err)
					}
					addOutcome(r.Row(u.workload(load), s.name, s.kind), o)
				}
			}
		}
		return nil
	})
}

// run sends requests through a new gateway with these rules, to a new upstream.
func (u *liveUpstream) run(ctx context.Context, r *measure.Run, y *measure.Yard, rules string, load float64) (outcome, error) {
	servers := make(chan struct{}, u.servers)
	h := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		servers <- struct{}{} // in the order of arrival
		time.Sleep(time.Duration(rand.ExpFloat64() * float64(u.mean)))
		<-servers
	})
	behind := http.Server{Addr: y.FreeAddress(), Handler: h}
	go func() { _ = behind.ListenAndServe() }() // a failure is one of the requests too
	defer func() { _ = behind.Close() }()       // nothing is lost
	y.Upstream = "http://" + behind.Addr
	gateway, err := y.Start(dianaCommand(rules))
	if err != nil {
		return outcome{}, err
	}
	defer gateway.Kill() //nolint:errcheck // it ends with this program
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 4096}}
	defer client.CloseIdleConnections()

	w := &overload{load: load}
	capacity, unloaded, span := float64(u.servers)/u.mean.Seconds(), time.Duration(4.6*float64(u.mean)), r.Span(12*time.Second) // ln 100, as in the simulator
	var all sync.WaitGroup
	var seen tally
	w.arrive(rand.New(rand.NewPCG(1, 1)), load*capacity, span, func(at time.Duration, priority, account int) {
		all.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, 3*unloaded)
			defer cancel()
			ask, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+gateway.Address, nil)
			if err != nil {
				panic(err) // the address is one of this machine
			}
			ask.Header.Set("X-Priority", strconv.Itoa(priority))
			ask.Header.Set("X-Account-Id", strconv.Itoa(account))
			sent := time.Now()
			answer, err := client.Do(ask)
			status := 0
			if err == nil {
				_, err = io.Copy(io.Discard, answer.Body)
				_ = answer.Body.Close() // nothing is lost
				status = answer.StatusCode
			}
			seen.Lock()
			defer seen.Unlock()
			if at < span/3 {
				return
			}
			seen.came++
			switch {
			case status == http.StatusServiceUnavailable:
				seen.refused++
			case err == nil && status == http.StatusOK:
				seen.inTime++
			}
			if latency := time.Since(sent); priority == 0 && status != http.StatusServiceUnavailable {
				seen.first = append(seen.first, latency)
			}
		})
	})
	all.Wait()
	return seen.outcome(capacity*(span*2/3).Seconds(), unloaded), nil
}
