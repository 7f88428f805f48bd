// SPDX-License-Identifier: MIT

package main

import (
	"flag"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/diana-limiter/diana/internal/race"
	"github.com/diana-limiter/diana/internal/redistest"
	"github.com/diana-limiter/diana/internal/testproc"
)

var outageFor = flag.Duration("outage", 4*time.Second, "how long Redis is away in TestOutage")

// poll returns n times the unit of the pauses between two pages of a gateway. Under the race detector pages are slow,
// and the run without it reads more of them.
func poll(n int) time.Duration {
	if race.Enabled {
		n *= 4
	}
	return time.Duration(n) * time.Millisecond
}

// outage is a fault of Redis or of the connection to it.
type outage struct {
	name       string
	hit        []int // gateways
	proxied    bool  // each gateway has a proxy of its own
	shift      bool  // before it, gateway 0 has all the traffic
	forgets    bool  // Redis has lost its memory afterwards
	harm, heal func(*redistest.Server, []*redistest.Proxy)
}

var outages = []outage{{
	name: "killed", hit: []int{0, 1, 2}, forgets: true,
	harm: func(r *redistest.Server, _ []*redistest.Proxy) { r.Kill() },
	heal: func(r *redistest.Server, _ []*redistest.Proxy) { r.Restart() },
}, {
	name: "frozen", hit: []int{0, 1, 2}, shift: true,
	harm: func(r *redistest.Server, _ []*redistest.Proxy) { r.Freeze() },
	heal: func(r *redistest.Server, _ []*redistest.Proxy) { r.Thaw() },
}, {
	name: "slow", hit: []int{0, 1, 2}, proxied: true,
	harm: func(_ *redistest.Server, ways []*redistest.Proxy) { setLatency(ways, 200*time.Millisecond) },
	heal: func(_ *redistest.Server, ways []*redistest.Proxy) { setLatency(ways, 0) },
}, {
	name: "cut off from one", hit: []int{2}, proxied: true,
	harm: func(_ *redistest.Server, ways []*redistest.Proxy) { ways[2].Freeze() },
	heal: func(_ *redistest.Server, ways []*redistest.Proxy) { ways[2].Resume() },
}}

func setLatency(ways []*redistest.Proxy, d time.Duration) {
	for _, w := range ways {
		w.SetLatency(d)
	}
}

// Three gateways keep deciding without Redis. Every answer is 200 or 503, and no client waits.
// checkAdmitted and checkTokens derive the bounds of what is admitted. The test logs durations, and
// asserts only a bound far above the promise.
func TestOutage(t *testing.T) {
	for _, o := range outages {
		t.Run(o.name, func(t *testing.T) {
			t.Parallel()
			if testing.Short() && o.name != "killed" {
				t.Skip("takes twelve seconds of load")
			}
			testOutage(t, o)
		})
	}
}

