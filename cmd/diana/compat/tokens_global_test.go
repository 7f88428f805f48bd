// SPDX-License-Identifier: MIT

package compat

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/diana-limiter/diana/internal/redistest"
	"github.com/diana-limiter/diana/internal/testproc"
)

// globalRules count in Redis. The first rule measures all that is charged, and the second one limits.
func globalRules(redis, timeout string, limit int) string {
	rule := func(name string, rpu int) string {
		return fmt.Sprintf("    - {name: %s, actor: account, unit: day, algo: W, align: first, rpu: %d, scope: global, charge: [200], cost: {answer: openai, reserve: %d, include_usage: false}}\n", name, rpu, reserved)
	}
	text := fmt.Sprintf("redis: {url: %q, timeout: %s}\nidentity: {account: [\"header:Authorization\"]}\nresponse: {status: 429}\nlimits:\n- url: %s\n  rules:\n",
		redis, timeout, chatPath) + rule("all", quota)
	if limit > 0 {
		text += rule("limited", limit)
	}
	return text
}

// mostTokens is the largest cost of a request of a fleet.
const mostTokens = 240

// fleet sends requests of one account, 100 at a time, to several gateways.
type fleet struct {
	gateways []*tokenGateway
	key      string
	used     atomic.Int64 // tokens of complete responses
	calls    atomic.Int64
	failed   atomic.Int64
	stopped  atomic.Bool
	all      sync.WaitGroup
}

// run starts to send requests, until a gateway refuses or stop is called.
func (f *fleet) run(t *testing.T) {
	t.Helper()
	for w := range 100 {
		f.all.Go(func() {
			rnd := rand.New(rand.NewPCG(5, uint64(w)))
			for i := w; !f.stopped.Load(); i++ {
				body := fmt.Sprintf(`{"model": "small", "max_tokens": %d, "messages": [{"role": "user", "content": "Hello"}]}`, 1+rnd.IntN(mostTokens-10))
				if !f.once(t, f.gateways[i%len(f.gateways)], body) {
					return
				}
			}
		})
	}
}

func (f *fleet) once(t *testing.T, g *tokenGateway, body string) (allowed bool) {
	answer := ask(t, g.host, chatPath, f.key, body)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if answer.StatusCode == http.StatusTooManyRequests {
		return false
	}
	var said struct {
		Usage struct {
			Total int64 `json:"total_tokens"`
		}
	}
	if err != nil || answer.StatusCode != http.StatusOK || json.Unmarshal(text, &said) != nil {
		f.failed.Add(1)
		return true
	}
	f.used.Add(said.Usage.Total)
	f.calls.Add(1)
	return true
}

func (f *fleet) stop() {
	f.stopped.Store(true)
	f.all.Wait()
}

// work waits until 300 more calls have ended.
func (f *fleet) work(t *testing.T) {
	t.Helper()
	const more = 300
	from := f.calls.Load()
	if !testproc.Becomes(func() bool { return f.calls.Load() >= from+more }) {
		t.Fatalf("%d calls in %v, want %d", f.calls.Load()-from, testproc.Patience, more)
	}
}

// exact checks that all gateways see what the clients have used.
func (f *fleet) exact(t *testing.T) {
	t.Helper()
	for i, g := range f.gateways {
		got := 0
		if !testproc.Becomes(func() bool { got = g.charged(t, chatPath, f.key); return got == int(f.used.Load()) }) {
			t.Errorf("gateway %d: %d charged, used are %d", i, got, f.used.Load())
		}
	}
}

// newFleet starts two gateways that share a Redis.
func newFleet(t *testing.T, yaml string) *fleet {
	t.Helper()
	host := provider(t)
	return &fleet{gateways: []*tokenGateway{serveTokens(t, host, yaml), serveTokens(t, host, yaml)}, key: "fleet"}
}

// TestTokensGlobal: the excess over a limit is at most what the requests in flight cost above their
// reservations.
func TestTokensGlobal(t *testing.T) {
	const limit = 20_000
	f := newFleet(t, globalRules(redistest.Start(t).URL(), "5s", limit))
	f.run(t)
	f.all.Wait()
	excess, bound := f.used.Load()-limit, int64(100*(mostTokens-reserved))
	if excess > bound || excess < -reserved || f.failed.Load() > 0 {
		t.Errorf("%d tokens of a limit of %d, want at most %d more; %d failed", f.used.Load(), limit, bound, f.failed.Load())
	}
	t.Logf("%d calls used %d tokens of %d: an excess of %d, the bound is %d", f.calls.Load(), f.used.Load(), limit, excess, bound)
}

