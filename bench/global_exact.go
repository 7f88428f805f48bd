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
	"github.com/diana-limiter/diana/redisstore"
)

// Exactness: three processes, each with 256 callers, use up one limit together. This
// program starts itself three times for that. The limit is for a day, so that time
// gives nothing back meanwhile, but for a token of the bucket every 17 seconds.

const (
	exactWorkload  = "3 processes, 256 callers each"
	gatewayCommand = "exact-gateway" // the hidden subcommand

	gateways       = 3
	gatewayCallers = 256
	gatewayAsks    = 30 // by each caller
	exactLimit     = 5000

	admitted = "admitted"
	promised = "promised"
	offered  = "offered"
	refilled = "refilled" // at most, by time
)

// exactly are the algorithms that promise a number.
func exactly() []limit.Algorithm {
	return []limit.Algorithm{limit.FixedWindow(), limit.TokenBucket(), limit.SlidingWindow(), limit.SlidingLog()}
}

func measureExact(ctx context.Context, r *run, server *redistest.Server) error {
	r.note("  %s", exactWorkload)
	for range r.count(r.rounds, 1) {
		for _, a := range exactly() {
			if err := r.exact(ctx, server, a); err != nil {
				return fmt.Errorf("%s: %w", a.Name(), err)
			}
		}
	}
	return nil
}

// exact has the processes use up the limit of one algorithm.
func (r *run) exact(ctx context.Context, server *redistest.Server, a limit.Algorithm) error {
	day := time.Now().UTC().YearDay()
	if _, err := server.Do("FLUSHALL", "SYNC"); err != nil {
		return err
	}
	took := stopwatch()
	counts, err := gatewayCounts(ctx, server, a)
	if err != nil {
		return err
	}
	if time.Now().UTC().YearDay() != day { // a new day, a new limit
		return r.exact(ctx, server, a)
	}
	m := r.row(exactWorkload, a.Name(), diana)
	m.add(admitted, float64(counts.admitted))
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

// gatewayCount is what came of a gateway's requests.
type gatewayCount struct{ admitted, errors int64 }

// gatewayCounts starts the processes, has them ask at the same time, and adds up.
func gatewayCounts(ctx context.Context, server *redistest.Server, a limit.Algorithm) (sum gatewayCount, err error) {
	self, err := os.Executable()
	if err != nil {
		return sum, err
	}
	ctx, cancel := context.WithCancel(ctx) // ends those that are left when one fails
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
			_ = g.Wait() // what it said is what counts
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
			return sum, fmt.Errorf("a gateway said %q: %w", line, err)
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
		if _, err := fmt.Sscan(line, &c.admitted, &c.errors); err != nil {
			return sum, fmt.Errorf("a gateway said %q: %w", line, err)
		}
		sum.admitted += c.admitted
		sum.errors += c.errors
	}
	return sum, nil
}

// runGateway is one of the processes. It says when it is ready, begins when it is told
// to, and says how many requests were admitted and how many failed.
func runGateway(ctx context.Context, args []string, in io.Reader, out io.Writer) error {
	if len(args) != 2 {
		return usageError{fmt.Errorf("%s: expected the URL of Redis and an algorithm", gatewayCommand)}
	}
	store, err := redisstore.Open(redisstore.Options{URL: args[0], Timeout: patience})
	if err != nil {
		return err
	}
	defer store.Close()
	var counters limit.Counters
	for _, a := range exactly() {
		if a.Called(args[1]) {
			if counters, err = dayCounters(store, a, limit.Limit{N: exactLimit, Unit: 24 * time.Hour}); err != nil {
				return err
			}
		}
	}
	if err := await(ctx, store.Up); err != nil {
		return err
	}
	if _, err := io.WriteString(out, "ready\n"); err != nil {
		return err
	}
	if _, err := bufio.NewReader(in).ReadString('\n'); err != nil {
		return err
	}
	var admitted, failed atomic.Int64
	var done sync.WaitGroup
	for range gatewayCallers {
		done.Go(func() {
			ch := []limit.Charge{{Counters: counters, Key: []byte("everyone"), Cost: 1}}
			for range gatewayAsks {
				switch ok, err := store.Take(ctx, 0, ch); {
				case err != nil:
					failed.Add(1)
				case ok:
					admitted.Add(1)
				}
			}
		})
	}
	done.Wait()
	_, err = fmt.Fprintln(out, admitted.Load(), failed.Load())
	return err
}
