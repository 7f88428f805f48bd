// SPDX-License-Identifier: MIT

package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/diana-limiter/diana/internal/race"
	"github.com/diana-limiter/diana/internal/redistest"
	"github.com/diana-limiter/diana/internal/testproc"
)

var (
	deploys = flag.Int("deploys", 3, "how many gateways TestRollingDeploy replaces, one after another")
	drains  = flag.Int("drains", 24, "how many gateways TestDrainLosesNothing stops under load")
)

// patient is a timeout of Redis that no busy machine exceeds. So a gateway never decides
// without Redis by mistake, and counts are exact.
const patient = "timeout: 10s"

// site is an upstream that records each arrival. A test starts and stops gateways in front of it.
type site struct {
	upstream *httptest.Server
	client   *http.Client

	mu      sync.Mutex
	arrived map[string][]time.Time // by path
}

// newSite starts an upstream. handle writes the answers; nil means an empty answer.
func newSite(t *testing.T, handle http.HandlerFunc) *site {
	t.Helper()
	s := &site{arrived: map[string][]time.Time{}}
	s.upstream = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.arrived[r.URL.Path] = append(s.arrived[r.URL.Path], time.Now())
		s.mu.Unlock()
		if handle != nil {
			handle(w, r)
		}
	}))
	t.Cleanup(s.upstream.Close)
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, network, address)
		return &resettable{Conn: c}, err
	}
	transport := &http.Transport{MaxIdleConnsPerHost: 64, DialContext: dial}
	t.Cleanup(transport.CloseIdleConnections)
	s.client = &http.Client{Transport: transport}
	return s
}

// resettable is a connection that says again that it was reset. A socket says it once. If a write got that error,
// the next read finds the end of the stream, as if a gateway had read the request and had not answered.
type resettable struct {
	net.Conn

	mu     sync.Mutex // held while a write runs
	failed error      // of the last write
}

func (c *resettable) Write(p []byte) (n int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n, c.failed = c.Conn.Write(p)
	return n, c.failed
}

func (c *resettable) Read(p []byte) (n int, err error) {
	if n, err = c.Conn.Read(p); errors.Is(err, io.EOF) {
		c.mu.Lock()
		defer c.mu.Unlock()
		err = cmp.Or(c.failed, err)
	}
	return n, err
}

// arrivals returns the times at which requests for a path reached the upstream.
func (s *site) arrivals(path string) []time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.arrived[path])
}

// ask sends one request and returns what the client saw, with a status of 0 after an error.
// Any goroutine may call it.
func (s *site) ask(url string) (seen, error) {
	one := seen{sent: time.Now()}
	r, err := s.client.Get(url)
	if err == nil {
		_, err = io.Copy(io.Discard, r.Body)
		_ = r.Body.Close()
		one.status = r.StatusCode
	}
	one.answered = time.Now()
	return one, err
}

var remainingMember = regexp.MustCompile(`"(\w+)";r=(\d+)`)

// remaining sends one request and returns the remaining requests of each rule after it.
func (s *site) remaining(url string) (map[string]int, error) {
	r, err := s.client.Get(url)
	if err != nil {
		return nil, err
	}
	_, _ = io.Copy(io.Discard, r.Body)
	_ = r.Body.Close()
	left := map[string]int{}
	for _, m := range remainingMember.FindAllStringSubmatch(r.Header.Get("RateLimit"), -1) {
		left[m[1]], err = strconv.Atoi(m[2])
	}
	return left, err
}

// allowed sends requests one after another and returns how many reached the upstream. It fails the
// test if an answer is neither 200 nor 503.
func (s *site) allowed(t *testing.T, url string, requests int) (ok int) {
	t.Helper()
	for range requests {
		one, err := s.ask(url)
		switch {
		case err != nil || one.status != http.StatusOK && one.status != http.StatusServiceUnavailable:
			t.Errorf("%s: status %d, %v", url, one.status, err)
		case one.status == http.StatusOK:
			ok++
		}
	}
	return ok
}