func testOutage(t *testing.T, o outage) {
	rate := 1000 // requests a second
	if race.Enabled {
		rate = 100 // because the four outages run at once
	}
	n := rate * 3 / 10
	tokens := n * 3 / 10 // is the rate and the burst
	r := redistest.Start(t)
	var proxies []*redistest.Proxy
	var ways []string
	for range 3 {
		addr := r.Addr()
		if o.proxied {
			proxies = append(proxies, redistest.StartProxy(t, addr))
			addr = proxies[len(proxies)-1].Addr()
		}
		ways = append(ways, fmt.Sprintf("url: %q, timeout: 50ms", "redis://"+addr))
	}
	f := startFleet(t, ways, 256, fmt.Sprintf(`
- {url: /w, rules: [{algo: W, rpu: %d, scope: global}]}
- {url: /tb, rules: [{algo: TB, rpu: %d, scope: global}]}
`, n, tokens))

	l := f.load(t, rate, o.shift)
	if l.shares = 0; o.forgets {
		l.shares = 2 * time.Second
	}
	time.Sleep(time.Until(l.begin.Truncate(time.Second).Add(2500 * time.Millisecond))) // amid a window
	harmed := time.Now()
	o.harm(r, proxies)
	l.first.Store(false)
	for _, g := range o.hit {
		f.awaitDegraded(t, g, true)
	}
	time.Sleep(time.Until(harmed.Add(*outageFor)))
	healed := time.Now()
	o.heal(r, proxies)
	for _, g := range o.hit {
		f.awaitDegraded(t, g, false)
	}
	back := time.Now()
	// The rest of this window, two more in which the shares hold as well, and one without.
	time.Sleep(time.Until(back.Truncate(time.Second).Add(5200 * time.Millisecond)))
	all := l.stop(t)

	undisturbed := l.checkAdmitted(t, n)
	took := l.checkTokens(t, tokens)
	var degraded, global time.Duration // 0 if a gateway, on a busy machine, had lost Redis before
	for _, g := range o.hit {
		is := time.Duration(0)
		for _, spell := range l.spells(g) {
			if spell.from.After(harmed) && spell.from.Before(healed) {
				degraded = max(degraded, spell.from.Sub(harmed))
			}
			if spell.from.Before(healed) && spell.to.After(healed) {
				is = spell.to.Sub(healed)
			}
		}
		if is == 0 {
			t.Errorf("gateway %d has not logged a line for each change", g)
		}
		global = max(global, is)
	}
	most := time.Duration(0)
	for _, s := range all {
		most = max(most, s.answered.Sub(s.sent))
	}
	if limit := 2*time.Second + l.noise; most > limit { // 150 ms are promised
		t.Errorf("an answer took %v, want less than %v", most, limit)
	}
	t.Logf("%s: %d requests, slowest answer %v (%v of an idle page), p99 %v before, %v during, %v after; without Redis after %v, with it again after %v; "+
		"admitted in windows of %d: %s (%d undisturbed); tokens: %s",
		o.name, len(all), most.Round(100*time.Microsecond), l.noise.Round(100*time.Microsecond), l.p99(time.Time{}, harmed), l.p99(harmed, back), l.p99(back, time.Now()),
		degraded.Round(time.Millisecond), global.Round(time.Millisecond), n, l.windows(harmed, healed), undisturbed, took)
}

// awaitDegraded waits until a gateway is degraded or not, in its status and in its metrics.
func (f *fleet) awaitDegraded(t *testing.T, gateway int, want bool) {
	t.Helper()
	g, metric := f.gateways[gateway], map[bool]float64{true: 1}[want]
	if !testproc.Becomes(func() bool { return g.status(t).Degraded == want && g.metric(t, "diana_degraded") == metric }) {
		t.Fatalf("gateway %d: degraded %v, metric %v; want %v", gateway, g.status(t).Degraded, g.metric(t, "diana_degraded"), want)
	}
}

// load is a series of requests. Each is sent at its time, whether or not the previous ones have
// been answered.
type load struct {
	fleet  *fleet
	ending chan struct{}
	ended  chan struct{}
	begin  time.Time
	first  atomic.Bool // only gateway 0 is asked

	// After its end:
	requests []loaded
	changes  [][]change    // by gateway
	noise    time.Duration // the slowest answer of a page that has nothing to do with limits
	readings [][]reading   // by gateway

	shares time.Duration // for how long they hold when Redis is back; must be set before stop
}

// loaded is a request of a load.
type loaded struct {
	seen
	due     time.Time
	gateway int
	path    string
}

// load sends rate requests a second, to one gateway after another or to the first; three of five
// are for /w, the others for /tb.
func (f *fleet) load(t *testing.T, rate int, first bool) *load {
	l := &load{fleet: f, ending: make(chan struct{}), ended: make(chan struct{}), begin: time.Now()}
	l.first.Store(first)
	go func() {
		defer close(l.ended)
		var mu sync.Mutex
		var wg sync.WaitGroup
		defer wg.Wait()
		wg.Go(func() { l.listen(t) })
		l.readings = make([][]reading, len(f.gateways))
		for g := range f.gateways {
			wg.Go(func() { l.countFallbacks(t, g) })
		}
		for i := 0; ; i++ {
			r := loaded{gateway: i % 3, path: "/w", due: l.begin.Add(time.Duration(i) * time.Second / time.Duration(rate))}
			if i%5 >= 3 {
				r.path = "/tb"
			}
			if l.first.Load() {
				r.gateway = 0
			}
			select {
			case <-time.After(time.Until(r.due)):
			case <-l.ending:
				return
			}
			wg.Go(func() {
				r.seen = f.ask(t, r.gateway, r.path)
				mu.Lock()
				defer mu.Unlock()
				l.requests = append(l.requests, r)
			})
		}
	}()
	t.Cleanup(func() { l.stop(t) })
	return l
}

