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

// The group bandwidth measures the cost of sending slowly. A thousand clients request a response
// of a megabyte each at the same moment, and the server sends each at 100,000 bytes a second.
// Each server is a process of its own. Its processor time is divided by the duration.

const (
	slowRate = 100_000 // bytes a second

	slowedWorkload = "1,000 responses of 1 MB at once, at 100 kB/s each"
	slowedHandler  = "Diana's Handler"
	slowedServe    = "diana serve"
)

var (
	coreShare   = figure{name: "of a core", format: percentText} // that the server kept busy
	slowedP50   = figure{name: "p50", format: secondsText, better: neither}
	slowedWorst = figure{name: "slowest", format: secondsText, better: neither}
)

func bandwidthGroup() group {
	near := bound{"10 s ± 3 %", func(m measured) bool { return m.value >= 9.7 && m.value <= 10.3 }}
	return group{
		name: "bandwidth", title: slowedWorkload, measure: measureBandwidth, needs: bandwidthNeeds,
		figures: []figure{slowedP50, slowedWorst, coreShare},
		lines: []line{
			compare("Handler: p50", slowedWorkload, slowedP50, slowedHandler).must("B1", near),
			compare("Handler: share of a core", slowedWorkload, coreShare, slowedHandler).must("B2", atMost(coreShare, 10)),
			compare("diana serve: p50", slowedWorkload, slowedP50, slowedServe).must("B1", near),
			compare("diana serve: share of a core", slowedWorkload, coreShare, slowedServe, bestRival).must("B2", atMost(coreShare, 10)),
		},
	}
}

func slowedSystems() []*httpSystem {
	slowed := fmt.Sprintf("limits: [{url: /, bandwidth: %dk}]\n", slowRate/1000)
	return []*httpSystem{
		{slowedWorkload, slowedHandler, "no upstream", diana, true, slowedCommand(slowed), nil},
		{slowedWorkload, slowedServe, "", diana, false, dianaCommand(slowed), nil},
		{slowedWorkload, "nginx, limit_rate", "", rival, false, nginxCommand(fmt.Sprintf("%s proxy_max_temp_file_size 0; limit_rate %d;", nginxPlain, slowRate)), nil},
	}
}

// slowedCommand is a server in this program with Diana's Handler in front.
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

func measureBandwidth(ctx context.Context, r *run) error { return inYard(ctx, r, bandwidthIn) }

func bandwidthIn(ctx context.Context, r *run, y *yard) error {
	if err := y.prepare(ctx, "bytes"); err != nil {
		return err
	}
	systems, err := y.startAll(slowedSystems(), r.quick)
	if err != nil {
		return err
	}
	r = r.atMost(2) // because a response takes ten seconds
	workload := slowedWorkload
	if r.quick {
		workload = "a shorter bandwidth workload" // which no target is for
	}
	r.note("  %s", workload)
	clients, size := r.count(1000, 1000), r.count(1_000_000, 150_000)
	return r.interleave(ctx, len(systems), func(_, i int) error {
		s := systems[i]
		before := processTime(s.server.PID)
		times, err := fetchAtOnce(ctx, "http://"+s.server.address+gatewayPath, clients, size)
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		m := r.working(workload, s.name, s.work, s.kind)
		m.add(slowedP50, times[len(times)/2].Seconds())
		m.add(slowedWorst, times[len(times)-1].Seconds())
		if busy := processTime(s.server.PID) - before; busy > 0 {
			m.add(coreShare, 100*busy/times[len(times)-1].Seconds())
		}
		return nil
	})
}

// fetchAtOnce lets clients request a response at once, each on a connection of its own. It
// returns the sorted durations. size is in bytes.
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
