// SPDX-License-Identifier: MIT

package history

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
	"weak"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/config"
	"github.com/diana-limiter/diana/internal/plan"
	"github.com/diana-limiter/diana/internal/race"
	"github.com/diana-limiter/diana/internal/testproc"
	"github.com/diana-limiter/diana/rule"
)

// gateway is a limiter whose requests a ring remembers.
type gateway struct {
	t       *testing.T
	ring    *Ring
	limiter *diana.Limiter
	now     time.Time
}

func newGateway(t *testing.T, o Options, yaml string) *gateway {
	t.Helper()
	c, err := config.Parse("test.yaml", []byte(yaml))
	if err != nil {
		t.Fatal(err)
	}
	g := &gateway{t: t, now: time.Unix(1_800_000_000, 0)}
	o.Vocabulary, o.Config = config.DefaultVocabulary(), func() *config.Config { return g.limiter.Config() }
	o.Now = func() time.Time { return g.now }
	g.ring = New(o)
	tickets := sync.Map{}
	g.limiter, err = diana.Options{
		OnDecision: func(d *diana.Decision) { tickets.Store(d.Writer(), g.ring.decided(d)) },
		OnDone: func(d *diana.Decision) {
			ticket, _ := tickets.LoadAndDelete(d.Writer())
			g.ring.complete(ticket.(place), d, d.Writer().(*httptest.ResponseRecorder).Code, 7)
		},
		Now: func() time.Time { return g.now },
	}.New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = g.limiter.Close() })
	return g
}

// send sends a request through the limiter.
func (g *gateway) send(target, remote string, header ...string) {
	r := httptest.NewRequest("GET", "/", nil)
	r.URL.Path, r.URL.RawQuery, _ = strings.Cut(target, "?")
	r.RemoteAddr = remote
	for _, field := range header {
		name, value, _ := strings.Cut(field, ": ")
		r.Header.Add(name, value)
	}
	next := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	g.limiter.Handler(next).ServeHTTP(httptest.NewRecorder(), r)
}

const named = `
identity: {trusted_proxies: [192.0.2.0/24]}
limits:
- url: /
  rules:
  - {name: a, actor: account, rpu: 3, unit: day, except: [ann, 10.1.0.0/16], overrides: {bob: {rpu: 1}, "2001:db8::7": {rpu: 2}}}
  - {name: q, actor: "query:key", rpu: 3, unit: day}
`

// A ring shows neither names nor addresses, except those that the configuration shows. Equal clients stay
// equal, and different ones different.
func TestHashed(t *testing.T) {
	t.Parallel()
	g := newGateway(t, Options{Requests: 1000}, named)
	secrets := []string{"carol", "secret-key", "198.51.100.77", "203.0.113.9", "other-cookie"}
	g.send("/a?key=secret-key&x=other-cookie", "198.51.100.77:1", "X-Account-Id: carol", "Cookie: x=other-cookie", "Authorization: Bearer other-cookie")
	g.send("/a?key=secret-key", "192.0.2.1:1", "X-Account-Id: carol", "X-Forwarded-For: 203.0.113.9")
	g.send("/a", "10.1.2.3:5", "X-Account-Id: ann")
	for _, c := range g.ring.chunks {
		for _, secret := range secrets {
			if strings.Contains(string(c.data), secret) {
				t.Errorf("the ring has %q", secret)
			}
		}
	}
	s := g.ring.Snapshot()
	if s.Len() != 3 {
		t.Fatalf("%d requests", s.Len())
	}
	var actors []map[string]string
	var remotes []string
	for i := range s.Len() {
		e := s.Entry(i)
		copied := map[string]string{}
		for k, v := range e.Actors {
			copied[k] = v
		}
		actors, remotes = append(actors, copied), append(remotes, e.Remote)
		if e.Target != "/a" || e.Status != 204 || e.Bytes != 7 {
			t.Errorf("entry %+v", e)
		}
	}
	const account = "header:X-Account-Id"
	if actors[0][account] != actors[1][account] || actors[0]["query:key"] != actors[1]["query:key"] || actors[2][account] != "ann" ||
		actors[0]["ip"] != "" || actors[1]["ip"] == "" {
		t.Errorf("actors %q", actors)
	}
	if !netip.MustParsePrefix("10.1.0.0/16").Contains(netip.MustParseAddr(remotes[2])) || !netip.MustParsePrefix("192.0.2.0/24").Contains(netip.MustParseAddr(remotes[1])) {
		t.Errorf("addresses %q", remotes)
	}

	// A proposed configuration that names a client finds it.
	proposed, err := config.Parse("next.yaml", []byte(strings.Replace(named, "bob", "carol", 1)))
	if err != nil {
		t.Fatal(err)
	}
	s.Label(g.ring, proposed)
	if got := s.Entry(0).Actors[account]; got != "carol" {
		t.Errorf("carol is %q", got)
	}
}