// listen measures how busy the machine is.
func (l *load) listen(t *testing.T) {
	for i := 0; ; i++ {
		select {
		case <-time.After(poll(10)):
		case <-l.ending:
			return
		}
		begin := time.Now()
		r, err := http.Get(l.fleet.gateways[i%3].admin + "/debug/pprof/cmdline")
		if err != nil {
			t.Error(err)
			return
		}
		_ = r.Body.Close()
		l.noise = max(l.noise, time.Since(begin))
	}
}

// countFallbacks reads repeatedly how many requests a gateway has evaluated without Redis.
func (l *load) countFallbacks(t *testing.T, gateway int) {
	for {
		r := reading{begin: time.Now()}
		var err error
		if _, r.fallback, err = l.fleet.gateways[gateway].lateness(); err != nil {
			t.Error(err)
			return
		}
		r.end = time.Now()
		l.readings[gateway] = append(l.readings[gateway], r)
		select {
		case <-time.After(poll(50)):
		case <-l.ending:
			return
		}
	}
}

// stop waits for the requests in flight, and returns what was sent.
func (l *load) stop(t *testing.T) []loaded {
	t.Helper()
	select {
	case <-l.ended:
		return l.requests
	default:
	}
	close(l.ending)
	<-l.ended
	for _, g := range l.fleet.gateways {
		l.changes = append(l.changes, g.changes(t))
	}
	return l.requests
}

// of returns the requests for path of one gateway, or of all gateways if it is negative.
func (l *load) of(path string, gateway int) (all []seen) {
	for _, r := range l.requests {
		if r.path == path && (gateway < 0 || r.gateway == gateway) {
			all = append(all, r.seen)
		}
	}
	return all
}

// p99 returns the 99th percentile of the latency of requests that were due within [from, to),
// counted from when they were due.
func (l *load) p99(from, to time.Time) time.Duration {
	var took []time.Duration
	for _, r := range l.requests {
		if !r.due.Before(from) && r.due.Before(to) {
			took = append(took, r.answered.Sub(r.due))
		}
	}
	if len(took) == 0 {
		return 0
	}
	slices.Sort(took)
	return took[len(took)*99/100].Round(100 * time.Microsecond)
}

// windows returns how many requests were admitted in each window, with a bar at the beginning and
// the end of the fault. A request at an edge counts when it was sent.
func (l *load) windows(marks ...time.Time) string {
	ok := admitted(l.of("/w", -1))
	_, end := span(ok)
	var b strings.Builder
	for w := l.begin.Truncate(time.Second); w.Before(end); w = w.Add(time.Second) {
		n := 0
		for _, s := range ok {
			if !s.sent.Before(w) && s.sent.Before(w.Add(time.Second)) {
				n++
			}
		}
		for _, m := range marks {
			if !m.Before(w) && m.Before(w.Add(time.Second)) {
				b.WriteString("| ")
			}
		}
		fmt.Fprintf(&b, "%d ", n)
	}
	return strings.TrimSpace(b.String())
}

// lag bounds how long after it has given Redis up a gateway logs that.
func (l *load) lag() time.Duration { return time.Second + 2*l.noise }

// spell is a time without Redis.
type spell struct {
	from, to time.Time
	gateways int // among which a limit is shared
}

// spells returns when a gateway decided without Redis.
func (l *load) spells(gateway int) (all []spell) {
	var down *change
	for _, c := range l.changes[gateway] {
		switch {
		case !c.up && down == nil:
			down = &c
		case c.up && down != nil:
			all = append(all, spell{down.at, c.at, down.gateways})
			down = nil
		}
	}
	if down != nil {
		all = append(all, spell{down.at, time.Now(), down.gateways})
	}
	return all
}

