// SPDX-License-Identifier: MIT

package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/diana-limiter/diana/internal/testproc"
)

// The running program keeps the promises of the algorithms under 64 clients. The test measures from
// outside: it knows when a request was sent, when the upstream received it and when its answer
// came. Every bound follows from these times by the promise alone, however slow the machine is.

const clients = 64

// seen is one request as its client saw it.
type seen struct {
	sent, answered time.Time
	arrived        time.Time // at the upstream; zero if that is not known
	status         int
}

// promise is a running gateway with an upstream that records what reaches it.
type promise struct {
	gateway string
	client  *http.Client

	mu      sync.Mutex
	arrived map[string][]time.Time // at the upstream, by path
}

func newPromise(t *testing.T, yaml string, upstream func(path string)) *promise {
	t.Helper()
	p := &promise{arrived: map[string][]time.Time{}}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.mu.Lock()
		p.arrived[r.URL.Path] = append(p.arrived[r.URL.Path], time.Now())
		p.mu.Unlock()
		if upstream != nil {
			upstream(r.URL.Path)
		}
	}))
	t.Cleanup(server.Close)

	p.gateway = serve(t, yaml, server.URL).url
	transport := &http.Transport{MaxIdleConnsPerHost: clients}
	t.Cleanup(transport.CloseIdleConnections)
	p.client = &http.Client{Transport: transport}
	return p
}

// flood sends requests for path from all clients, each one after another, as long as more returns
// true, and returns the answers.
func (p *promise) flood(t *testing.T, path string, more func(i int) bool) (all []seen) {
	t.Helper()
	return p.floodBy(t, clients, path, more)
}

// floodBy is flood with fewer clients.
func (p *promise) floodBy(t *testing.T, clients int, path string, more func(i int) bool) (all []seen) {
	t.Helper()
	var mu sync.Mutex
	var wg sync.WaitGroup
	for range clients {
		wg.Go(func() {
			var own []seen
			for i := 0; more(i); i++ {
				s := seen{sent: time.Now()}
				r, err := p.client.Get(p.gateway + path)
				if err != nil {
					t.Error(err)
					return
				}
				_, _ = io.Copy(io.Discard, r.Body)
				_ = r.Body.Close()
				s.answered, s.status = time.Now(), r.StatusCode
				if s.status != http.StatusOK && s.status != http.StatusServiceUnavailable {
					t.Errorf("%s: status %d", path, s.status)
				}
				own = append(own, s)
			}
			mu.Lock()
			defer mu.Unlock()
			all = append(all, own...)
		})
	}
	wg.Wait()
	return all
}

func admitted(all []seen) (ok []seen) {
	for _, s := range all {
		if s.status == http.StatusOK {
			ok = append(ok, s)
		}
	}
	return ok
}

// until returns a condition that is true until d has passed.
func until(d time.Duration) func(int) bool {
	end := time.Now().Add(d)
	return func(int) bool { return time.Now().Before(end) }
}

func once(i int) bool { return i == 0 }

