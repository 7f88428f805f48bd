// SPDX-License-Identifier: MIT

package diana_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/config"
	"github.com/diana-limiter/diana/internal/race"
	"github.com/diana-limiter/diana/limit"
	"github.com/diana-limiter/diana/rule"
)

// told collects the calls of OnRefusal.
type told struct {
	mu   sync.Mutex // guards the rest
	list []diana.Refusal
}

func (o *told) add(r diana.Refusal) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.list = append(o.list, r)
}

// texts returns the calls since texts was called last.
func (o *told) texts() (texts []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, r := range o.list {
		texts = append(texts, fmt.Sprintf("%s %s %s %s shadow=%v count=%d left=%d", r.Rule, r.Actor, r.Method, r.Path, r.Shadow, r.Count, r.LeftOut))
	}
	o.list = nil
	return texts
}

// telling returns a Limiter with the rules of refusing, and its calls of OnRefusal.
func telling(t *testing.T) (*diana.Limiter, *told) {
	t.Helper()
	c, err := config.Parse("test.yaml", []byte(refusing))
	if err != nil {
		t.Fatal(err)
	}
	o := &told{}
	l, err := diana.Options{Logger: slog.New(slog.DiscardHandler), OnRefusal: o.add}.New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l, o
}

func named(path, name string) diana.Request {
	return diana.Request{Method: "GET", Path: path, Actors: map[string]string{"account": name}}
}

const refusing = `
- url: /
  rules: [{name: none, actor: account, rpu: 0}]
- url: /trial
  rules: [{name: trial, actor: ip, rpu: 0, mode: shadow}]
`

// A long key of a charge is hashed before any list remembers it. It stays the key of one counter.
func TestLongKeyOfCharge(t *testing.T) {
	t.Parallel()
	l, o := telling(t)
	long := strings.Repeat("x", 1<<20)
	for _, key := range []string{strings.Repeat("y", 1024), long, long + "z", "sha256:" + strings.Repeat("0", 64)} {
		if allowed, _ := charging(t, l, rule.Charge{Rule: "none", Key: key, Cost: 1}); allowed {
			t.Fatal("a charge is allowed, want it refused")
		}
		if len(o.list) != 1 {
			t.Fatalf("%d calls of OnRefusal, want 1", len(o.list))
		}
		actor := o.list[0].Actor
		if o.list = nil; (len(key) == 1024) != (actor == key) || len(actor) > 1024 {
			t.Errorf("a key of %d bytes is reported as %.80q, which has %d", len(key), actor, len(actor))
		}
	}
	for _, top := range l.Status().Rules[0].TopRefused {
		if len(top.Actor) > 1024 {
			t.Errorf("the status has an actor of %d bytes", len(top.Actor))
		}
	}
	onBothStores(t, func(t *testing.T, l *diana.Limiter) {
		digest := sha256.Sum256([]byte(long))
		for _, row := range []struct {
			key  string
			cost int64
			left int64
		}{
			{long, 3, 2}, {long + "z", 1, 4}, {fmt.Sprintf("sha256:%x", digest), 1, 4}, {long, 2, 0}, {"ann", 1, 4}, {long, -2, -1}, {long, 0, 2},
		} {
			allowed, left := charging(t, l, rule.Charge{Rule: "small", Key: row.key, Cost: row.cost})
			if !allowed || row.cost >= 0 && left[0] != row.left {
				t.Errorf("a charge of %d to %.20s... leaves %v, want %d", row.cost, row.key, left, row.left)
			}
		}
	})
}

