// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"
)

// The group reload measures how the cost of a configuration grows with the number of its entries, in
// diana serve with a local file:
//
//   - the processor time of a start, and the peak of its memory
//   - the processor time of a reload, from the signal until a request gets the new answer
//   - the latency of a steady load at rest, and while the gateway reloads without a pause

var (
	cpuTime    = figure{name: "processor time", format: secondsText}
	peakMemory = figure{name: "peak memory", format: megabytesText}
)

const (
	reloading = "applying a configuration"

	atStart     = "start"
	atReload    = "reload"
	atRest      = "requests at rest"
	whileReload = "requests while it reloads"
)

func reloadGroup() group {
	return group{
		name: "reload", title: "Applying a configuration", measure: measureReload,
		figures: []figure{cpuTime, peakMemory, p50, p99},
		lines:   reloadLines(),
	}
}

// reloadLines are the lines of the table for configurations of 10,000 and 100,000 entries.
func reloadLines() []line {
	of := func(what string, n int) string { return sized(what, "entries", n) }
	var lines []line
	for _, row := range []struct {
		n   int
		cpu bound
	}{
		{10_000, atMost(cpuTime, 0.150)},
		{100_000, atMost(cpuTime, 2)},
	} {
		text := sizeText(row.n) + " entries in force"
		lines = append(lines,
			compare(text+", at a start", reloading, cpuTime, of(atStart, row.n)).must("R1", row.cpu),
			compare("the same, at a reload", reloading, cpuTime, of(atReload, row.n)).must("R1", row.cpu),
		)
	}
	const most = 100_000
	return append(lines,
		compare("100 k entries: peak memory at a start", reloading, peakMemory, of(atStart, most)).must("R1", atMost(peakMemory, 200e6)),
		compare("100 k entries: peak memory after reloads", reloading, peakMemory, of(atReload, most)),
		compare("p99 of requests while it reloads 100 k entries", reloading, p99, of(whileReload, most), of(atRest, most)).
			must("R1", ratioAtMost(1.1)),
	)
}

func megabytesText(bytes float64) string { return plainText(bytes/1e6) + " MB" }

func measureReload(ctx context.Context, r *run) error {
	return inYard(ctx, r, func(ctx context.Context, r *run, y *yard) error {
		r.note("  %s", reloading)
		if err := y.prepare(ctx, "upstream"); err != nil {
			return err
		}
		sizes := []int{10_000, 100_000}
		if r.quick {
			sizes = sizes[:1]
		}
		r = r.atMost(3) // because each takes half a minute
		return r.interleave(ctx, len(sizes), func(_, i int) error { return reloadsOf(ctx, r, y, sizes[i]) })
	})
}

// reloadsOf measures the configurations of n entries.
func reloadsOf(ctx context.Context, r *run, y *yard, n int) error {
	c := reloaded{entries: n}
	server, err := y.start(func(y *yard, address string) (args []string, err error) {
		c.address = address
		if c.file, err = y.file("diana.yaml", c.text()); err != nil {
			return nil, err
		}
		return dianaArguments(y, address, c.file), nil
	})
	if err != nil {
		return err
	}
	c.pid = server.PID
	defer server.Kill() //nolint:errcheck // it ends with this program
	add := func(what string, f figure, v float64) { sizedRow(r, reloading, what, "entries", n, diana).add(f, v) }
	add(atStart, cpuTime, processTime(c.pid))
	add(atStart, peakMemory, peakOf(c.pid))
	settle := r.span(3*time.Second, time.Second) // meanwhile the gateway reads the new file several times
	time.Sleep(settle)

	took, err := c.reload(ctx)
	if err != nil {
		return err
	}
	add(atReload, cpuTime, took)
	time.Sleep(settle)

	span := r.span(3*time.Second, time.Second)
	rest := steady(c.address, time.After(span))
	done := make(chan time.Time)
	var reloadErr error
	go func() {
		defer close(done)
		for last := time.Now().Add(span); reloadErr == nil && time.Now().Before(last); {
			_, reloadErr = c.reload(ctx)
		}
	}()
	busy := steady(c.address, done)
	if err := errors.Join(rest.err, busy.err, reloadErr); err != nil {
		return err
	}
	for what, l := range map[string]*load{atRest: rest, whileReload: busy} {
		add(what, p50, l.latencies.quantile(0.5).Seconds())
		add(what, p99, l.latencies.quantile(0.99).Seconds())
	}
	add(atReload, peakMemory, peakOf(c.pid))
	return nil
}

// reloaded is a gateway whose configuration changes.
type reloaded struct {
	entries int
	version int
	pid     int
	file    string
	address string
}

// text returns the configuration. Its version is the status of one URL.
func (c *reloaded) text() string {
	return rulesOf(c.entries-1, true, plenty) + fmt.Sprintf("- {url: /version, rules: [{rpu: 0}], divert: {status: %d, body: x}}\n", c.status())
}

func (c *reloaded) status() int { return 400 + c.version%50 }

// reload lets the gateway read the next configuration. It returns the processor time until that is
// in force.
func (c *reloaded) reload(ctx context.Context) (seconds float64, err error) {
	c.version++
	next := c.file + ".next"
	if err := os.WriteFile(next, []byte(c.text()), 0o600); err != nil {
		return 0, err
	}
	if err := os.Rename(next, c.file); err != nil {
		return 0, err
	}
	before := processTime(c.pid)
	if err := syscall.Kill(c.pid, syscall.SIGHUP); err != nil {
		return 0, err
	}
	for began := stopwatch(); began() < patience; time.Sleep(2 * time.Millisecond) {
		answer, err := http.Get("http://" + c.address + "/version")
		if err != nil {
			return 0, err
		}
		_ = answer.Body.Close() // nothing is lost
		if answer.StatusCode == c.status() {
			return processTime(c.pid) - before, ctx.Err()
		}
	}
	return 0, fmt.Errorf("the configuration of %d entries is not in force", c.entries)
}

// steady sends 400 requests a second until the end. A late answer delays no other request.
func steady(address string, end <-chan time.Time) *load {
	const callers, every = 40, 100 * time.Millisecond
	l := &load{callers: callers}
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: callers}}
	defer client.CloseIdleConnections()
	var mu sync.Mutex
	var done sync.WaitGroup
	stop := make(chan struct{})
	for i := range callers {
		done.Go(func() {
			time.Sleep(every * time.Duration(i) / callers)
			tick := time.NewTicker(every)
			defer tick.Stop()
			for {
				select {
				case <-stop:
					return
				case <-tick.C:
				}
				took := stopwatch()
				answer, err := client.Get("http://" + address + gatewayPath)
				if err == nil {
					_ = answer.Body.Close() // its length is known
				}
				mu.Lock()
				l.latencies.add(took())
				if err != nil {
					l.err = err
				}
				mu.Unlock()
			}
		})
	}
	<-end
	close(stop)
	done.Wait()
	return l
}

// peakOf returns the peak of the memory of a process, in bytes.
func peakOf(pid int) float64 {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(status), "VmHWM:")
	var kilobytes float64
	_, _ = fmt.Sscan(rest, &kilobytes) // another system says nothing
	return kilobytes * 1024
}
