// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/diana-limiter/diana/internal/race"
	"github.com/diana-limiter/diana/internal/redistest"
	"github.com/diana-limiter/diana/internal/testproc"
)

var churnFor = flag.Duration("churn", 8*time.Second, "how long TestChurn reloads, restarts and disconnects")

// TestChurn reloads random configurations, restarts and freezes Redis, and disconnects clients in
// the middle of requests, all at once and under load. Afterwards the gateways must not be larger
// than after the first part, the warm-up. The test logs a line each minute. For longer:
//
//	go test -run TestChurn -v -churn 15m -timeout 20m
func TestChurn(t *testing.T) {
	if testing.Short() {
		t.Skip("takes ten seconds of load")
	}
	c := startChurn(t)
	warmUp := min(*churnFor/4, 2*time.Minute)
	c.run(warmUp)
	warm := c.quiet(nil)
	c.run(*churnFor - warmUp)
	end := c.quiet(warm)
	for i, g := range c.gateways {
		if n, err := metricIn(g.tell(t, "/metrics"), `diana_config_reloads_total{result="error",source="file"}`); err != nil || n > 0 {
			t.Errorf("gateway %d rejected %v configurations: %v", i, n, err)
		}
		t.Logf("gateway %d: %v idle; %v after the warm-up of %v; %v after %v", i, c.idle[i], warm[i], warmUp, end[i], *churnFor)
	}
	t.Log(c)
}

// churn is a set of gateways whose environment changes all the time.
type churn struct {
	t        *testing.T
	random   *rand.Rand // of the goroutine that makes the changes
	redis    *redistest.Server
	upstream *httptest.Server
	gateways []*served
	client   *http.Client
	begin    time.Time
	minute   time.Time // when the next line is due
	idle     []size

	sent, ok, refused, left             atomic.Int64 // requests
	changes, reloads, restarts, freezes int
}

func (c *churn) String() string {
	return fmt.Sprintf("%d requests: %d allowed, %d refused, %d left by their clients; %d reloads, %d restarts and %d freezes of Redis",
		c.sent.Load(), c.ok.Load(), c.refused.Load(), c.left.Load(), c.reloads, c.restarts, c.freezes)
}

func startChurn(t *testing.T) *churn {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	c := &churn{t: t, random: rand.New(rand.NewPCG(seed, 0)), redis: redistest.Start(t), begin: time.Now()}
	c.minute = c.begin.Add(time.Minute)
	c.upstream = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/held") {
			select {
			case <-time.After(20 * time.Millisecond):
			case <-r.Context().Done():
			}
		}
		// An answer without a body lets net/http end one request with the cancellation of another,
		// because it reuses the connection before it returns the answer.
		_, _ = io.WriteString(w, "ok")
	}))
	t.Cleanup(c.upstream.Close)
	for range 2 {
		c.gateways = append(c.gateways, serve(t, c.calm(), c.upstream.URL))
	}
	transport := &http.Transport{MaxIdleConnsPerHost: 32}
	t.Cleanup(transport.CloseIdleConnections)
	c.client = &http.Client{Transport: transport}
	c.awaitCalm()
	for _, g := range c.gateways {
		c.idle = append(c.idle, g.size(t))
	}
	return c
}

// calm returns the configuration before and after the changes. All others have its rules, too.
func (c *churn) calm() string {
	return fmt.Sprintf(`
redis: {url: %q, timeout: 50ms}
max_keys: 5000
limits:
- {url: /held/one, rules: [{name: one, algo: C, rpu: 1, scope: global}]}
`, c.redis.URL())
}