// The first refusal of an actor under a rule is reported at once. Further ones are reported at most
// once a minute, with their count.
func TestRefusalsAreReported(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l, o := telling(t)
		want := func(want ...string) {
			t.Helper()
			synctest.Wait()
			if got := o.texts(); !slices.Equal(got, want) {
				t.Errorf("got %q, want %q", got, want)
			}
		}
		ask(t, l, named("/a", "ann"))
		want("none account=3:ann; GET /a shadow=false count=1 left=0")
		ask(t, l, named("/trial", "ann"))
		want("trial ip=none; GET /trial shadow=true count=1 left=0")
		time.Sleep(59 * time.Second)
		ask(t, l, named("/b", "ann"))
		want()
		time.Sleep(2 * time.Second) // it is reported without another request
		want("none account=3:ann; GET /b shadow=false count=2 left=0")
		time.Sleep(time.Hour)
		want()
		ask(t, l, named("/c", "ann"))
		ask(t, l, named("/c", "bob"))
		want("none account=3:ann; GET /c shadow=false count=1 left=0", "none account=3:bob; GET /c shadow=false count=1 left=0")
		l.Close()
		time.Sleep(time.Hour)
		want()
	})
}

// Status lists the ten actors that a rule has refused most often.
func TestTopRefused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, refusing)
		for i := range 20 {
			for range i {
				ask(t, l, named("/trial", fmt.Sprint("a", i)))
				time.Sleep(time.Millisecond)
			}
		}
		rules := l.Status().Rules
		if got := rules[1].TopRefused; len(got) != 1 || got[0] != (diana.TopRefused{Actor: "ip=none;", Count: 190, Exact: true}) {
			t.Error(got)
		}
		got := rules[0].TopRefused
		if len(got) != 10 {
			t.Fatal(got)
		}
		for i, r := range got {
			if want := (diana.TopRefused{Actor: fmt.Sprintf("account=3:a%d;", 19-i), Count: int64(19 - i), Exact: true}); r != want {
				t.Errorf("%v, want %v", r, want)
			}
		}
	})
}

// Invented actors do not hide the actor that is refused most. A count that is not exact says so.
func TestTopRefusedUnderFlood(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l, _ := telling(t)
		for i := range 20_000 {
			ask(t, l, named("/", strings.Repeat("x", 200)+fmt.Sprint(i)))
			if i%10 == 0 {
				ask(t, l, named("/", "bob"))
			}
			time.Sleep(100 * time.Microsecond)
		}
		got := l.Status().Rules[0].TopRefused
		if len(got) != 10 || got[0] != (diana.TopRefused{Actor: "account=3:bob;", Count: 2000, Exact: true}) {
			t.Error(got)
		}
		if got[9].Exact {
			t.Error("the count of an actor that has taken over another's is exact:", got[9])
		}
	})
}

// A core that refuses more than it can record counts a sample, and the count says so.
func TestTopRefusedSampled(t *testing.T) {
	t.Parallel()
	if race.Enabled {
		t.Skip("a pool forgets at random under the race detector, and with it what a core has noted")
	}
	synctest.Test(t, func(t *testing.T) { // no time passes in it
		l := limiter(t, refusing)
		const n = 10_000
		for range n {
			ask(t, l, named("/", "ann"))
		}
		got := l.Status().Rules[0]
		if got.Refused != n || len(got.TopRefused) != 1 || got.TopRefused[0] != (diana.TopRefused{Actor: "account=3:ann;", Count: n}) {
			t.Error(got)
		}
	})
}

// Many goroutines lose no count.
func TestTopRefusedConcurrently(t *testing.T) {
	t.Parallel()
	l, _ := telling(t)
	const each = 2000
	var asking sync.WaitGroup
	for g := range 8 {
		asking.Go(func() {
			for i := range each {
				d, err := l.Take(context.Background(), named("/", fmt.Sprint("g", (g+i)%4)))
				if err != nil || d.Allowed {
					t.Error(d.Allowed, err)
				}
				d.Done()
				_ = l.Status()
			}
		})
	}
	asking.Wait()
	got := l.Status().Rules[0]
	sum, exact := int64(0), true
	for _, r := range got.TopRefused {
		sum += r.Count
		exact = exact && r.Exact
	}
	if got.Refused != 8*each || len(got.TopRefused) != 4 || exact && sum != 8*each {
		t.Error(got)
	}
}

