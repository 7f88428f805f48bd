// SPDX-License-Identifier: MIT

package main

import (
	"flag"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/diana-limiter/diana/internal/redistest"
	"github.com/diana-limiter/diana/internal/testproc"
)

var soak = flag.Duration("soak", 15*time.Second, "how long TestSoak has Redis go and come back")

// outageEvery is the time between outages of Redis.
const outageEvery = 7 * time.Second

// size is what must not grow.
type size struct{ goroutines, heap, resident float64 }

func (s *served) size(t *testing.T) size {
	t.Helper()
	return size{
		s.metric(t, "go_goroutines"),
		s.metric(t, "go_memstats_heap_inuse_bytes"),
		s.metric(t, "process_resident_memory_bytes"),
	}
}

func (s size) String() string {
	return fmt.Sprintf("%.0f goroutines, heap %.1f MB, resident %.1f MB", s.goroutines, s.heap/1e6, s.resident/1e6)
}

// TestSoak kills and freezes Redis in turns, under load, for as long as -soak says. Gateways and
// Redis must be no larger at the end than after the first outage. The test logs a line each minute.
// For longer:
//
//	go test -run TestSoak -v -soak 10m -timeout 15m
func TestSoak(t *testing.T) {
	if testing.Short() {
		t.Skip("takes fifteen seconds of load")
	}
	t.Setenv("GOGC", "100") // without the floor of heapFloor, whose garbage would hide a leak
	const clients = 8       // of each gateway
	const actors = 3 * 1000 // so many that all the room for actors is used at once
	r := redistest.Start(t)
	way := fmt.Sprintf("url: %q, timeout: 50ms", r.URL())
	f := startFleet(t, []string{way, way, way}, clients, `
- {url: /, rules: [{algo: W, rpu: 300, scope: global}]}
- url: /s
  rules:
    - {actor: "query:actor", algo: TB, rpu: 2, scope: global}
    - {actor: "query:actor", algo: SL, rpu: 3, scope: global}
    - {algo: C, rpu: 20, scope: global}
`)
	idle := make([]size, 3)
	for i, g := range f.gateways {
		idle[i] = g.size(t)
	}

	var sent, ok atomic.Int64
	under := func(during func()) { // load
		stop := make(chan struct{})
		var wg sync.WaitGroup
		for g := range f.gateways {
			for range clients {
				wg.Go(func() {
					pace := time.NewTicker(20 * time.Millisecond)
					defer pace.Stop()
					for {
						select {
						case <-pace.C:
						case <-stop:
							return
						}
						n := sent.Add(1)
						if f.ask(t, g, fmt.Sprintf("/s?actor=%d", n%actors)).status == 200 {
							ok.Add(1)
						}
					}
				})
			}
		}
		defer wg.Wait()
		defer close(stop)
		during()
	}
	outages, healed := 0, time.Now()
	cycle := func() {
		outages++
		time.Sleep(time.Until(healed.Add(outageEvery / 2)))
		harm, heal := r.Kill, r.Restart
		if outages%2 == 0 {
			harm, heal = r.Freeze, r.Thaw
		}
		harm()
		for i := range f.gateways {
			f.awaitDegraded(t, i, true)
		}
		time.Sleep(time.Until(healed.Add(outageEvery)))
		heal()
		healed = time.Now()
		for i := range f.gateways {
			f.awaitDegraded(t, i, false)
		}
	}
	// rest waits until no client sends requests and all expired keys are gone.
	rest := func() (now []size) {
		f.client.CloseIdleConnections()
		f.upstream.CloseClientConnections()
		for i, g := range f.gateways {
			if !testproc.Becomes(func() bool { return g.metric(t, "go_goroutines") <= idle[i].goroutines+20 }) {
				t.Errorf("gateway %d has %v goroutines, and had %v before the load", i, g.metric(t, "go_goroutines"), idle[i].goroutines)
			}
			now = append(now, g.size(t))
		}
		// The remaining keys are the set of gateways, the receipts of each, the epoch, and the counter of
		// slots. Those of minutes live for a day.
		keys := func() int64 {
			all, _ := r.Must("DBSIZE").(int64)
			minutes, _ := r.Must("KEYS", "*:minute:*").([]any)
			return all - int64(len(minutes))
		}
		if !testproc.Becomes(func() bool { return keys() <= 6 }) {
			t.Errorf("Redis still has %d keys", keys())
		}
		return now
	}

	begin := time.Now()
	under(cycle)
	warm := rest()
	under(func() {
		minute := begin.Add(time.Minute)
		healed = time.Now()
		for more := true; more && !t.Failed(); more = time.Since(begin)+outageEvery < *soak {
			cycle()
			if time.Now().After(minute) {
				minute = minute.Add(time.Minute)
				t.Logf("%v: %d outages, %d of %d requests admitted, %v keys; %v; %v; %v", time.Since(begin).Round(time.Second), outages, ok.Load(), sent.Load(),
					r.Must("DBSIZE"), f.gateways[0].size(t), f.gateways[1].size(t), f.gateways[2].size(t))
			}
		}
	})
	for i, now := range rest() {
		if now.heap > 2*warm[i].heap+16e6 {
			t.Errorf("gateway %d has grown: %v after the first outage, %v after %d", i, warm[i], now, outages)
		}
		t.Logf("gateway %d: %v idle; %v after the first outage; %v after %d outages in %v", i, idle[i], warm[i], now, outages, time.Since(begin).Round(time.Second))
	}
	t.Logf("%d of %d requests admitted", ok.Load(), sent.Load())
}
