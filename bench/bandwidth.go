// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/diana-limiter/diana/bench/measure"
	"github.com/diana-limiter/diana/bench/page"
	"github.com/diana-limiter/diana/bench/rivals"
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
	coreShare   = measure.Figure{Name: "of a core", Format: measure.PercentText} // that the server kept busy
	slowedP50   = measure.Figure{Name: "p50", Format: measure.SecondsText, Better: measure.Neither}
	slowedWorst = measure.Figure{Name: "slowest", Format: measure.SecondsText, Better: measure.Neither}
)

func bandwidthGroup() group {
	near := page.Bound{Text: "10 s ± 3 %", Met: func(m page.Measured) bool { return m.Value >= 9.7 && m.Value <= 10.3 }}
	return group{measure: measureBandwidth, Chapter: page.Chapter{
		Name: "bandwidth", Title: slowedWorkload,
		Figures: []measure.Figure{slowedP50, slowedWorst, coreShare},
		Lines: []page.Line{
			page.Compare("Handler: p50", slowedWorkload, slowedP50, slowedHandler).Must("B1", near),
			page.Compare("Handler: share of a core", slowedWorkload, coreShare, slowedHandler).Must("B2", page.AtMost(coreShare, 10)),
			page.Compare("diana serve: p50", slowedWorkload, slowedP50, slowedServe).Must("B1", near),
			page.Compare("diana serve: share of a core", slowedWorkload, coreShare, slowedServe, page.BestRival).Must("B2", page.AtMost(coreShare, 10)),
		},
	}}
}

func measureBandwidth(ctx context.Context, r *measure.Run) error {
	return measure.InYard(ctx, r, "bytes", func(y *measure.Yard) error {
		slowed := fmt.Sprintf("limits: [{url: /, bandwidth: %dk}]\n", slowRate/1000)
		systems, err := startAll(r, y, []*webSystem{
			{name: slowedHandler, work: "no upstream", kind: measure.Diana, quick: true, command: func(y *measure.Yard, address string) ([]string, error) {
				file, err := y.File("diana.yaml", slowed)
				if err != nil {
					return nil, err
				}
				return y.Own(handlerKind, file)(y, address)
			}},
			{name: slowedServe, kind: measure.Diana, command: dianaCommand(slowed)},
			{name: "nginx, limit_rate", kind: measure.Rival, command: rivals.Nginx(fmt.Sprintf("%s proxy_max_temp_file_size 0; limit_rate %d;", rivals.NginxPlain, slowRate))},
		})
		if err != nil {
			return err
		}
		r = r.AtMost(2) // because a response takes ten seconds
		workload := slowedWorkload
		if r.Quick {
			workload = "a shorter bandwidth workload" // which no target is for
		}
		r.Note("  %s", workload)
		clients, size := r.Count(1000, 1000), r.Count(1_000_000, 150_000)
		return r.Interleave(ctx, len(systems), func(_, i int) error {
			s := systems[i]
			before := s.server.Time()
			times, err := fetchAtOnce(ctx, "http://"+s.server.Address+rivals.PathAsked, clients, size)
			if err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
			m := r.Working(workload, s.name, s.work, s.kind)
			m.Add(slowedP50, times[len(times)/2].Seconds())
			m.Add(slowedWorst, times[len(times)-1].Seconds())
			if busy := s.server.Time() - before; busy > 0 {
				m.Add(coreShare, 100*busy/times[len(times)-1].Seconds())
			}
			return nil
		})
	})
}

// fetchAtOnce lets clients request a response at once, each on a connection of its own. It
// returns the sorted durations. size is in bytes.
func fetchAtOnce(ctx context.Context, address string, clients, size int) ([]time.Duration, error) {
	transport := &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: clients}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, Timeout: time.Minute}
	fetch := func() error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("%s?bytes=%d", address, size), nil)
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
	took := measure.Stopwatch()
	for i := range clients {
		wg.Go(func() { failures[i], times[i] = fetch(), took() })
	}
	wg.Wait()
	slices.Sort(times)
	return times, errors.Join(failures...)
}
