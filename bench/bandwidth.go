// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"time"
)

// What it costs to send slowly: a thousand clients ask at the same moment for an answer of a
// megabyte each, which is sent at 100,000 bytes a second. Each server is a process of its
// own, whose processor's time is set against the time that the answers take.

const (
	slowRate = 100_000 // bytes a second

	coreShare = "of a core" // that the server has kept busy, in per cent

	slowedWorkload = "1,000 answers of 1 MB at once, at 100 kB a second each"
	slowedHandler  = "Diana's Handler"
	slowedServe    = "diana serve"
)

func slowedSystems() []*httpSystem {
	slowed := fmt.Sprintf("limits: [{url: /, bandwidth: %dk}]\n", slowRate/1000)
	return []*httpSystem{
		{slowedWorkload, slowedHandler, diana, true, slowedCommand(slowed), nil},
		{slowedWorkload, slowedServe, diana, false, dianaCommand(slowed), nil},
		{slowedWorkload, "nginx, limit_rate", rival, false, nginxCommand(fmt.Sprintf("%s proxy_max_temp_file_size 0; limit_rate %d;", nginxPlain, slowRate)), nil},
	}
}

// slowedCommand is a server of this program with a configuration of Diana in front.
func slowedCommand(config string) commander {
	return func(y *yard, address string) ([]string, error) {
		file, err := y.file("diana.yaml", config)
		return []string{y.self, serverCommand, address, "bytes", file}, err
	}
}

func bandwidthNeeds(r *run) error {
	if !r.quick && nginxProgram() == "" {
		return missing("nginx")
	}
	return nil
}

func measureBandwidth(ctx context.Context, r *run) error { return inYard(ctx, r.bandwidth) }

func (r *run) bandwidth(ctx context.Context, y *yard) error {
	if err := y.prepare(ctx, "bytes"); err != nil {
		return err
	}
	systems, err := y.startAll(slowedSystems(), r.quick)
	if err != nil {
		return err
	}
	if r.quick { // an answer takes seconds
		once := *r
		once.rounds = 1
		r = &once
	}
	r.note("  %s", slowedWorkload)
	clients, size := r.count(1000, 1000), r.count(1_000_000, 150_000)
	return r.interleave(ctx, len(systems), func(_, i int) error {
		s := systems[i]
		before := processTime(s.server.PID)
		times, err := fetchAtOnce(ctx, "http://"+s.server.address+gatewayPath, clients, size)
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		m := r.row(s.workload, s.name, s.kind)
		m.add(p50, times[len(times)/2].Seconds())
		m.add(slowest, times[len(times)-1].Seconds())
		if busy := processTime(s.server.PID) - before; busy > 0 {
			m.add(coreShare, 100*busy/times[len(times)-1].Seconds())
		}
		return nil
	})
}

// fetchAtOnce has so many clients ask at once for an answer of so many bytes, each over a
// connection of its own, and returns how long they took, in order.
func fetchAtOnce(ctx context.Context, address string, clients, size int) ([]time.Duration, error) {
	transport := &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: clients}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, Timeout: time.Minute}
	fetch := func() error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, address+"?"+url.Values{"bytes": {strconv.Itoa(size)}}.Encode(), nil)
		if err != nil {
			return err
		}
		answer, err := client.Do(request)
		if err != nil {
			return err
		}
		n, err := io.Copy(io.Discard, answer.Body)
		if err == nil && (answer.StatusCode != http.StatusOK || n != int64(size)) {
			err = fmt.Errorf("status %d and %d bytes, expected 200 and %d", answer.StatusCode, n, size)
		}
		return errors.Join(err, answer.Body.Close())
	}
	var wg sync.WaitGroup
	failures, times := make([]error, clients), make([]time.Duration, clients)
	took := stopwatch()
	for i := range clients {
		wg.Go(func() { failures[i], times[i] = fetch(), took() })
	}
	wg.Wait()
	slices.Sort(times)
	return times, errors.Join(failures...)
}

func bandwidthTargets() []target {
	judge := func(system, figure string, met func(float64) bool, text func(float64) string) func(*report) (string, bool, bool) {
		return func(r *report) (string, bool, bool) {
			m := r.find(slowedWorkload, system)
			if m == nil || m.Figures[figure] == nil || r.Quick {
				return "", false, false
			}
			v := m.Figures[figure].Median
			return text(v), met(v), true
		}
	}
	near := func(v float64) bool { return v >= 9.7 && v <= 10.3 }
	var list []target
	for _, system := range []string{slowedHandler, slowedServe} {
		list = append(list,
			target{"B1", "1 MB at 100 kB a second, 1,000 at once: 10 s ± 3 %, " + system, judge(system, p50, near, secondsText)},
			target{"B2", "1,000 such answers at once: less than 10 % of a core, " + system, judge(system, coreShare, atMost(10), percentText)})
	}
	return list
}