// Hidden addresses are a permutation that keeps networks of the configuration, and each /64 together.
func TestAddresses(t *testing.T) {
	t.Parallel()
	if race.Enabled {
		t.Skip("it has one goroutine, and runs without the race detector")
	}
	c, err := config.Parse("test.yaml", []byte("url: /\nrules: [{actor: ip, rpu: 1, except: [10.0.0.0/28, 10.0.0.4/30, 10.0.0.5, 2001:db8::/126, 2001:db8:1::/48, 127.0.0.0/8]}]"))
	if err != nil {
		t.Fatal(err)
	}
	of, err := newReads(c, config.DefaultVocabulary())
	if err != nil {
		t.Fatal(err)
	}
	v := newVeil()
	seen := map[netip.Addr]netip.Addr{}
	groups := map[netip.Prefix]netip.Prefix{}
	check := func(ip netip.Addr) {
		t.Helper()
		hidden := v.address(ip, of)
		if of.smallest(hidden) != of.smallest(ip) {
			t.Fatalf("%v is in %v, and hidden as %v in %v", ip, of.smallest(ip), hidden, of.smallest(hidden))
		}
		if before, ok := seen[hidden]; ok && before != ip || v.address(ip, of) != hidden {
			t.Fatalf("%v and %v are hidden as %v", before, ip, hidden)
		}
		seen[hidden] = ip
		if ip.Is6() {
			from, _ := ip.Prefix(64)
			to, _ := hidden.Prefix(64)
			if known, ok := groups[from]; ok && known != to {
				t.Fatalf("%v is split into %v and %v", from, known, to)
			}
			groups[from] = to
		}
	}
	for i := range 256 {
		check(netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}))
		for net := range 4 {
			check(netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, 0, byte(net), 0, byte(i % 5), 0, 0, 0, 0, 0, 0, 0, byte(i)}))
		}
	}
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // a test repeats its numbers
	for range 100_000 {
		n := random.Uint32()
		check(netip.AddrFrom4([4]byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)}))
	}
	if got := v.address(netip.MustParseAddr("10.0.0.5"), of); got != netip.MustParseAddr("10.0.0.5") {
		t.Errorf("10.0.0.5 is hidden as %v, but the configuration names it", got)
	}
}

// A full ring has the newest requests, and no more memory than before.
func TestBound(t *testing.T) {
	t.Parallel()
	if race.Enabled {
		t.Skip("it has one goroutine, and runs without the race detector")
	}
	const capacity = 2000
	g := newGateway(t, Options{Requests: capacity, Plain: true}, "url: /\nrules: [{actor: ip, rpu: 1000000}]")
	for i := range 3 * capacity {
		g.now = g.now.Add(100 * time.Millisecond)
		g.send(fmt.Sprint("/", i), "192.0.2.1:1")
		if s := g.ring.Status(); s.Requests > capacity || s.Requests < min(i+1, capacity*3/4) {
			t.Fatalf("after %d requests the ring has %d", i+1, s.Requests)
		}
	}
	s := g.ring.Snapshot()
	if last := s.Entry(s.Len() - 1).Target; s.Whole || last != fmt.Sprint("/", 3*capacity-1) || s.Share != 1 {
		t.Errorf("whole: %v, last: %s, share %v", s.Whole, last, s.Share)
	}
	if bytes := g.ring.Status().Bytes; bytes > 2<<20 {
		t.Errorf("%d bytes", bytes)
	}

	// Long paths make the ring shorter, not larger. Nothing is remembered that does not fit.
	g = newGateway(t, Options{Requests: 100_000, Plain: true}, "url: /\nrules: [{actor: ip, rpu: 1000000000}]")
	long := "/" + strings.Repeat("x", 8<<10-1)
	for range 9000 {
		g.now = g.now.Add(time.Second)
		g.send(long, "192.0.2.1:1")
	}
	if s := g.ring.Status(); s.Bytes > mostBytes || s.Requests < 7000 || s.Requests > 8192 {
		t.Errorf("%d bytes for %d requests", s.Bytes, s.Requests)
	}
}