// TestTokensOutage: costs that become known while Redis is unavailable are charged when it is back, each once.
func TestTokensOutage(t *testing.T) {
	for name, outage := range map[string]func(f *fleet, r *redistest.Server){
		"frozen": func(f *fleet, r *redistest.Server) {
			r.Freeze()
			f.work(t)
			r.Thaw()
		},
		"frozen for more than a minute": func(f *fleet, r *redistest.Server) {
			r.Freeze()
			for began := time.Now(); time.Since(began) < 65*time.Second; {
				f.work(t)
			}
			r.Thaw()
		},
		"killed": func(f *fleet, r *redistest.Server) {
			r.Kill()
			f.work(t)
			r.Restart()
		},
	} {
		t.Run(name, func(t *testing.T) {
			if strings.Contains(name, "minute") && !*allServers {
				t.Skip("takes more than a minute, see make compat")
			}
			r := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always") // a restart keeps the memory
			f := newFleet(t, globalRules(r.URL(), "300ms", 0))
			f.run(t)
			f.work(t)
			outage(f, r)
			f.work(t)
			f.stop()
			f.exact(t)
			t.Logf("%d calls used %d tokens, %d failed", f.calls.Load(), f.used.Load(), f.failed.Load())
		})
	}
}

// TestTokensLost: a Redis that has lost its memory has lost what it had counted, and no more. A gateway without
// Redis shows what is left of its share, so it has used over half of the quota.
func TestTokensLost(t *testing.T) {
	r := redistest.Start(t)
	f := newFleet(t, globalRules(r.URL(), "300ms", 0))
	f.run(t)
	f.work(t)
	r.Kill()
	before := f.used.Load()
	f.work(t)
	r.Restart()
	f.work(t)
	f.stop()
	least := int(f.used.Load()-before) - 100*mostTokens // those in flight had charged the lost Redis
	got := 0
	if !testproc.Becomes(func() bool {
		got = f.gateways[0].charged(t, chatPath, f.key)
		return got >= least && got <= int(f.used.Load())
	}) {
		t.Errorf("%d charged, want %d to %d", got, least, f.used.Load())
	}
	t.Logf("%d calls used %d tokens, %d of them before Redis was killed without its memory; %d are charged", f.calls.Load(), f.used.Load(), before, got)
}

// drain sends streams to a gateway, stops it in their middle, and returns what they cost.
func drain(t *testing.T, g *tokenGateway, before func()) (cost int) {
	t.Helper()
	const streams, events = 50, 300
	var all, begun sync.WaitGroup
	begun.Add(streams)
	for range streams {
		answer := ask(t, g.host, chatPath, "drain", fmt.Sprint(events))
		all.Go(func() {
			defer answer.Body.Close()
			_, err := io.ReadFull(answer.Body, make([]byte, 10))
			begun.Done()
			text, readErr := io.ReadAll(answer.Body)
			if err != nil || readErr != nil || !strings.HasSuffix(string(text), "[DONE]\n\n") {
				t.Errorf("a stream ends with %v %v after %d bytes", err, readErr, len(text))
			}
		})
	}
	begun.Wait()
	before()
	g.terminate(t)
	all.Wait()
	if !testproc.Becomes(g.process.HasEnded) {
		t.Error("the gateway does not end")
	}
	return streams * (40 + events)
}

// TestTokensDrain: a gateway that stops in the middle of streams charges each, once.
func TestTokensDrain(t *testing.T) {
	yaml := globalRules(redistest.Start(t).URL(), "5s", 0)
	host := hostileProvider(t)
	stops, other := serveTokens(t, host, yaml), serveTokens(t, host, yaml)
	want := drain(t, stops, func() {})
	if got := other.charged(t, chatPath, "drain"); got != want {
		t.Errorf("%d charged, want %d", got, want)
	}
}

// TestTokensDrainWithoutRedis: a gateway whose drain ends while Redis is unavailable logs what Redis may not have
// received. A charge on its way can be both logged and made, but nothing is charged twice. Until the
// other gateway notices that Redis is back, it shows what is left of its share.
func TestTokensDrainWithoutRedis(t *testing.T) {
	r := redistest.Start(t)
	yaml := globalRules(r.URL(), "300ms", 0)
	host := hostileProvider(t)
	stops, other := serveTokens(t, host, yaml, "--drain-timeout", "6s"), serveTokens(t, host, yaml)
	want := drain(t, stops, r.Freeze)
	r.Thaw()
	lost := 0
	log, err := os.ReadFile(stops.log)
	if err != nil {
		t.Fatal(err)
	}
	if found := notReceived.FindSubmatch(log); found != nil {
		lost, _ = strconv.Atoi(string(found[1]))
	}
	got := 0
	if !testproc.Becomes(func() bool { got = other.charged(t, chatPath, "drain"); return got <= want && got+lost >= want }) || lost == 0 {
		t.Errorf("%d charged and %d lost, want %d together, and at most as much charged", got, lost, want)
	}
	t.Logf("%d of %d charged, and %d logged as lost", got, want, lost)
}

var notReceived = regexp.MustCompile(`Redis has not received what was charged without it" rule=all actors=\d+ sum=(\d+)`)
