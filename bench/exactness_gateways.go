// SPDX-License-Identifier: MIT

package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"time"

	"github.com/diana-limiter/diana/internal/redistest"
	"github.com/diana-limiter/diana/limit"
)

// Exactness: three processes, each with 256 callers, use up one limit together. This program
// starts itself three times for that. The limit is for a day, so nothing becomes available
// again meanwhile, except one token of the bucket every 17 seconds.

const (
	exactWorkload  = "3 processes, 256 callers each"
	gatewayCommand = "exact-gateway" // the hidden subcommand

	gateways       = 3
	gatewayCallers = 256
	gatewayAsks    = 30 // by each caller
	exactLimit     = 5000
)

var (
	allowed  = figure{name: "allowed", format: plainText, better: neither}
	promised = figure{name: "promised", format: plainText, better: neither}
	offered  = figure{name: "offered", format: plainText, better: neither}
	refilled = figure{name: "refilled", format: plainText, better: neither} // at most, meanwhile
)

// exactAlgorithms returns the algorithms that promise an exact number.
func exactAlgorithms() []limit.Algorithm {
	return []limit.Algorithm{limit.FixedWindow(), limit.TokenBucket(), limit.SlidingWindow(), limit.SlidingLog()}
}

// measureKept counts the attempts that did not keep their limit.
func measureKept(r *report) (m measured, ok bool) {
	exact, all := 0, 0
	for _, w := range r.Rows {
		if w.Workload != exactWorkload {
			continue
		}
		for i, n := range w.series(allowed).Rounds {
			all++
			low := w.series(promised).Rounds[i]
			high := low + w.series(refilled).Rounds[i]
			if n >= low && n <= high && w.series(failures).Rounds[i] == 0 {
				exact++
			}
		}
	}
	m.value, m.diana = float64(all-exact), fmt.Sprintf("%d of %d attempts", exact, all)
	return m, all > 0
}

func measureExact(ctx context.Context, r *run, server *redistest.Server) error {
	r.note("  %s", exactWorkload)
	for range r.count(r.rounds, 1) {
		for _, a := range exactAlgorithms() {
			if err := exactOf(ctx, r, server, a); err != nil {
				return fmt.Errorf("%s: %w", a.Name(), err)
			}
		}
	}
	return nil
}

// exactOf lets the processes use up the limit of one algorithm.
func exactOf(ctx context.Context, r *run, server *redistest.Server, a limit.Algorithm) error {
	day := time.Now().UTC().YearDay()
	if _, err := server.Do("FLUSHALL", "SYNC"); err != nil {
		return err
	}
	took := stopwatch()
	counts, err := gatewayCounts(ctx, server, a)
	if err != nil {
		return err
	}
	if time.Now().UTC().YearDay() != day { // midnight began a new limit
		return exactOf(ctx, r, server, a)
	}
	m := r.row(exactWorkload, a.Name(), diana)
	m.add(allowed, float64(counts.allowed))
	m.add(promised, exactLimit)
	m.add(offered, gateways*gatewayCallers*gatewayAsks)
	m.add(failures, float64(counts.errors))
	refill := 0.0
	if a.Name() == limit.TokenBucket().Name() {
		refill = float64(int(took().Hours() / 24 * exactLimit))
	}
	m.add(refilled, refill)
	return nil
}

// gatewayCount counts the requests of a gateway.
type gatewayCount struct{ allowed, errors int64 }

// gatewayCounts starts the processes, lets them ask at the same time, and adds their counts.
func gatewayCounts(ctx context.Context, server *redistest.Server, a limit.Algorithm) (sum gatewayCount, err error) {
	self, err := os.Executable()
	if err != nil {
		return sum, err
	}
	ctx, cancel := context.WithCancel(ctx) // ends the other processes if one fails
	defer cancel()
	type gateway struct {
		*exec.Cmd
		in  io.WriteCloser
		out *bufio.Reader
	}
	var all []gateway
	defer func() {
		cancel()
		for _, g := range all {
			_ = g.Wait() // its output is what counts
		}
	}()
	for range gateways {
		g := gateway{Cmd: exec.CommandContext(ctx, self, gatewayCommand, server.URL(), a.Name())}
		g.Stderr = os.Stderr
		if g.in, err = g.StdinPipe(); err != nil {
			return sum, err
		}
		out, err := g.StdoutPipe()
		if err != nil {
			return sum, err
		}
		g.out = bufio.NewReader(out)
		if err := g.Start(); err != nil {
			return sum, err
		}
		all = append(all, g)
	}
	for _, g := range all {
		if line, err := g.out.ReadString('\n'); err != nil {
			return sum, fmt.Errorf("a gateway printed %q: %w", line, err)
		}
	}
	for _, g := range all {
		if _, err := io.WriteString(g.in, "go\n"); err != nil {
			return sum, err
		}
	}
	for _, g := range all {
		line, err := g.out.ReadString('\n')
		if err != nil {
			return sum, err
		}
		var c gatewayCount
		if _, err := fmt.Sscan(line, &c.allowed, &c.errors); err != nil {
			return sum, fmt.Errorf("a gateway printed %q: %w", line, err)
		}
		sum.allowed += c.allowed
		sum.errors += c.errors
	}
	return sum, nil
}

// runGateway is one of the processes. It prints a line when it is ready, begins when it reads a
// line, and prints how many requests were allowed and how many failed.
func runGateway(ctx context.Context, args []string, in io.Reader, out io.Writer) error {
	if len(args) != 2 {
		return usageError{fmt.Errorf("%s: expected the URL of Redis and an algorithm", gatewayCommand)}
	}
	store, err := openStore(ctx, args[0], "")
	if err != nil {
		return err
	}
	defer store.Close()
	var counters any
	for _, a := range exactAlgorithms() {
		if a.Called(args[1]) {
			if counters, err = countersOf(store, a.Name(), a, limit.Limit{N: exactLimit, Unit: 24 * time.Hour}); err != nil {
				return err
			}
		}
	}
	if _, err := io.WriteString(out, "ready\n"); err != nil {
		return err
	}
	if _, err := bufio.NewReader(in).ReadString('\n'); err != nil {
		return err
	}
	var allowed, failed atomic.Int64
	var done sync.WaitGroup
	for range gatewayCallers {
		done.Go(func() {
			ch := []limit.Charge{{Counters: counters, Key: []byte("everyone"), Cost: 1}}
			for range gatewayAsks {
				switch ok, err := store.Take(ctx, 0, ch); {
				case err != nil:
					failed.Add(1)
				case ok:
					allowed.Add(1)
				}
			}
		})
	}
	done.Wait()
	_, err = fmt.Fprintln(out, allowed.Load(), failed.Load())
	return err
}