// A ring that would cover too short a time remembers a share of the clients, each with all requests, and all
// clients when there are few requests again.
func TestShare(t *testing.T) {
	t.Parallel()
	if race.Enabled {
		t.Skip("it has one goroutine, and runs without the race detector")
	}
	g := newGateway(t, Options{Requests: 4000}, "url: /\nrules: [{actor: account, rpu: 1000000}, {actor: ip, rpu: 1000000}]")
	const clients = 500
	send := func(n int, every time.Duration) {
		for i := range n {
			g.now = g.now.Add(every)
			g.send("/", "192.0.2.1:1", fmt.Sprintf("X-Account-Id: c%d", i%clients))
		}
	}
	send(50_000, time.Millisecond) // 4 s without sampling
	s := g.ring.Snapshot()
	if first, _ := s.First(); s.Since <= first || s.Since > s.taken {
		t.Errorf("the share holds since %d, of requests since %d", s.Since, first)
	}
	if s.Share > 1.0/8 || s.Share < 1.0/64 || s.Client != "account" || s.Whole {
		t.Errorf("share %v of %s", s.Share, s.Client)
	}
	counts := map[string]int{}
	for i := range s.Len() {
		counts[s.Entry(i).Actors["header:X-Account-Id"]]++
	}
	least, most := 1<<30, 0
	for _, n := range counts {
		least, most = min(least, n), max(most, n)
	}
	if len(counts) < 2 || most-least > 1 {
		t.Errorf("%d clients have %d to %d requests", len(counts), least, most)
	}
	send(40_000, time.Second)
	if s := g.ring.Status(); s.Sampled != 1 {
		t.Errorf("the share is %v", s.Sampled)
	}
}

// A share without any client becomes larger after a while.
func TestShareWithoutClients(t *testing.T) {
	t.Parallel()
	if race.Enabled {
		t.Skip("it has one goroutine, and runs without the race detector")
	}
	g := newGateway(t, Options{Requests: 400}, "url: /\nrules: [{actor: account, rpu: 1000000}]")
	send := func(n int, every time.Duration) {
		for range n {
			g.now = g.now.Add(every)
			g.send("/", "192.0.2.1:1", "X-Account-Id: ann")
		}
	}
	send(20_000, time.Millisecond)
	if s := g.ring.Status(); s.Sampled == 1 {
		t.Fatalf("the share is %v", s.Sampled)
	}
	send(20_000, 10*time.Second)
	if s := g.ring.Snapshot(); s.Share != 1 || s.Len() < 300 {
		t.Errorf("the share is %v, with %d requests", s.Share, s.Len())
	}
}