// Gateways that start at the same time, and are flooded from the moment they print their
// addresses, admit together exactly the limit. A gateway that starts later admits nothing.
func TestStartIsExact(t *testing.T) {
	t.Parallel()
	const n, requests = 200, 100 // requests of each client for each path
	slots := &room{}
	s := newSite(t, slots.hold)
	yaml := fmt.Sprintf(`
redis: {url: %q, %s}
limits:
- {url: /w, rules: [{algo: W, unit: 744h, rpu: %[3]d, scope: global}]}
- {url: /tb, rules: [{algo: TB, unit: 744h, rpu: %[3]d, scope: global}]}
- {url: /sl, rules: [{algo: SL, unit: 744h, rpu: %[3]d, scope: global}]}
- {url: /c, rules: [{algo: C, rpu: %[3]d, scope: global}]}
`, redistest.Start(t).URL(), patient, n)
	windows := []string{"/w", "/tb", "/sl"}

	var gateways []*served
	for range 3 {
		gateways = append(gateways, launch(t, yaml, s.upstream.URL))
	}
	var refused atomic.Int64 // of the requests for /c
	var flood sync.WaitGroup
	for _, g := range gateways {
		flood.Go(func() {
			if !testproc.Becomes(g.listens) {
				t.Errorf("no addresses: %q", g.stdout.String())
				return
			}
			for range 4 {
				flood.Go(func() {
					for range requests {
						for _, path := range windows {
							s.allowed(t, g.url+path, 1)
						}
					}
				})
			}
			for range n / 2 {
				flood.Go(func() { // until the test releases its slot
					refused.Add(int64(1 - s.allowed(t, g.url+"/c", 1)))
				})
			}
		})
	}
	defer flood.Wait()
	defer slots.release("", 3*n)
	if !testproc.Becomes(func() bool { return refused.Load() == n/2 && slots.inside() == n }) {
		t.Fatalf("/c: %d requests are inside and %d refused, want %d and %d", slots.inside(), refused.Load(), n, n/2)
	}

	late := serve(t, yaml, s.upstream.URL)
	if ok := s.allowed(t, late.url+"/c", 10); ok > 0 {
		t.Errorf("/c: a late gateway admits %d", ok)
	}
	slots.release("", n)
	flood.Wait()
	for _, path := range windows {
		if got := len(s.arrivals(path)); got != n {
			t.Errorf("%s: %d requests reached the upstream, want %d", path, got, n)
		}
	}
	later := serve(t, yaml, s.upstream.URL)
	for _, path := range windows {
		if ok := s.allowed(t, later.url+path, 10); ok > 0 {
			t.Errorf("%s: a late gateway admits %d", path, ok)
		}
	}
}

// TestRollingDeploy replaces gateways under load, one after another: SIGTERM, the end of the
// old process, the start of the new one. Every limit stays exact meanwhile. For longer:
//
//	go test -run TestRollingDeploy -v -deploys 60
func TestRollingDeploy(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes seconds of load")
	}
	const slots, each = 4, 2 // each: clients of a gateway for each path
	n := 40
	if race.Enabled {
		n = 4
	}
	var inside, most atomic.Int64
	s := newSite(t, func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/c" {
			return
		}
		now := inside.Add(1)
		for m := most.Load(); now > m && !most.CompareAndSwap(m, now); m = most.Load() {
		}
		time.Sleep(5 * time.Millisecond) // the work of the upstream
		inside.Add(-1)
	})
	yaml := fmt.Sprintf(`
redis: {url: %q, %s}
limits:
- {url: /w, rules: [{algo: W, rpu: %[3]d, scope: global}]}
- {url: /sw, rules: [{algo: SW, rpu: %[3]d, scope: global}]}
- {url: /sl, rules: [{algo: SL, rpu: %[3]d, scope: global}]}
- {url: /tb, rules: [{algo: TB, rpu: %[3]d, burst: %[4]d, scope: global}]}
- {url: /lb, rules: [{algo: LB, rpu: %[3]d, queue: 5, scope: global}]}
- {url: /c, rules: [{algo: C, rpu: %[5]d, scope: global}]}
`, redistest.Start(t).URL(), patient, n, 2*n, slots)
	paths := []string{"/w", "/sw", "/sl", "/tb", "/lb", "/c"}

	var gateways [3]atomic.Pointer[served]
	for i := range gateways {
		gateways[i].Store(serve(t, yaml, s.upstream.URL))
	}
	all := map[string][]seen{}
	var mu sync.Mutex
	var load sync.WaitGroup
	ended := make(chan struct{})
	stop := sync.OnceFunc(func() {
		close(ended)
		load.Wait()
	})
	defer stop()
	for i := range gateways {
		for _, path := range paths {
			for range each {
				load.Go(func() {
					for at := i; ; {
						select {
						case <-ended:
							return
						case <-time.After(20 * time.Millisecond):
						}
						one, err := s.ask(gateways[at].Load().url + path)
						if unseen(err) {
							at = (at + 1) % len(gateways)
							continue
						}
						if err != nil {
							t.Errorf("%s: %v", path, err)
							return
						}
						mu.Lock()
						all[path] = append(all[path], one)
						mu.Unlock()
						at = i
					}
				})
			}
		}
	}
	for k := range *deploys {
		if t.Failed() {
			break
		}
		time.Sleep(300 * time.Millisecond) // load
		g := &gateways[k%len(gateways)]
		g.Load().stop(t)
		g.Store(serve(t, yaml, s.upstream.URL))
	}
	time.Sleep(1200 * time.Millisecond) // load over one window at least
	stop()

	for _, path := range paths {
		if arrived, ok := len(s.arrivals(path)), len(admitted(all[path])); arrived != ok {
			t.Errorf("%s: %d requests reached the upstream, of %d with the answer 200", path, arrived, ok)
		}
	}
	checkWindows(t, all["/w"], n)
	checkBucket(t, "/tb", all["/tb"], n, 2*n)
	checkSliding(t, "/sw", all["/sw"], n, 1100*time.Millisecond) // ten slices and the one that has begun
	checkSliding(t, "/sl", all["/sl"], n, time.Second)
	checkLeaky(t, "/lb", all["/lb"], n)
	if most.Load() > slots || len(refused(all["/c"])) == 0 {
		t.Errorf("/c: %d were inside at once, want %d at most; %d refused", most.Load(), slots, len(refused(all["/c"])))
	}
	t.Logf("/c: %d of %d admitted, %d at most inside", len(admitted(all["/c"])), len(all["/c"]), most.Load())
}

