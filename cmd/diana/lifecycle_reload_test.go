// SPDX-License-Identifier: MIT

package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/diana-limiter/diana/internal/redistest"
)

// wayChanges are the values of redis before and after a reload.
var wayChanges = []struct{ name, before, after string }{
	{"timeout", `url: "redis://ADDR", timeout: 400ms`, `url: "redis://ADDR", timeout: 450ms`},
	{"long timeout", `url: "redis://ADDR", timeout: 450ms`, `url: "redis://ADDR", timeout: 10s`},
	{"host", `url: "redis://ADDR", timeout: 10s`, `url: "redis://localhost:PORT", timeout: 10s`},
	{"password", `url: "redis://ADDR", timeout: 10s`, `url: "redis://ADDR", timeout: 10s, username: diana, password: secret`},
}

// wayTo returns a function that puts the address of a Redis into a text of wayChanges.
func wayTo(r *redistest.Server) func(string) string {
	r.Must("ACL", "SETUSER", "diana", "on", ">secret", "~*", "&*", "+@all")
	_, port, _ := strings.Cut(r.Addr(), ":")
	return strings.NewReplacer("ADDR", r.Addr(), "PORT", port).Replace
}

// A change of the connection to Redis keeps the limits exact. Slots that requests hold by the old
// connection stay counted.
func TestReloadOfRedisIsExact(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes seconds of load")
	}
	const n, clients = 1500, 3
	limits := fmt.Sprintf(`
- {url: /w, rules: [{algo: W, unit: 744h, rpu: %d, scope: global}]}
- {url: /c, rules: [{algo: C, rpu: %d, scope: global}]}
`, n, slotsLimit)
	for _, row := range wayChanges {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			way := wayTo(redistest.Start(t))
			r := &room{}
			f := startFleetFor(t, r.hold, slices.Repeat([]string{way(row.before)}, 3), 64, limits)
			s := &slotsFleet{fleet: f, t: t, room: r}
			defer s.leave()
			for g := range f.gateways {
				s.enter(g)
			}
			if r.inside() != 3 {
				t.Errorf("%d are inside, want 3", r.inside())
			}
			reloaded, across := make(chan struct{}), make(chan int)
			stop := sync.OnceValue(func() int {
				close(reloaded)
				return <-across
			})
			defer stop()
			go func() {
				all := f.flood(t, 3, clients, []string{"/w"}, func(int) bool {
					select {
					case <-reloaded:
						return false
					case <-time.After(15 * time.Millisecond):
						return true
					}
				})
				across <- len(admitted(all["/w"]))
			}()
			for _, g := range f.gateways {
				time.Sleep(200 * time.Millisecond) // load
				g.reload(t, fleetYAML(way(row.after), limits))
			}
			time.Sleep(200 * time.Millisecond) // load
			before := stop()
			if before >= n {
				t.Errorf("%d of %d were admitted before the reload had ended, so it tests nothing", before, n)
			}
			left := f.flood(t, 3, clients, []string{"/w"}, func(i int) bool { return i < max(n-before, 0)/clients/3+50 })
			for g := range f.gateways {
				failed := redisErrors.FindString(string(f.gateways[g].tell(t, "/metrics")))
				if strings.Contains(failed, `"timeout"`) {
					t.Skip("the machine is too slow for the timeout")
				} else if failed != "" {
					t.Errorf("gateway %d: %s", g, failed)
				}
			}
			if after := len(admitted(left["/w"])); before+after != n {
				t.Errorf("%d admitted across the reload and %d after it, want %d together", before, after, n)
			}
			r.expect(slotsLimit)
			trying := s.try(0, 1, 2)
			s.awaitFull(t, "after the reload")
			r.release("", 3) // those that have entered by the old way
			s.awaitFull(t, "after the release of the old slots")
			trying.stop()
		})
	}
}

var redisErrors = regexp.MustCompile(`(?m)^diana_redis_errors_total\{.*\} ([1-9].*)$`)

// No gateway ever counts more gateways than exist, also while it changes its connection to Redis.
func TestReloadOfRedisKeepsGateways(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes five seconds")
	}
	const gateways = 3
	way := wayTo(redistest.Start(t))
	limits := "- {url: /, rules: [{algo: W, rpu: 10, scope: global}]}"
	f := startFleet(t, slices.Repeat([]string{way(wayChanges[0].before)}, gateways), 4, limits)
	ended := make(chan struct{})
	var polls sync.WaitGroup
	stop := sync.OnceFunc(func() {
		close(ended)
		polls.Wait()
	})
	defer stop()
	for i, g := range f.gateways {
		polls.Go(func() {
			most, n := 0, 0
			for {
				select {
				case <-ended:
					t.Logf("gateway %d: at most %d gateways in %d polls", i, most, n)
					if most > gateways {
						t.Errorf("gateway %d: %d gateways, want %d", i, most, gateways)
					}
					return
				case <-time.After(20 * time.Millisecond):
					most = max(most, g.status(t).Gateways, int(g.metric(t, "diana_gateways")))
					n++
				}
			}
		})
	}
	begun := time.Now()
	for _, row := range wayChanges {
		for _, g := range f.gateways {
			g.reload(t, fleetYAML(way(row.after), limits))
		}
	}
	time.Sleep(time.Until(begun.Add(5 * time.Second))) // polls
}