// Whatever a client sends is remembered within bounds, or not at all.
func TestHostile(t *testing.T) {
	t.Parallel()
	g := newGateway(t, Options{Requests: 1000, Plain: true}, `
- {url: POST /p, rules: [{rpu: 1000000}]}
- {url: /, rules: [{actor: "header:A", rpu: 1000000, cost: "header:Cost", class: "client:Class", classes: {gold: {rpu: 7}}}, {actor: "cookie:sid", rpu: 10000}, {actor: host, rpu: 100000}]}
`)
	random := rand.New(rand.NewPCG(3, 4)) //nolint:gosec // a test repeats its numbers
	texts := []string{"", "x", "\x00unclear", "hash:00", strings.Repeat("a", 255), strings.Repeat("b", 5000), strings.Repeat("ü", 700), "<script>", "\x1b[31m", "\xff\xfe", "a,b", "1,2", "9223372036854775808"}
	text := func() string { return texts[random.IntN(len(texts))] }
	const n = 3000
	for range n {
		g.now = g.now.Add(time.Millisecond * 100)
		r := httptest.NewRequest("GET", "/", nil)
		r.Method, r.Host, r.RemoteAddr, r.URL.RawQuery = text(), text(), text(), text()
		for _, name := range []string{"A", "Cookie", "Cost", "Class", "X-Forwarded-For", "X-Http-Method-Override"} {
			for range random.IntN(4) {
				r.Header.Add(name, text())
			}
		}
		w := httptest.NewRecorder()
		g.limiter.Handler(http.NotFoundHandler()).ServeHTTP(w, r)
	}
	s := g.ring.Snapshot()
	for i := range s.Len() {
		for name, value := range s.Entry(i).Actors {
			if len(value) > longestValue {
				t.Fatalf("%s has %d bytes", name, len(value))
			}
		}
	}
	if s.Len() < 500 || s.Oversized > 0 {
		t.Errorf("%d requests, %d too large", s.Len(), s.Oversized)
	}
}

// taking returns a limiter whose decisions end at once, and the ring that remembers them.
func taking(t *testing.T, requests int) (l *diana.Limiter, ring *Ring) {
	t.Helper()
	c, err := config.Parse("test.yaml", []byte(named))
	if err != nil {
		t.Fatal(err)
	}
	ring = New(Options{Requests: requests, Vocabulary: config.DefaultVocabulary(), Config: func() *config.Config { return l.Config() }})
	l, err = diana.Options{
		OnDecision: func(d *diana.Decision) { ring.complete(ring.decided(d), d, 200, 1) }, OnDone: func(*diana.Decision) {},
		Logger: slog.New(slog.DiscardHandler),
	}.New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l, ring
}

// Writers, readers and changes of the configuration do not disturb each other.
func TestParallel(t *testing.T) {
	t.Parallel()
	l, ring := taking(t, 3000)
	ctx, cancel := context.WithCancel(t.Context())
	var readers, writers sync.WaitGroup
	readers.Go(func() {
		for ctx.Err() == nil {
			s := ring.Snapshot()
			last := int64(0)
			for i := range s.Len() {
				e := s.Entry(i)
				if e.Start < last || e.Target != "/a" || e.Method != "GET" {
					t.Errorf("entry %+v after %d", e, last)
				}
				last = e.Start
			}
			ring.Status()
		}
	})
	readers.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			next, err := config.Parse("test.yaml", []byte(strings.Replace(named, "query:key", fmt.Sprint("query:key", i%3), 1)))
			if err == nil {
				err = l.Update(next)
			}
			if err != nil {
				t.Error(err)
			}
			ring.Note(Reset)
			time.Sleep(time.Millisecond)
		}
	})
	for i := range 4 {
		writers.Go(func() {
			r := httptest.NewRequest("GET", "/a?key=1&key0=2", nil)
			r.Header.Set("X-Account-Id", fmt.Sprint("c", i))
			for range 5000 {
				d, err := l.Take(ctx, diana.Request{Method: "GET", Path: "/a", HTTP: r})
				if err != nil {
					t.Error(err)
					return
				}
				d.Done()
			}
		})
	}
	writers.Wait()
	cancel()
	readers.Wait()
	if n := len(ring.known); n > 3000 {
		t.Errorf("%d configurations are known", n)
	}
}

