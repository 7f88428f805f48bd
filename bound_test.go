// SPDX-License-Identifier: MIT

package diana_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/internal/redistest"
	"github.com/diana-limiter/diana/internal/testproc"
)

// bound is a configuration with a global rule of one algorithm, and another rule without requests.
const bound = `
max_keys: 5000
redis: {url: %q, timeout: 10s}
limits:
- {url: /flood, rules: [{name: flooded, actor: device, scope: global, %s}]}
- {url: /other, rules: [{name: other, actor: device, unit: day, rpu: 1, scope: global}]}
`

// invent sends requests of n actors, many at a time.
func invent(t *testing.T, l *diana.Limiter, n int) {
	t.Helper()
	const callers = 64
	var wg sync.WaitGroup
	for c := range callers {
		wg.Go(func() {
			for i := c; i < n; i += callers {
				d, err := l.Take(context.Background(), device("/flood", fmt.Sprint("invented ", i)))
				if err != nil {
					t.Error(err)
				}
				d.Done()
			}
		})
	}
	wg.Wait()
}

// countersIn returns how many counters are in a server. Keys of the store itself do not count: their
// names are not hashes of 128 bits.
func countersIn(t *testing.T, r *redistest.Server) (n int) {
	t.Helper()
	keys, ok := r.Must("KEYS", "diana:*").([]any)
	if !ok {
		t.Fatal("KEYS returned no list")
	}
	for _, k := range keys {
		if _, name, _ := strings.Cut(k.(string), ":"); len(name) == 22 {
			n++
		}
	}
	return n
}

// Invented actors make no more counters in Redis than max_keys, whatever the algorithm and on_error.
// A known actor keeps its exact limit.
func TestRedisIsBounded(t *testing.T) {
	t.Parallel()
	const maxKeys, rules = 5000, 2
	invented := 30_000
	if raceEnabled || testing.Short() {
		invented = 7000
	}
	for _, algo := range []string{"TB", "W", "SW", "SL", "LB"} {
		for _, onError := range []string{"share", "closed", "open"} {
			t.Run(algo+"/"+onError, func(t *testing.T) {
				t.Parallel()
				keys := fmt.Sprintf("algo: %s, unit: day, rpu: 20, on_error: %s", algo, onError)
				r := redistest.Start(t)
				l := limiter(t, fmt.Sprintf(bound, r.URL(), keys))
				testproc.Eventually(t, connected(l))
				known := device("/flood", "known")
				used := count(t, l, 5, known)
				invent(t, l, invented)
				if n := countersIn(t, r); n > maxKeys+rules || n < maxKeys/2 {
					t.Errorf("%d counters in Redis, want at most %d and an overflow counter a rule", n, maxKeys)
				}
				if got := count(t, l, 30, known); algo != "LB" && used+got != 20 {
					t.Errorf("the known actor was allowed %d and %d, want 20 in all", used, got)
				}
				if !ask(t, l, device("/other", "new")).Allowed {
					t.Error("a new actor of the other rule has no room")
				}
			})
		}
	}
}

// Slots and refunds reach the counter in Redis that was charged, also when the actor has left the
// overflow counter meanwhile, or is in it for the first time.
func TestRefundsReachTheChargedCounter(t *testing.T) {
	t.Parallel()
	for _, onError := range []string{"share", "local", "closed", "open"} {
		t.Run(onError, func(t *testing.T) {
			t.Parallel()
			r := redistest.Start(t)
			const limits = `
max_keys: 2
redis: {url: %q, timeout: 10s}
limits:
- {url: /slots, rules: [{actor: device, algo: C, rpu: 2, scope: global, on_error: %[2]s}]}
- {url: /failures, rules: [{actor: device, algo: W, unit: day, rpu: 2, scope: global, charge: [401], on_error: %[2]s}]}
`
			l := limiter(t, fmt.Sprintf(limits, r.URL(), onError))
			testproc.Eventually(t, connected(l))
			take := func(path, id string, allowed bool) diana.Decision {
				t.Helper()
				d, err := l.Take(context.Background(), device(path, id))
				if err != nil || d.Allowed != allowed {
					t.Fatalf("%s of %s: allowed %v, %v; want %v", path, id, d.Allowed, err, allowed)
				}
				return d
			}
			release := func(all ...diana.Decision) {
				for _, d := range all {
					d.Done()
				}
			}
			// Redis learns of a release with the next call.
			free := func(path, id string) {
				t.Helper()
				testproc.Eventually(t, func() bool { return ask(t, l, device(path, id)).Allowed })
			}

			a, b := take("/slots", "a", true), take("/slots", "b", true)
			c, d := take("/slots", "c", true), take("/slots", "d", true) // share 2
			release(take("/slots", "e", false), a)                       // a's record is free
			e := take("/slots", "e", true)                               // by itself
			release(c)                                                   // of the overflow counter
			free("/slots", "f")                                          // which shares that
			f := take("/slots", "f", true)
			release(take("/slots", "g", false))
			release(take("/slots", "e", true)) // e has a second slot of its own
			release(b, d, e, f)
			testproc.Eventually(t, func() bool { return countersIn(t, r) == 0 })

			a, b = take("/failures", "a", true), take("/failures", "b", true)
			c, d = take("/failures", "c", true), take("/failures", "d", true) // share 2
			release(take("/failures", "e", false))
			c.SetStatus(200)
			free("/failures", "e")
			release(take("/failures", "f", false)) // e stays charged
			a.SetStatus(200)
			release(a, b, c, d)
			if got := count(t, l, 5, device("/failures", "b")); got != 1 {
				t.Errorf("b is allowed %d more, want 1", got)
			}
		})
	}
}

// A flood of invented actors does not stop global counting in a Redis that evicts nothing, if it has
// memory for max_keys actors.
func TestFloodedRedisKeepsCounting(t *testing.T) {
	t.Parallel()
	if raceEnabled || testing.Short() {
		t.Skip("50,000 requests")
	}
	r := redistest.Start(t, "--maxmemory", "4mb", "--maxmemory-policy", "noeviction")
	l := limiter(t, fmt.Sprintf(bound, r.URL(), "algo: TB, unit: day, rpu: 20"))
	testproc.Eventually(t, connected(l))
	invent(t, l, 50_000)
	s := l.Status()
	if s.Degraded || s.Fallback > 0 || len(l.RedisErrors()) > 0 {
		t.Errorf("degraded %v, %d requests without Redis, errors %v; want all counted in Redis", s.Degraded, s.Fallback, l.RedisErrors())
	}
	if !ask(t, l, device("/other", "new")).Allowed {
		t.Error("a new actor of another rule is refused")
	}
}
