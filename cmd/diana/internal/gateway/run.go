// SPDX-License-Identifier: MIT

package gateway

import (
	"context"
	"errors"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/cmd/diana/internal/handover"
)

// Run serves until ctx ends, a signal stops the gateway or another process takes over, and then until the
// requests in flight are finished. On SIGHUP it reads the configuration. It calls ready once, as soon as it serves and
// another process can take over.
func (g *Gateway) Run(ctx context.Context, signals <-chan os.Signal, ready func()) error {
	following, stop := context.WithCancel(ctx)
	defer stop()
	g.admin.RegisterOnShutdown(stop) // because it waits for the streams of the live view
	for _, f := range g.follow {
		go f(following)
	}
	failed := make(chan error, len(g.open))
	var serving sync.WaitGroup
	defer serving.Wait()
	defer g.close()
	if g.handover != nil {
		defer g.handover.Close()
		if !g.takesOver(ctx, signals) {
			g.logger.Info("stopped at the start")
			return nil
		}
		if err := g.handover.Ready(g.sockets(), g.counted()); err != nil {
			return err
		}
	}
	for _, l := range g.open { // what has arrived since the other process stopped is in their queues
		serving.Go(func() { failed <- l.server.Serve(l.Listener) })
	}
	ready()
	for {
		select {
		case err := <-failed:
			return err
		case <-g.handover.HandedOver():
			g.leave(signals)
			return nil
		case <-ctx.Done():
			g.drain(signals)
			return nil
		case s := <-signals:
			if s == syscall.SIGHUP {
				g.reread()
				continue
			}
			g.drain(signals)
			return nil
		}
	}
}

// drain accepts no further requests. It returns when those in flight are finished and Redis has what was charged
// without it, after the drain timeout, or at the next signal to stop. The line of how it has ended is the last one.
// Meanwhile the administrators' listener answers that the gateway is not ready.
func (g *Gateway) drain(signals <-chan os.Signal) {
	g.draining.Store(true)
	g.handover.Close() // a successor must not ask for sockets that are about to close
	g.logger.Info("draining")
	ctx, cancel := context.WithTimeout(context.Background(), g.timeouts.Drain)
	defer cancel()
	finished := make(chan error, 1)
	var settling atomic.Bool
	go func() {
		err := g.shutdown(ctx)
		if err == nil { // Shutdown does not wait for WebSockets
			err = g.inFlight.wait(ctx)
		}
		if err == nil {
			settling.Store(true)
			g.settle(ctx)
		}
		finished <- err
	}()
	var reason any = "they took too long"
	for {
		select {
		case err := <-finished:
			if err != nil {
				g.cutOff(reason)
				return
			}
			g.logger.Info("drained")
			return
		case s := <-signals:
			if s == syscall.SIGHUP {
				continue
			}
			if settling.Load() {
				g.logger.Warn("Redis does not get what was charged without it", "reason", s)
			}
			reason = s
			cancel()
		}
	}
}

// cutOff ends the requests in flight and the limiters. It logs the reason last, after the lines of both.
func (g *Gateway) cutOff(reason any) {
	g.close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = g.inFlight.wait(ctx)
	for _, l := range g.limiters() {
		_ = l.Close()
	}
	g.logger.Warn("requests in flight are cut off", "reason", reason)
}

// settleMargin is how long before the end of a drain the gateway gives up a Redis that is unavailable.
const settleMargin = time.Second

// settle waits until Redis has what was charged without it, until shortly before ctx ends. Then it closes the limiters,
// which log what is lost.
func (g *Gateway) settle(ctx context.Context) {
	end, _ := ctx.Deadline()
	ctx, cancel := context.WithDeadline(ctx, end.Add(-settleMargin))
	defer cancel()
	for _, l := range g.limiters() {
		_ = l.Flush(ctx)
		_ = l.Close()
	}
}

// limiters returns that of requests and that of descriptors, if there is one.
func (g *Gateway) limiters() []*diana.Limiter {
	if g.limits == nil {
		return []*diana.Limiter{g.limiter}
	}
	return []*diana.Limiter{g.limiter, g.limits.Limiter()}
}

// counted returns the limiters with the names by which a successor asks for their counters.
func (g *Gateway) counted() (all []handover.Counted) {
	for i, l := range g.limiters() {
		all = append(all, handover.Counted{Name: []string{"rules", "descriptors"}[i], Limiter: l})
	}
	return all
}

// sockets returns the sockets that a successor takes over.
func (g *Gateway) sockets() (open []handover.Socket) {
	for _, l := range g.open {
		open = append(open, l.socket)
	}
	return open
}

// shutdown stops all servers, when their requests have ended or ctx ends. It stops that for administrators only
// if another process has taken over.
func (g *Gateway) shutdown(ctx context.Context) error {
	errs := make([]error, len(g.open))
	var stopping sync.WaitGroup
	for i, l := range g.open {
		if l.server != server(g.admin) || g.leaving.Load() {
			stopping.Go(func() { errs[i] = l.server.Shutdown(ctx) })
		}
	}
	stopping.Wait()
	return errors.Join(errs...)
}

// close ends all requests and all servers.
func (g *Gateway) close() {
	g.cut()
	for _, l := range g.open {
		_ = l.server.Close()
	}
}

// leaveConnections is a filter that ends each connection with its next answer after the process has handed
// over. A client that knows this opens the next connection, which the other process accepts. If the gateway
// closed connections that look idle, it would lose the requests that are on their way.
func (g *Gateway) leaveConnections(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		told := g.leaving.Load()
		if told && r.Header.Get("Upgrade") == "" {
			w.Header().Set("Connection", "close") // net/http sends GOAWAY over HTTP/2
		}
		next.ServeHTTP(w, r)
		if !told && g.leaving.Load() {
			now := time.Now()
			g.untold.Store(&now)
		}
	})
}

// takesOver takes the counters of the process before this one, which can take seconds. It reports false if ctx ends or
// a signal stops the program meanwhile. Then the other process continues, because this one is not ready.
func (g *Gateway) takesOver(ctx context.Context, signals <-chan os.Signal) bool {
	_, err := unlessStopped(ctx, signals, func() (*struct{}, error) {
		g.handover.TakeCounters(g.counted())
		return nil, nil
	})
	if err != nil {
		return false
	}
	for {
		select {
		case s := <-signals: // it has arrived with the counters
			if s != syscall.SIGHUP { // the configuration has just been read
				return false
			}
		default:
			return true
		}
	}
}

// lingering is how long a process that has handed over waits for the next request of each connection.
const lingering = 2 * time.Second

// linger waits until each client has had time to learn that the process has handed over, at most the drain timeout, or
// for a signal.
func (g *Gateway) linger(signals <-chan os.Signal) {
	began := time.Now()
	for left := lingering; left > 0; {
		select {
		case <-time.After(left):
		case <-signals: // SIGHUP too, because there is nothing to reload any more
			return
		}
		if left = 0; g.untold.Load() != nil {
			left = min(lingering-time.Since(*g.untold.Load()), g.timeouts.Drain-time.Since(began))
		}
	}
}

// leave ends the process after it has handed over. The other process accepts all connections from now on, also
// those of administrators.
func (g *Gateway) leave(signals <-chan os.Signal) {
	g.logger.Info("handed over to another process")
	g.leaving.Store(true)
	for _, l := range g.open {
		_ = l.Close()
	}
	g.linger(signals)
	g.drain(signals)
}