// A request costs no allocation.
func TestAllocations(t *testing.T) {
	if race.Enabled {
		t.Skip("pools forget more under the race detector")
	}
	l, _ := taking(t, 500)
	r := httptest.NewRequest("GET", "/a?key=1", nil)
	r.Header.Set("X-Account-Id", "carol")
	take := func() {
		d, err := l.Take(t.Context(), diana.Request{Method: "GET", Path: "/a", HTTP: r})
		if err != nil {
			t.Fatal(err)
		}
		d.Done()
	}
	for range 2000 {
		take()
	}
	if n := testing.AllocsPerRun(2000, take); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// The ring compiles some entries, and names their rules as the whole configuration does.
func TestNames(t *testing.T) {
	t.Parallel()
	c, err := config.Parse("test.yaml", []byte(`
- {url: /b, rules: [{name: / ip TB 5/second, rpu: 9}]}
- {url: /, rules: [{actor: ip, rpu: 5, cost: {answer: openai, reserve: {output: auto, or: 3}}}]}`))
	if err != nil {
		t.Fatal(err)
	}
	of, err := newReads(c, config.DefaultVocabulary())
	if err != nil {
		t.Fatal(err)
	}
	set, err := plan.Compile(c.Limits, c.Identity, c.Paths, config.DefaultVocabulary().Actors)
	if err != nil {
		t.Fatal(err)
	}
	want := set.Rules[1]
	if of.client.Name != want.Name || of.costs[0].name != want.ReservationKey() {
		t.Errorf("%q and %q, want %q and %q", of.client.Name, of.costs[0].name, want.Name, want.ReservationKey())
	}
}

// The Wait of a refusal that only reservations cause says when to ask again, and nothing about the counter. So the
// ring has none.
func TestReservedHasNoWait(t *testing.T) {
	t.Parallel()
	g := newGateway(t, Options{Requests: 10}, "limits: [{url: /, rules: [{name: a, rpu: 10, unit: minute, cost: {answer: bytes, reserve: 10}}]}]")
	var refused httptest.ResponseRecorder
	next := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		g.limiter.Handler(http.NotFoundHandler()).ServeHTTP(&refused, httptest.NewRequest("GET", "/", nil))
	})
	g.limiter.Handler(next).ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
	met := g.ring.Snapshot().Entry(1).Met[0]
	if met.Allowed || met.Remaining != 0 || met.Wait != 0 {
		t.Errorf("%d: met %+v, expected a refusal with Remaining 0 and Wait 0", refused.Code, met)
	}
}

// The ring reads a configuration before that is in force, so no request waits for it.
func TestReadsBeforeInForce(t *testing.T) {
	t.Parallel()
	var limiter *diana.Limiter
	ring := New(Options{Requests: 10, Vocabulary: config.DefaultVocabulary(), Config: func() *config.Config { return limiter.Config() }})
	var o diana.Options
	ring.Observe(&o)
	for _, text := range []string{"limits: [{url: /, rules: [{rpu: 1}]}]", "limits: [{url: /, rules: [{rpu: 2}]}]"} {
		c, err := config.Parse("test.yaml", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if limiter == nil {
			limiter, err = o.New(c)
		} else {
			err = limiter.Update(c)
		}
		if err != nil {
			t.Fatal(err)
		}
		made := ring.next.Load()
		ring.Filter(limiter.Handler(http.NotFoundHandler())).ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
		if made == nil || made != ring.reads.Load() {
			t.Errorf("%s: the request has read the configuration", text)
		}
	}
	if err := limiter.Close(); err != nil {
		t.Error(err)
	}
}

// Earlier configurations are kept for the requests that they have decided, but not without bound.
func TestLargeConfigurations(t *testing.T) {
	t.Parallel()
	l, ring := taking(t, 64)
	var inForce *config.Config
	ring.options.Config = func() *config.Config { return inForce }
	large := rule.Entry{Rules: make([]rule.Rule, mostRules/2)}
	requests := []int{15, 30, 45, 31} // the last one is of the fourth configuration, which drops the first
	var first weak.Pointer[config.Config]
	for n, want := range requests {
		inForce = &config.Config{Limits: []rule.Entry{large}}
		if n == 0 {
			first = weak.Make(inForce)
		}
		for range min(15, want-15*min(n, 2)) {
			d, err := l.Take(t.Context(), diana.Request{Method: "GET", Path: "/a"})
			if err != nil {
				t.Fatal(err)
			}
			d.Done()
		}
		s, left := ring.Snapshot(), ring.Status().Requests
		if kept := min(n+1, 3); len(ring.known) != kept || s.Len() != want || left > want+8 || s.Whole != (n < 3) || s.Config(want-1) != inForce {
			t.Errorf("%d and %d requests of %d configurations, whole %v, want %d of %d", s.Len(), left, len(ring.known), s.Whole, want, kept)
		}
	}
	testproc.Eventually(t, func() bool { // the pool of encoders forgets it after the second collection
		runtime.GC()
		return first.Value() == nil
	})
	runtime.KeepAlive(ring)
}
