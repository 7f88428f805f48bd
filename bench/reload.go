// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"runtime"
	"sync"
	"syscall"
	"time"

	"github.com/diana-limiter/diana/bench/measure"
	"github.com/diana-limiter/diana/bench/page"
	"github.com/diana-limiter/diana/bench/rivals"
	"go.yaml.in/yaml/v4"
)

// The group reload measures how the cost of a configuration grows with the number of its entries, in
// diana serve with a local file:
//
//   - the processor time of a start, and the peak of its memory
//   - the processor time of a reload, from the signal until a request gets the new answer
//   - the latency of a steady load at rest, and while the gateway reloads without a pause

var (
	cpuTime    = measure.Figure{Name: "processor time", Format: measure.SecondsText}
	peakMemory = measure.Figure{Name: "peak memory", Format: func(bytes float64) string { return measure.PlainText(bytes/1e6) + " MB" }}
)

const (
	reloading = "applying a configuration"

	yamlAlone   = "the YAML library alone"
	atStart     = "start"
	atReload    = "reload"
	atRest      = "requests at rest"
	whileReload = "requests while it reloads"
)

func reloadGroup() group {
	var lines []page.Line
	for _, n := range []int{10_000, 100_000} {
		lines = append(lines,
			page.Compare(sizeText(n)+" entries in force, at a start", reloading, cpuTime, atSize(atStart, n), atSize(yamlAlone, n)).Must("R1", page.RatioAtMost(2)),
			page.Compare("the same, at a reload", reloading, cpuTime, atSize(atReload, n), atSize(yamlAlone, n)).Must("R1", page.RatioAtMost(2)),
		)
	}
	const most = 100_000
	return group{measure: measureReload, Chapter: page.Chapter{
		Name: "reload", Title: "Applying a configuration",
		Figures: []measure.Figure{cpuTime, peakMemory, p50, p99},
		Lines: append(lines,
			page.Compare("100 k entries: peak memory at a start", reloading, peakMemory, atSize(atStart, most)).Must("R1", page.AtMost(peakMemory, 300e6)),
			page.Compare("100 k entries: peak memory after reloads", reloading, peakMemory, atSize(atReload, most)).Must("R1", page.AtMost(peakMemory, 300e6)),
			page.Compare("p99 of requests while it reloads 100 k entries", reloading, p99, atSize(whileReload, most), atSize(atRest, most)).
				Must("R1", page.RatioAtMost(3)),
		),
	}}
}

// atSize makes the name of a system with n entries.
func atSize(system string, n int) string { return system + ", entries: " + sizeText(n) }

// sizeText abbreviates thousands.
func sizeText(n int) string { return fmt.Sprintf("%d k", n/1000) }

func measureReload(ctx context.Context, r *measure.Run) error {
	return measure.InYard(ctx, r, "upstream", func(y *measure.Yard) error {
		r.Note("  %s", reloading)
		sizes := []int{10_000, 100_000}
		r = r.AtMost(3) // because each takes half a minute
		return r.Interleave(ctx, len(sizes), func(_, i int) error { return reloadsOf(ctx, r, y, sizes[i]) })
	})
}

// reloadsOf measures the configurations of n entries.
func reloadsOf(ctx context.Context, r *measure.Run, y *measure.Yard, n int) (err error) {
	c := reloaded{entries: max(rivals.URLAsked+2, r.Count(n))}
	c.Server, err = y.Start(func(y *measure.Yard, address string) (args []string, err error) {
		c.file, err = y.File("diana.yaml", c.text())
		return dianaArguments(y, address, c.file), err
	})
	if err != nil {
		return err
	}
	defer c.Kill() //nolint:errcheck // it ends with this program
	of := func(what string) *measure.Row {
		return r.Working(reloading, atSize(what, n), sizeText(n), measure.Diana)
	}
	alone, err := yamlTime(c.text())
	if err != nil {
		return err
	}
	r.Working(reloading, atSize(yamlAlone, n), sizeText(n), measure.Floor).Add(cpuTime, alone)
	of(atStart).Add(cpuTime, c.Time())
	of(atStart).Add(peakMemory, c.Peak())
	settle := r.Span(3 * time.Second) // meanwhile the gateway reads the new file several times
	time.Sleep(settle)
	took, err := c.reload(ctx)
	if err != nil {
		return err
	}
	of(atReload).Add(cpuTime, took)
	time.Sleep(settle)

	span := r.Span(3 * time.Second)
	rest := steady(c.Address, time.After(span))
	done := make(chan time.Time)
	var reloadErr error
	go func() {
		defer close(done)
		for last := time.Now().Add(span); reloadErr == nil && time.Now().Before(last); {
			_, reloadErr = c.reload(ctx)
		}
	}()
	busy := steady(c.Address, done)
	of(atRest).AddLatencies(p50, p99, &rest.Latencies)
	of(whileReload).AddLatencies(p50, p99, &busy.Latencies)
	of(atReload).Add(peakMemory, c.Peak())
	return errors.Join(rest.Err, busy.Err, reloadErr)
}

// yamlTime returns the processor time in which the YAML library makes its nodes of a text.
func yamlTime(text string) (seconds float64, err error) {
	runtime.GC() // the garbage of others
	before := measure.OwnTime()
	var n yaml.Node
	err = yaml.Load([]byte(text), &n)
	return (measure.OwnTime() - before).Seconds(), err
}

// reloaded is a gateway whose configuration changes.
type reloaded struct {
	*measure.Server
	entries int
	version int
	file    string
}

// text returns the configuration. Its version is the status of one URL.
func (c *reloaded) text() string {
	return rulesOf(c.entries-1, plenty) + fmt.Sprintf("- {url: /version, rules: [{rpu: 0}], divert: {status: %d, body: x}}\n", c.status())
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
	before := c.Time()
	if err := syscall.Kill(c.PID, syscall.SIGHUP); err != nil {
		return 0, err
	}
	for began := time.Now(); time.Since(began) < time.Minute; time.Sleep(2 * time.Millisecond) {
		answer, err := http.Get("http://" + c.Address + "/version")
		if err != nil {
			return 0, err
		}
		_ = answer.Body.Close() // nothing is lost
		if answer.StatusCode == c.status() {
			return c.Time() - before, ctx.Err()
		}
	}
	return 0, fmt.Errorf("the configuration of %d entries is not in force", c.entries)
}

// steady sends 400 requests a second until the end. A late answer delays no other request.
func steady(address string, end <-chan time.Time) *measure.Load {
	const callers, every = 40, 100 * time.Millisecond
	l := &measure.Load{}
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: callers}}
	defer client.CloseIdleConnections()
	var mu sync.Mutex
	var done sync.WaitGroup
	ctx, stop := context.WithCancel(context.Background())
	for i := range callers {
		done.Go(func() {
			time.Sleep(every * time.Duration(i) / callers)
			tick := time.NewTicker(every)
			defer tick.Stop()
			for ctx.Err() == nil {
				sent := time.Now()
				answer, err := client.Get("http://" + address + rivals.PathAsked)
				if err == nil {
					_ = answer.Body.Close() // its length is known
				}
				mu.Lock()
				l.Latencies.Add(time.Since(sent))
				l.Err = errors.Join(l.Err, err)
				mu.Unlock()
				select {
				case <-ctx.Done():
				case <-tick.C:
				}
			}
		})
	}
	<-end
	stop()
	done.Wait()
	return l
}
