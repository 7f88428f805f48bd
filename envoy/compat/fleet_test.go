// SPDX-License-Identifier: MIT

package compat

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"
	"google.golang.org/grpc/status"

	"github.com/diana-limiter/diana/internal/redistest"
	"github.com/diana-limiter/diana/internal/testproc"
)

// callers is how many goroutines ask at once, and fleetLimit the limit of every algorithm.
const (
	callers    = 64
	fleetLimit = 300
)

var fleetAlgorithms = []string{"W", "TB", "SW", "SL"}

// fleet is three processes and one Redis, behind one client that asks them in turn.
type fleet struct {
	redis   *redistest.Server
	members []*server
	client  rls.RateLimitServiceClient
}

func startFleet(t *testing.T, way string) *fleet {
	t.Helper()
	text := "domain: fleet\ndescriptors:\n"
	for _, a := range fleetAlgorithms {
		text += fmt.Sprintf("- {key: %s, rate_limit: {unit: month, requests_per_unit: %d, algo: %s}}\n", a, fleetLimit, a)
	}
	file := write(t, filepath.Join(t.TempDir(), "fleet.yaml"), text)
	f := &fleet{redis: redistest.Start(t)}
	var addresses []resolver.Address
	for range 3 {
		s := startDiana(t, fmt.Sprintf("url: %q, %s", f.redis.URL(), way), file)
		f.members = append(f.members, s)
		addresses = append(addresses, resolver.Address{Addr: s.addr})
	}
	for _, s := range f.members {
		testproc.Eventually(t, func() bool { return s.metric(t, "diana_gateways") == "3" })
	}
	r := manual.NewBuilderWithScheme("fleet")
	r.InitialState(resolver.State{Addresses: addresses})
	conn, err := grpc.NewClient("fleet:///", grpc.WithResolvers(r), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultServiceConfig(`{"loadBalancingConfig": [{"round_robin": {}}]}`))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	f.client = rls.NewRateLimitServiceClient(conn)
	return f
}

var adminAddress = regexp.MustCompile(`(?m)^diana: admin on (\S+)$`)

// metric returns the value of a metric of the descriptors.
func (s *server) metric(t *testing.T, name string) string {
	t.Helper()
	r, err := http.Get(adminAddress.FindStringSubmatch(s.logged())[1] + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(body(t, r)) {
		if value, ok := strings.CutPrefix(line, name+`{limits="descriptors"} `); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// counts is how requests were answered.
type counts struct{ ok, over, failed int64 }

// flood lets all callers ask for one descriptor, each so many times. It calls on with the number of each
// request.
func (f *fleet) flood(t *testing.T, descriptor string, each int, on func(n int64)) (c counts) {
	t.Helper()
	var asked atomic.Int64
	var wg sync.WaitGroup
	q := question("fleet", 0, descriptor)
	for range callers {
		wg.Go(func() {
			for range each {
				on(asked.Add(1))
				r, err := f.client.ShouldRateLimit(context.Background(), q)
				switch {
				case status.Code(err) == codes.Unavailable:
					atomic.AddInt64(&c.failed, 1)
				case err != nil:
					t.Error(err)
				case r.GetOverallCode() == rls.RateLimitResponse_OK:
					atomic.AddInt64(&c.ok, 1)
				default:
					atomic.AddInt64(&c.over, 1)
				}
			}
		})
	}
	wg.Wait()
	return c
}

func nothing(int64) {}

// The processes admit together exactly what one limit promises.
func TestFleetIsExact(t *testing.T) {
	t.Parallel()
	f := startFleet(t, "timeout: 10s")
	for _, a := range fleetAlgorithms {
		if c := f.flood(t, a+"=one", 20, nothing); c != (counts{ok: fleetLimit, over: callers*20 - fleetLimit}) {
			t.Errorf("%s: %+v, want %d requests admitted", a, c, fleetLimit)
		}
	}
	for i, s := range f.members {
		if !strings.Contains(s.logged(), "msg=refusal") {
			t.Errorf("process %d was not asked", i)
		}
	}
}

// When a process is killed, at most the calls in flight fail, and nothing is admitted twice.
func TestFleetLosesOne(t *testing.T) {
	t.Parallel()
	f := startFleet(t, "timeout: 10s")
	var killed sync.WaitGroup
	c := f.flood(t, "W=killed", 30, func(n int64) {
		if n == fleetLimit/2 {
			killed.Go(func() {
				if err := f.members[0].Kill(); err != nil {
					t.Error(err)
				}
			})
		}
	})
	killed.Wait()
	t.Logf("%+v", c)
	if c.failed > callers {
		t.Errorf("%d calls failed, want at most the %d in flight", c.failed, callers)
	}
	if c.ok > fleetLimit || c.ok < fleetLimit-c.failed {
		t.Errorf("%d requests are admitted and %d failed, want %d together", c.ok, c.failed, fleetLimit)
	}
}

// When Redis is killed and returns without its memory, nothing fails, and the bound of DESIGN.md holds:
// n + (g-1)·s + c.
func TestFleetLosesRedis(t *testing.T) {
	t.Parallel()
	f := startFleet(t, "timeout: 1s")
	const counted, share, each = 128, fleetLimit / 3, 20
	before := f.flood(t, "W=outage", counted/callers, nothing)
	if before != (counts{ok: counted}) {
		t.Fatalf("%+v, want all of %d admitted", before, counted)
	}
	f.redis.Kill()
	alone := f.flood(t, "W=outage", each, nothing)
	for _, s := range f.members {
		testproc.Eventually(t, func() bool { return s.metric(t, "diana_degraded") == "1" })
	}
	f.redis.Restart()
	for _, s := range f.members {
		testproc.Eventually(t, func() bool { return s.metric(t, "diana_degraded") == "0" })
	}
	back := f.flood(t, "W=outage", each, nothing)
	time.Sleep(2500 * time.Millisecond) // shares apply too for two seconds
	after := f.flood(t, "W=outage", each, nothing)
	t.Logf("before %+v, without Redis %+v, with Redis back %+v, after %+v", before, alone, back, after)
	if n := alone.failed + back.failed + after.failed; n > 0 {
		t.Errorf("%d calls failed", n)
	}
	if sum, most := before.ok+alone.ok+back.ok+after.ok, int64(fleetLimit+2*share+counted); sum > most || sum < fleetLimit {
		t.Errorf("%d requests are admitted, want %d to %d", sum, fleetLimit, most)
	}
}