func TestPromises(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds of load")
	}
	var inside, most atomic.Int64
	var hold sync.RWMutex
	p := newPromise(t, `
- {url: /w, rules: [{algo: W, rpu: 50}]}
- {url: /tb, rules: [{algo: TB, rpu: 20, burst: 40}]}
- {url: /sw, rules: [{algo: SW, rpu: 50}]}
- {url: /sl, rules: [{algo: SL, rpu: 50}]}
- {url: /lb, rules: [{algo: LB, rpu: 4, queue: 5}]}
- {url: /c, rules: [{algo: C, rpu: 5}]}
- {url: /both, rules: [{algo: TB, rpu: 20, unit: day}]}
- {url: /both/narrow, rules: [{algo: W, rpu: 5, unit: 700h}]}
`, func(path string) {
		if !strings.HasPrefix(path, "/c") {
			return
		}
		now := inside.Add(1)
		for m := most.Load(); now > m && !most.CompareAndSwap(m, now); m = most.Load() {
		}
		hold.RLock() // the test decides when those inside may leave
		defer hold.RUnlock()
		inside.Add(-1)
	})

	// Four algorithms at once, each with a quarter of the clients.
	floods := map[string][]seen{}
	var mu sync.Mutex
	var together sync.WaitGroup
	for _, path := range []string{"/w", "/tb", "/sw", "/sl"} {
		together.Go(func() {
			all := p.floodBy(t, clients/4, path, until(3500*time.Millisecond))
			mu.Lock()
			defer mu.Unlock()
			floods[path] = all
		})
	}
	together.Wait()

	t.Run("W admits exactly rpu in every window", func(t *testing.T) {
		all := floods["/w"]
		checkWindows(t, all, 50)
		if n, ok := len(p.arrived["/w"]), len(admitted(all)); n != ok {
			t.Errorf("%d reached the upstream, of %d that were admitted", n, ok)
		}
	})

	t.Run("TB admits burst plus refill", func(t *testing.T) {
		checkBucket(t, "/tb", floods["/tb"], 20, 40)
	})

	for path, remembered := range map[string]time.Duration{
		"/sw": 1100 * time.Millisecond, // ten slices and the one that has begun
		"/sl": time.Second,
	} {
		t.Run(strings.ToUpper(path[1:])+" admits at most rpu in any interval of a unit", func(t *testing.T) {
			checkSliding(t, path, floods[path], 50, remembered)
		})
	}

	t.Run("LB spaces and refuses overflow at once", func(t *testing.T) {
		const step = 250 * time.Millisecond
		all := p.flood(t, "/lb", once)
		ok := admitted(all)
		begin, _ := span(all)
		arrived := p.arrived["/lb"]
		slices.SortFunc(arrived, time.Time.Compare)
		for i, at := range arrived {
			if early := begin.Add(time.Duration(i) * step).Sub(at); early > 0 {
				t.Errorf("request %d went on %v before its turn", i, early)
			}
		}
		var refused, sent time.Time // when the last refusal had come, and the last was sent
		slowest := time.Duration(0) // refusal
		for _, s := range all {
			if s.sent.After(sent) {
				sent = s.sent
			}
			if s.status == http.StatusOK {
				continue
			}
			if s.answered.After(refused) {
				refused = s.answered
			}
			slowest = max(slowest, s.answered.Sub(s.sent))
		}
		if last := arrived[len(arrived)-1]; !refused.Before(last) {
			t.Errorf("the last refusal was %v after the last allowed request", refused.Sub(last))
		}
		// One request is allowed at once, and five wait. Each step that the arrivals took adds
		// one, because the last request can arrive after all others have been refused.
		if spent := int(max(refused.Sub(begin), sent.Add(slowest).Sub(begin)) / step); len(ok) < 6 || len(ok) > 6+spent {
			t.Errorf("%d admitted, want 6 to %d", len(ok), 6+spent)
		}
	})

	t.Run("C lets at most n inside", func(t *testing.T) {
		hold.Lock()
		var all []seen
		var wg sync.WaitGroup
		wg.Go(func() { all = p.flood(t, "/c", once) })
		// All but five are refused while those five hold their slots.
		if !testproc.Becomes(func() bool { return inside.Load() == 5 }) {
			t.Errorf("%d are inside, want 5", inside.Load())
		}
		hold.Unlock()
		wg.Wait()
		if len(admitted(all)) < 5 {
			t.Errorf("%d were admitted, want 5 at least", len(admitted(all)))
		}
		all = p.flood(t, "/c", func(i int) bool { return i < 50 })
		if most.Load() != 5 {
			t.Errorf("%d were inside at once, want at most 5, and 5 at some time", most.Load())
		}
		t.Logf("%d of %d admitted", len(admitted(all)), len(all))
		hold.Lock()
		defer hold.Unlock()
		wg.Go(func() { p.flood(t, "/c", once) })
		if !testproc.Becomes(func() bool { return inside.Load() == 5 }) {
			t.Errorf("%d places are free after all have left, want 5", inside.Load())
		}
		hold.Unlock()
		wg.Wait()
		hold.Lock()
	})

	t.Run("a refused request is charged to none", func(t *testing.T) {
		narrow := p.flood(t, "/both/narrow", func(i int) bool { return i < 20 })
		if n := len(admitted(narrow)); n != 5 {
			t.Errorf("/both/narrow: %d of %d admitted, want 5", n, len(narrow))
		}
		wide := p.flood(t, "/both", func(i int) bool { return i < 5 })
		if n := len(admitted(wide)); n != 15 {
			t.Errorf("/both: %d of %d admitted, want the 15 that are left of 20", n, len(wide))
		}
	})
}

// span returns when the first request was sent and the last one answered.
func span(all []seen) (begin, end time.Time) {
	begin = all[0].sent
	for _, s := range all {
		if s.sent.Before(begin) {
			begin = s.sent
		}
		if s.answered.After(end) {
			end = s.answered
		}
	}
	return begin, end
}