// stormy returns a random configuration.
func (c *churn) stormy() string {
	n := func(most int) int { return 1 + c.random.IntN(most) }
	oneOf := func(words ...string) string { return words[c.random.IntN(len(words))] }
	var b strings.Builder
	fmt.Fprintf(&b, "redis: {url: %q, timeout: %s, prefix: %s}\nmax_keys: %d\nlimits:\n- {url: /held/one, rules: [{name: one, algo: C, rpu: 1, scope: global}]}\n",
		c.redis.URL(), oneOf("5ms", "20ms", "50ms", "200ms", "2s"), oneOf("diana", "diana", "diana", "other"), 4000+n(2000))
	for _, entry := range []struct {
		url   string
		rules []string
	}{
		{"/", []string{
			`algo: W, rpu: 5%02[2]d, scope: %[3]s`,
			`actor: "query:actor", algo: SW, rpu: %[2]d, scope: %[3]s`,
		}},
		{"/counted", []string{
			`actor: "query:actor", algo: TB, rpu: %[2]d, scope: %[3]s`,
			`actor: "query:actor", algo: SL, rpu: %[2]d, unit: minute, scope: %[3]s`,
			`actor: "query:actor", algo: W, rpu: %[2]d, unit: minute, scope: %[3]s, charge: [200]`,
			`actor: ip, algo: TB, rpu: 3%02[2]d, scope: global, on_error: closed`,
		}},
		{"/held", []string{
			`algo: C, rpu: %[2]d, scope: %[3]s`,
			`actor: "query:actor", algo: C, rpu: 1, scope: %[3]s`,
		}},
		{"/later", []string{
			`algo: LB, rpu: 1%02[2]d, queue: %[2]d, scope: %[3]s`,
			`algo: TB, rpu: 1%02[2]d, wait: %[2]d0ms, scope: %[3]s`,
			`actor: "query:actor", algo: W, rpu: %[2]d, wait: %[2]d0ms, scope: %[3]s`,
		}},
	} {
		var rules []string
		for _, r := range entry.rules {
			if c.random.IntN(4) > 0 {
				name := fmt.Sprintf("r%d", len(rules))
				if c.random.IntN(3) == 0 {
					name = fmt.Sprintf("r%d-%d", len(rules), n(1000)) // a new name: its counters start again
				}
				rules = append(rules, fmt.Sprintf("{name: %[1]q, "+r+"}", name+entry.url, n(30), oneOf("local", "global")))
			}
		}
		if len(rules) > 0 {
			fmt.Fprintf(&b, "- {url: %s, rules: [%s]}\n", entry.url, strings.Join(rules, ", "))
		}
	}
	return b.String()
}

// reload has a gateway load a configuration.
func (c *churn) reload(g *served, text string) {
	c.t.Helper()
	next := g.file + ".next" // a gateway must not read half a file
	err := os.WriteFile(next, []byte(text), 0o644)
	if err == nil {
		err = os.Rename(next, g.file)
	}
	if err == nil {
		err = g.cmd.Process.Signal(syscall.SIGHUP)
	}
	if err != nil {
		c.t.Fatal(err)
	}
	c.reloads++
}

// change makes one random change.
func (c *churn) change() {
	c.changes++
	pause := func() { time.Sleep(time.Duration(c.random.IntN(1500)) * time.Millisecond) }
	// A short run has one of each.
	switch kind := c.random.IntN(10); {
	case c.changes == 2 || c.changes > 3 && kind == 0:
		c.restarts++
		c.redis.Kill()
		pause()
		c.redis.Restart()
	case c.changes == 3 || c.changes > 3 && kind == 1:
		c.freezes++
		c.redis.Freeze()
		pause()
		c.redis.Thaw()
	default:
		text := c.stormy()
		for _, g := range c.gateways {
			c.reload(g, text)
		}
	}
	pause()
}