// checkAdmitted checks what all gateways have admitted in each window of n, and returns the number
// of windows without a recent change.
//
// A gateway without Redis keeps to its share s, n/3 here, and counts what Redis allowed it before:
// after a allowed requests it ends at max(a, s). When Redis is back, the gateway debits what it has
// allowed by itself. So if all gateways have been without Redis, a window has at most n + 2 s, and
// n and the shares of those that were in other windows. If all were without it for a whole window,
// the window has their shares. The same holds while shares hold because Redis has lost its memory.
//
// Of its share a gateway has allowed no more than the requests that it has evaluated without Redis.
// So a window without a change and without a late call has n.
//
// A gateway that cannot reach Redis while others can adds its share in every window until it is
// back: that is the price of not asking Redis.
func (l *load) checkAdmitted(t *testing.T, n int) (undisturbed int) {
	t.Helper()
	ok := admitted(l.of("/w", -1))
	_, end := span(ok)
	for w := l.begin.Truncate(time.Second); w.Before(end); w = w.Add(time.Second) {
		next := w.Add(time.Second)
		together, least, alone, kept := 0, n, 0, 0
		for g := range l.fleet.gateways {
			share, own := n/len(l.fleet.gateways), false // the largest, in spells that touch the window
			for _, s := range l.spells(g) {
				if s.from.Add(-l.lag()).Before(next) && s.to.Add(l.shares+l.lag()).After(w) {
					share = max(share, n/s.gateways)
				}
				own = own || s.from.Before(w) && s.to.Add(l.shares-l.lag()).After(next)
				if s.from.Before(w) && s.to.After(next) {
					l.checkShare(t, g, w, n/s.gateways)
				}
			}
			if own {
				kept++
			} else {
				share = min(share, fallbacks(l.readings[g], w.Add(-l.noise), next.Add(l.noise)))
			}
			if share > 0 {
				alone++
			}
			together, least = together+share, min(least, share)
		}
		bound := n + together
		switch {
		case kept == len(l.fleet.gateways):
			bound = together
		case alone == len(l.fleet.gateways):
			bound -= least
		case alone == 0:
			undisturbed++
		}
		if surely, _ := count(ok, w, next); surely > bound {
			t.Errorf("%d were admitted in the window that began at %v, want at most %d: %d gateways have allowed requests without Redis, %d had none all the time",
				surely, w.Format("05"), bound, alone, kept)
		}
	}
	return undisturbed
}

// checkShare checks what a gateway has admitted in a window without Redis: at most its share, and
// all of it if the gateway has refused a request.
func (l *load) checkShare(t *testing.T, gateway int, w time.Time, share int) {
	t.Helper()
	all := l.of("/w", gateway)
	surely, perhaps := count(admitted(all), w, w.Add(time.Second))
	turnedAway, _ := count(refused(all), w, w.Add(time.Second))
	if surely > share || turnedAway > 0 && perhaps < share {
		t.Errorf("gateway %d admitted %d to %d without Redis in the window that began at %v, want its share of %d",
			gateway, surely, perhaps, w.Format("05"), share)
	}
}

// checkTokens checks what all gateways have admitted of a bucket of n, n a second, from the
// beginning to the end.
//
// The bucket in Redis is full at first, and fills up whenever no gateway uses it; meanwhile its
// tokens drip for no gateway. Each time a gateway decides by itself, it may find the bucket of its
// share full, and gets what drips into that bucket.
func (l *load) checkTokens(t *testing.T, n int) (report string) {
	t.Helper()
	all := l.of("/tb", -1)
	begin, end := span(all)
	bound := float64(n) * (1 + end.Sub(begin).Seconds())
	var spells [][]spell
	for g := range l.fleet.gateways {
		spells = append(spells, l.spells(g))
		for _, s := range spells[g] {
			share := float64(max(n/s.gateways, 1))
			bound += share * (2 + s.to.Sub(s.from).Seconds() + l.lag().Seconds())
		}
		bound += float64(l.late(g))
	}
	for _, s := range spells[0] { // when all were on their own
		for _, other := range spells[1:] {
			s = overlap(s, other)
		}
		if together := s.to.Sub(s.from); together > 0 {
			bound += float64(n) * (1 - together.Seconds())
		}
	}
	got := len(admitted(all))
	if got > int(bound) {
		t.Errorf("%d of %d tokens were taken, want at most %d", got, len(all), int(bound))
	}
	return fmt.Sprintf("%d of at most %d, and %d if nothing had changed", got, int(bound), int(float64(n)*(1+end.Sub(begin).Seconds())))
}

// late returns how many requests a gateway has evaluated without Redis while Redis was reachable.
func (l *load) late(gateway int) (n int) {
	all := l.readings[gateway]
	for i := 1; i < len(all); i++ {
		outside := true
		for _, s := range l.spells(gateway) {
			outside = outside && (all[i].end.Before(s.from) || all[i-1].begin.After(s.to))
		}
		if outside {
			n += int(all[i].fallback - all[i-1].fallback)
		}
	}
	return n
}

// overlap returns the longest part of s that lies in one of others.
func overlap(s spell, others []spell) (longest spell) {
	for _, o := range others {
		if o.from.Before(s.from) {
			o.from = s.from
		}
		if o.to.After(s.to) {
			o.to = s.to
		}
		if o.to.Sub(o.from) > longest.to.Sub(longest.from) {
			longest = o
		}
	}
	return longest
}