// The name that a client sends cannot end a line of the log.
func TestActorsStayOnOneLine(t *testing.T) {
	t.Parallel()
	l, o := telling(t)
	ask(t, l, named("/", "a\nlevel=ERROR\x1b[2J\u009b"))
	const want = `"account=19:a\nlevel=ERROR\x1b[2J\u009b;"`
	if got := o.list[0].Actor; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got := l.Status().Rules[0].TopRefused[0].Actor; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// The counts continue when the configuration changes, as the counts of decisions do.
func TestTopRefusedAcrossReload(t *testing.T) {
	t.Parallel()
	f := newFolder(t)
	l := open(t, quiet, f.write("diana.yaml", refusing))
	ask(t, l, named("/", "ann"))
	f.write("diana.yaml", strings.Replace(refusing, "url: /trial", "url: /later", 1))
	if err := l.Reload(); err != nil {
		t.Fatal(err)
	}
	ask(t, l, named("/", "ann"))
	if got := l.Status().Rules[0].TopRefused; len(got) != 1 || got[0] != (diana.TopRefused{Actor: "account=3:ann;", Count: 2, Exact: true}) {
		t.Error(got)
	}
}

// A report says whether on_error has refused, in place of the store that the rule is counted in.
func TestReportedDegraded(t *testing.T) {
	t.Parallel()
	e, o := newEdge(), &told{}
	v := config.DefaultVocabulary()
	v.Scopes = append(v.Scopes, "edge")
	c, err := v.Parse("test.yaml", []byte(`
- {url: /closed, rules: [{name: closed, actor: account, unit: day, rpu: 0, scope: edge, on_error: closed}]}
- {url: /share, rules: [{name: share, actor: account, unit: day, rpu: 0, scope: edge, mode: shadow}]}
- {url: /here, rules: [{name: here, actor: account, unit: day, rpu: 0}]}
`))
	if err != nil {
		t.Fatal(err)
	}
	l, err := diana.Options{Logger: quiet.Logger, OnRefusal: o.add, Stores: map[string]limit.Store{"edge": e}}.New(c)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, down := range []bool{false, true} {
		e.down.Store(down)
		for _, path := range []string{"/closed", "/share", "/here"} {
			ask(t, l, named(path, fmt.Sprint(path, down)))
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	var degraded []string
	for _, r := range o.list {
		if r.Degraded {
			degraded = append(degraded, r.Rule)
		}
	}
	if want := []string{"closed", "share"}; len(o.list) != 6 || !slices.Equal(degraded, want) {
		t.Errorf("%+v, want on_error for %q", o.list, want)
	}
}

// Of a request that has several paths and methods, the report has those of the rule.
func TestReportedReading(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := &told{}
		c, err := config.Parse("test.yaml", []byte(`
- {url: POST /login, rules: [{name: login, rpu: 0}]}
- {url: /api, rules: [{name: api, unit: day, rpu: 1}]}
`))
		if err != nil {
			t.Fatal(err)
		}
		l, err := diana.Options{Logger: slog.New(slog.DiscardHandler), OnRefusal: o.add}.New(c)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		request := diana.Request{Method: "GET", OtherMethods: []string{"PUT", "post"}, Path: "/harmless", OtherPaths: []string{"/a;v=1", "/x/../api"}}
		for range 2 {
			ask(t, l, request)
		}
		request.OtherPaths = []string{"/login"}
		ask(t, l, request)
		want := []string{"api all GET /x/../api shadow=false count=1 left=0", "login all post /login shadow=false count=1 left=0"}
		if got := o.texts(); !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	})
}

// The status says how many requests the overflow counter of a rule has evaluated, and the log warns once
// a minute. A reload changes neither. Actors of another rule still have their room.
func TestOverflowIsReported(t *testing.T) {
	t.Parallel()
	const limits = `
max_keys: %d
limits:
- {url: /a, rules: [{name: a, actor: device, unit: day, rpu: 1, algo: W, align: first}]}
- {url: /b, rules: [{name: b, actor: device, unit: day, rpu: 1, algo: W, align: first}]}
- {url: /shadow, rules: [{name: shadow, actor: device, unit: day, rpu: 1, algo: W, align: first, mode: shadow}]}
`
	log, now := &journal{}, time.Now()
	o := diana.Options{Logger: slog.New(slog.NewTextHandler(log, nil)), Now: func() time.Time { return now }}
	f := newFolder(t)
	l := open(t, o, f.write("diana.yaml", fmt.Sprintf(limits, 24)))
	flood := func(path string, from, to int) {
		for i := from; i < to; i++ {
			ask(t, l, device(path, fmt.Sprint(i)))
		}
	}
	check := func(when string, rule int, overflow int64, warnings int) {
		t.Helper()
		s := l.Status().Rules[rule]
		if s.Overflow != overflow {
			t.Errorf("%s: overflow of %s is %d, want %d", when, s.Name, s.Overflow, overflow)
		}
		said := 0
		for line := range strings.Lines(log.String()) {
			if strings.Contains(line, "share one counter") && strings.Contains(line, "rule="+s.Name+" max_keys=24") {
				said++
			}
		}
		if said != warnings {
			t.Errorf("%s: %d warnings of %s, want %d:\n%s", when, said, s.Name, warnings, log)
		}
	}
	flood("/a", 0, 20) // 24 without the two rooms of others
	check("full", 0, 0, 0)
	flood("/a", 20, 120) // one is allowed, and 99 are refused
	check("flooded", 0, 100, 1)
	flood("/b", 0, 2)
	check("in its room", 1, 0, 0)
	flood("/b", 2, 5)
	check("beyond its room", 1, 3, 1)
	flood("/shadow", 0, 5)
	check("shadow", 2, 3, 1)

	now = now.Add(59 * time.Second)
	f.write("diana.yaml", fmt.Sprintf(limits, 23))
	if err := l.Reload(); err != nil {
		t.Fatal(err)
	}
	f.write("diana.yaml", fmt.Sprintf(limits, 24))
	if err := l.Reload(); err != nil {
		t.Fatal(err)
	}
	flood("/a", 120, 130)
	check("reloaded", 0, 110, 1)
	now = now.Add(time.Second)
	flood("/a", 130, 140)
	check("a minute later", 0, 120, 2)
}

// For a minute 100,000 invented devices a second use a store of 100,000. Memory stays bounded, and an
// actor that was over its limit before still is.
func TestFloodKeepsMemoryAndLimits(t *testing.T) {
	if race.Enabled || testing.Short() {
		t.Skip("a million requests")
	}
	for _, algo := range []string{"TB", "SW"} {
		t.Run(algo, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := limiter(t, `
max_keys: 10000
limits:
  - url: /
    rules:
      - {name: second, actor: device, unit: second, rpu: 10, algo: `+algo+`}
      - {name: hour, actor: device, unit: hour, rpu: 100, algo: `+algo+`}
`)
				for used := 0; used < 100; { // until the hour's rule is the one that refuses
					used += count(t, l, 10, device("/", "attacker"))
					time.Sleep(time.Second)
				}
				before := heap()
				devices := map[string]string{"device": ""}
				id, next, most := make([]byte, 0, 20), 0, 0
				for range 60 * 10 {
					for range 1000 {
						next++
						id = strconv.AppendInt(append(id[:0], 'd'), int64(next), 10)
						devices["device"] = string(id)
						d, err := l.Take(context.Background(), diana.Request{Path: "/", Actors: devices})
						if err != nil {
							t.Fatal(err)
						}
						d.Done()
					}
					most = max(most, l.Status().Keys)
					time.Sleep(100 * time.Millisecond)
				}
				grown := float64(int64(heap()-before)) / 1e6
				t.Logf("%d devices: at most %d keys, %d evicted, the heap grew by %.1f MB", next, most, l.Status().Evictions, grown)
				if most > 10_000+2 {
					t.Errorf("%d keys, want at most 10,000 and an overflow for each rule", most)
				}
				if grown > 1 {
					t.Errorf("the heap grew by %.1f MB, want at most 1", grown)
				}
				if got := count(t, l, 100, device("/", "attacker")); got > 2 {
					t.Errorf("%d requests of an actor over its limit were allowed after the flood", got)
				}
			})
		})
	}
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