// run makes changes for a duration, under load.
func (c *churn) run(d time.Duration) {
	c.t.Helper()
	const clients = 12 // of each gateway
	stop := make(chan struct{})
	var wg sync.WaitGroup
	defer wg.Wait()
	defer close(stop)
	for _, g := range c.gateways {
		for range clients {
			wg.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
						c.ask(g)
					}
				}
			})
		}
	}
	for end := time.Now().Add(d); time.Now().Before(end) && !c.t.Failed(); {
		c.change()
		if time.Now().After(c.minute) {
			c.minute = c.minute.Add(time.Minute)
			c.t.Logf("%v: %v; %v; %v", time.Since(c.begin).Round(time.Second), c, c.gateways[0].size(c.t), c.gateways[1].size(c.t))
		}
	}
}

// ask sends one random request. One client in four disconnects after a while.
func (c *churn) ask(g *served) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	leaves := rand.IntN(4) == 0
	if leaves {
		time.AfterFunc(time.Duration(rand.IntN(30_000))*time.Microsecond, cancel)
	}
	paths := []string{"/counted", "/counted", "/held", "/held/one", "/later"}
	url := fmt.Sprintf("%s%s?actor=%d", g.url, paths[rand.IntN(len(paths))], rand.IntN(3000))
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		c.t.Error(err)
		return
	}
	c.sent.Add(1)
	answer, err := c.client.Do(r)
	if err != nil {
		if !leaves {
			c.t.Error(err)
		}
		c.left.Add(1)
		return
	}
	_, _ = io.Copy(io.Discard, answer.Body) // it may end early with the client
	_ = answer.Body.Close()
	switch answer.StatusCode {
	case http.StatusOK:
		c.ok.Add(1)
	case http.StatusServiceUnavailable:
		c.refused.Add(1)
	default:
		c.t.Errorf("%s: status %d", url, answer.StatusCode)
	}
}

// awaitCalm waits until all gateways have the calm configuration and use Redis.
func (c *churn) awaitCalm() {
	c.t.Helper()
	for i, g := range c.gateways {
		if !testproc.Becomes(func() bool {
			s := g.status(c.t)
			return !s.Degraded && len(s.Rules) == 1 && s.Gateways == len(c.gateways)
		}) {
			c.t.Fatalf("gateway %d does not come to rest: %+v", i, g.status(c.t))
		}
	}
}

// quiet waits until the gateways are idle, and returns their size. Unless was is nil, it waits
// until they are as small as was.
func (c *churn) quiet(was []size) (now []size) {
	c.t.Helper()
	c.client.CloseIdleConnections()
	for _, g := range c.gateways {
		c.reload(g, c.calm())
	}
	c.awaitCalm()
	c.upstream.CloseClientConnections()
	for i, g := range c.gateways {
		// The slot was released, however the requests that held it ended.
		if !testproc.Becomes(func() bool { return c.status(g, "/held/one") == http.StatusOK }) {
			c.t.Errorf("gateway %d: the only slot stays taken", i)
		}
		c.client.CloseIdleConnections()
		c.upstream.CloseClientConnections()
		limit := size{goroutines: c.idle[i].goroutines + 20}
		if was != nil {
			limit.heap, limit.resident = was[i].heap*5/4+8e6, was[i].resident*5/4+16e6
		}
		var s size
		settled := testproc.Becomes(func() bool {
			g.tell(c.t, "/debug/pprof/heap?gc=1")
			before := s
			s = g.size(c.t)
			if was == nil { // until it is as small as it gets
				return s.goroutines <= limit.goroutines && s.resident >= before.resident*0.99 && s.heap >= before.heap*0.99
			}
			return s.goroutines <= limit.goroutines && s.heap <= limit.heap && (race.Enabled || s.resident <= limit.resident)
		})
		if !settled {
			c.t.Errorf("gateway %d has grown: %v, want at most %v", i, s, limit)
		}
		now = append(now, s)
	}
	return now
}

// status returns the status of the answer for a path.
func (c *churn) status(g *served, path string) int {
	c.t.Helper()
	r, err := c.client.Get(g.url + path)
	if err != nil {
		c.t.Fatal(err)
	}
	_ = r.Body.Close()
	return r.StatusCode
}