// unseen reports whether an error says that no gateway has read the request: nothing listened, or
// the listener was closed before the gateway accepted the connection. See resettable.
func unseen(err error) bool {
	return errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ECONNRESET)
}

// checkLeaky checks that any interval has at most the scheduled times that fit into it. The scheduled time
// of a request lies between sent and answered.
func checkLeaky(t *testing.T, path string, all []seen, n int) {
	t.Helper()
	ok := admitted(all)
	slices.SortFunc(ok, func(a, b seen) int { return a.answered.Compare(b.answered) })
	worst := 0
	for _, first := range ok {
		surely := 0
		for _, s := range ok {
			if s.sent.Before(first.sent) {
				continue
			}
			surely++
			fit := 1 + int(int64(n)*s.answered.Sub(first.sent).Microseconds()/1e6)
			worst = max(worst, surely-fit)
		}
	}
	if worst > 0 {
		t.Errorf("%s: %d too many proceeded within an interval", path, worst)
	}
	t.Logf("%s: %d of %d admitted", path, len(ok), len(all))
}

// Gateways that stop under load lose no refund and release every slot. For more:
//
//	go test -run TestDrainLosesNothing -v -drains 100
func TestDrainLosesNothing(t *testing.T) {
	t.Parallel()
	const n, clients = 1_000_000, 24
	s := newSite(t, nil)
	yaml := fmt.Sprintf(`
redis: {url: %q, %s}
response: {headers: true}
limits:
- url: /
  rules:
    - {name: attempts, actor: "query:run", algo: W, unit: 744h, rpu: %d, charge: [401], scope: global}
    - {name: slots, actor: "query:run", algo: C, rpu: %[3]d, scope: global}
`, redistest.Start(t).URL(), patient, n)
	other := serve(t, yaml, s.upstream.URL)
	lost := 0
	for run := range *drains {
		g := serve(t, yaml, s.upstream.URL)
		path := "/?run=" + strconv.Itoa(run)
		var load sync.WaitGroup
		var answered atomic.Int64
		for range clients {
			load.Go(func() {
				for {
					one, err := s.ask(g.url + path)
					if err != nil {
						return
					}
					if answered.Add(1); one.status != http.StatusOK {
						t.Errorf("status %d", one.status)
						return
					}
				}
			})
		}
		if !testproc.Becomes(func() bool { return answered.Load() > 200 }) {
			t.Fatalf("%d answers", answered.Load())
		}
		g.stop(t)
		load.Wait()
		left, err := s.remaining(other.url + path)
		if err != nil {
			t.Fatal(err)
		}
		if left["attempts"] != n-1 || left["slots"] != n-1 {
			lost++
			t.Errorf("drain %d of %d answers: after one more request, of %d attempts %d are used and of as many slots %d are taken, want 1 of each",
				run, answered.Load(), n, n-left["attempts"], n-left["slots"])
		}
	}
	t.Logf("%d of %d drains lost something", lost, *drains)
}

// A connection that was reset before the request says so, and not that the gateway has closed it.
func TestResettable(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c, err := s.client.Transport.(*http.Transport).DialContext(t.Context(), "tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = l.Close() // nobody has accepted c
	if _, err := c.Write([]byte("x")); !unseen(err) {
		t.Errorf("the write: %v, expected a reset", err)
	}
	if _, err := c.Read(make([]byte, 1)); !unseen(err) {
		t.Errorf("the read: %v, expected a reset", err)
	}
}
