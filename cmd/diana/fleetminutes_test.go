// SPDX-License-Identifier: MIT

package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/diana-limiter/diana/cmd/diana/internal/live"
	"github.com/diana-limiter/diana/internal/redistest"
	"github.com/diana-limiter/diana/internal/testproc"
)

// minutes returns what a gateway answers of the fleet.
func (s *served) minutes(t *testing.T) (f live.Fleet) {
	t.Helper()
	if err := json.Unmarshal(s.tell(t, "/api/v1/fleet"), &f); err != nil {
		t.Fatal(err)
	}
	return f
}

// sums are the answers that clients have seen, or that gateways have reported.
type sums struct{ allowed, refused int64 }

func sumOf(f live.Fleet) (s sums) {
	for _, m := range f.Minutes {
		s.allowed += m.Allowed + m.Delayed
		s.refused += m.Refused
	}
	return s
}

// visits has gateways with one rule for each request, so that each request is one decision.
type visits struct {
	*fleet
	redis *redistest.Server
	way   string
	seen  sums
}

const visitLimits = `
- {url: /few, rules: [{algo: W, unit: day, rpu: 100, scope: global}]}
- {url: /local, rules: [{algo: W, unit: day, rpu: 150}]}
`

func startVisits(t *testing.T, args ...string) *visits {
	v := &visits{redis: redistest.Start(t, args...)}
	v.way = fmt.Sprintf("url: %q, timeout: 1s", v.redis.URL())
	v.fleet = startFleet(t, []string{v.way, v.way}, 8, visitLimits)
	return v
}

// load sends requests to both gateways while do runs, and counts the answers.
func (v *visits) load(t *testing.T, do func()) {
	t.Helper()
	var ended atomic.Bool
	done := make(chan struct{})
	go func() {
		defer close(done)
		do()
		ended.Store(true)
	}()
	all := v.flood(t, 2, 8, []string{"/few", "/local"}, func(i int) bool { return i < 50 || !ended.Load() && i < 20_000 })
	<-done
	for _, list := range all {
		v.seen.allowed += int64(len(admitted(list)))
		v.seen.refused += int64(len(refused(list)))
	}
}

// exact waits until a gateway shows exactly what the clients have seen.
func (v *visits) exact(t *testing.T, gateway *served, when string) {
	t.Helper()
	if !testproc.Becomes(func() bool { f := gateway.minutes(t); return f.Available && sumOf(f) == v.seen }) {
		f := gateway.minutes(t)
		t.Fatalf("%s: %+v of %+v, want %+v", when, sumOf(f), f, v.seen)
	}
	t.Logf("%s: %+v", when, v.seen)
}

// The minutes of the fleet are exactly the requests of the clients: after load on two gateways, and after SIGTERM
// and the next start of one. When Redis has lost the minutes, those of the gateways that live come back.
func TestFleetMinutes(t *testing.T) {
	t.Parallel()
	v := startVisits(t)
	a, b := v.gateways[0], v.gateways[1]
	v.load(t, func() {})
	v.exact(t, a, "by the first gateway")
	v.exact(t, b, "by the second gateway")
	most := 0
	for _, m := range a.minutes(t).Minutes {
		most = max(most, m.Gateways)
	}
	if most != 2 {
		t.Errorf("%d gateways have reported a minute, want 2", most)
	}

	v.load(t, func() {})
	b.stop(t)
	v.exact(t, a, "after SIGTERM of the second gateway")

	v.gateways[1] = serve(t, fleetYAML(v.way, visitLimits), v.upstream.URL)
	v.load(t, func() {})
	v.exact(t, v.gateways[1], "after its next start")

	for _, key := range v.redis.Must("KEYS", "diana:minute:*").([]any) {
		v.redis.Must("DEL", key.(string))
	}
	v.seen = sums{}
	for _, g := range v.gateways {
		for _, r := range g.status(t).Rules {
			v.seen.allowed += r.Allowed
			v.seen.refused += r.Refused
		}
	}
	// Those that were asked before remember what the stopped gateway did in a minute that is over.
	asked := serve(t, fleetYAML(v.way, visitLimits), v.upstream.URL)
	v.exact(t, asked, "after Redis has lost the minutes: those of the gateways that live")
}

// Redis is killed under load, and returns with what its file has. Then the minutes are exact again. Meanwhile a
// gateway shows its own.
func TestFleetMinutesOverACrash(t *testing.T) {
	t.Parallel()
	v := startVisits(t, "--appendonly", "yes", "--appendfsync", "everysec")
	v.load(t, func() {
		v.redis.Kill()
		if !testproc.Becomes(func() bool {
			f := v.gateways[0].minutes(t)
			return !f.Available && f.Reason != "" && len(f.Minutes) > 0
		}) {
			t.Errorf("without Redis: %+v", v.gateways[0].minutes(t))
		}
	})
	v.redis.Restart()
	v.exact(t, v.gateways[0], "after a crash of Redis")
	v.exact(t, v.gateways[1], "by the second gateway")
}

// A rule that a reload removes counts, also for the second of the reload.
func TestFleetMinutesOverAReload(t *testing.T) {
	t.Parallel()
	v := startVisits(t)
	v.load(t, func() {})
	v.gateways[0].reload(t, fleetYAML(v.way, "- {url: /other, rules: [{rpu: 5}]}"))
	v.exact(t, v.gateways[1], "after a reload")

	v.gateways[0].reload(t, fleetYAML(v.way, visitLimits))
	b := v.gateways[1]
	b.reload(t, fleetYAML(strings.Replace(v.way, "1s", "3s", 1), visitLimits)) // by another connection
	v.load(t, func() {})
	v.exact(t, b, "over another connection")
	v.seen = sums{}
	for _, r := range b.status(t).Rules {
		v.seen.allowed += r.Allowed
		v.seen.refused += r.Refused
	}
	b.reload(t, fleetYAML(v.way+", prefix: other", visitLimits))
	v.exact(t, b, "of the other prefix, which is another fleet")
}

// Without Redis a gateway shows its own minutes, and says why.
func TestFleetMinutesAlone(t *testing.T) {
	t.Parallel()
	g := serve(t, forAll, newSite(t, nil).upstream.URL)
	r, err := http.Get(g.url + "/")
	if err != nil {
		t.Fatal(err)
	}
	_ = r.Body.Close()
	testproc.Eventually(t, func() bool { return sumOf(g.minutes(t)).allowed == 1 })
	if f := g.minutes(t); f.Available || f.Reason == "" || time.Since(f.Minutes[0].At) > time.Hour {
		t.Errorf("%+v", f)
	}
}
