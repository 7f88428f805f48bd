// SPDX-License-Identifier: MIT

//go:build unix

package main

import (
	"fmt"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/diana-limiter/diana/internal/redistest"
	"github.com/diana-limiter/diana/internal/testproc"
)

// A gateway that gets no processor time for a while does not release at once all requests of a
// leaky bucket whose scheduled times have passed.
func TestLateGatewayKeepsSpacing(t *testing.T) {
	t.Parallel()
	const requests, rate, late = 50, 50, 400 * time.Millisecond
	s := newSite(t, nil)
	g := serve(t, fmt.Sprintf(`
redis: {url: %q, %s}
limits:
- {url: /, rules: [{algo: LB, rpu: %d, queue: 100, scope: global}]}
`, redistest.Start(t).URL(), patient, rate), s.upstream.URL)
	for try := 1; ; try++ {
		path := "/try/" + strconv.Itoa(try)
		var load sync.WaitGroup
		t.Cleanup(load.Wait)
		for range requests {
			load.Go(func() { s.allowed(t, g.url+path, 1) })
		}
		if !testproc.Becomes(func() bool { return len(s.arrivals(path)) >= requests/5 }) {
			t.Fatalf("%d requests reached the upstream", len(s.arrivals(path)))
		}
		if err := g.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		time.Sleep(late) // the process is stopped, and nothing happens
		if err := g.cmd.Process.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		resumed := time.Now()
		load.Wait()
		at := s.arrivals(path)
		if len(at) != requests {
			t.Fatalf("%d of %d requests reached the upstream", len(at), requests)
		}
		at = slices.DeleteFunc(at, resumed.After)
		slices.SortFunc(at, time.Time.Compare)
		early := time.Duration(0) // the most by which requests came closer than the bucket says
		for i := range at {
			for k := range i {
				early = max(early, time.Duration(i-k)*time.Second/rate-at[i].Sub(at[k]))
			}
		}
		t.Logf("the gateway was late by %v; %d requests came up to %v too close", late, len(at), early)
		if early < late/2 { // the rest is noise of the machine
			return
		}
		if try == 3 {
			t.Fatalf("requests come up to %v too close", early)
		}
	}
}
