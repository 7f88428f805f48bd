// SPDX-License-Identifier: MIT

package diana_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/internal/redistest"
	"github.com/diana-limiter/diana/internal/testproc"
	"github.com/diana-limiter/diana/limit"
	"github.com/diana-limiter/diana/redisstore"
)

// reset is Reset for a test.
func reset(t testing.TB, l *diana.Limiter, rule string, actor ...string) {
	t.Helper()
	if err := l.Reset(t.Context(), rule, actor...); err != nil {
		t.Fatal(err)
	}
}

// Reset lets one actor use its whole limit again, under each algorithm. Other actors and other
// rules keep their counters.
func TestReset(t *testing.T) {
	t.Parallel()
	for _, algo := range []string{"TB", "TB, burst: 3, warmup: 1m", "W, align: first", "SW", "SL"} {
		now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		l := clocked(t, `
url: /
rules:
  - {name: other, actor: device, unit: day, rpu: 5, algo: SL, mode: shadow}
  - {name: each, actor: device, unit: day, rpu: 3, algo: `+algo+`}
`, &now)
		first := count(t, l, 9, device("/", "ann"))
		if got := count(t, l, 9, device("/", "bob")); got != first {
			t.Fatalf("%s: %d allowed, and %d of another actor", algo, first, got)
		}
		reset(t, l, "each", "ann")
		if d := peek(t, l, device("/", "ann")); !d.Allowed || d.Verdicts[0].Remaining != 5-int64(first) {
			t.Errorf("%s: Peek: allowed %v, %d left under the other rule", algo, d.Allowed, d.Verdicts[0].Remaining)
		}
		if got := count(t, l, 9, device("/", "bob")); got != 0 {
			t.Errorf("%s: %d more allowed of another actor", algo, got)
		}
		if got := count(t, l, 9, device("/", "ann")); got != first {
			t.Errorf("%s: %d allowed after Reset, want %d", algo, got, first)
		}
	}
}

// An actor can be named by its value, by the rule's actors, or by its key. Reset of an actor that
// the rule has not seen does nothing.
func TestResetNamesOfActors(t *testing.T) {
	t.Parallel()
	l := limiter(t, `
identity: {account: [header:X-Account]}
limits:
- {url: /account, rules: [{name: account, actor: account, unit: day, rpu: 1, algo: W, align: first}]}
- {url: /both, rules: [{name: both, actor: [account, ip], unit: day, rpu: 1, algo: W, align: first}]}
- {url: /all, rules: [{name: all, unit: day, rpu: 1, algo: W, align: first}]}
`)
	request := func(path, account string) diana.Request {
		return diana.Request{Path: path, Actors: map[string]string{"header:X-Account": account, "ip": "192.0.2.1"}}
	}
	keyOf := func(path string) string {
		e, err := l.Explain(request(path, "ann"))
		if err != nil {
			t.Fatal(err)
		}
		return e[0].Key
	}
	for _, row := range []struct {
		path, rule string
		actor      []string
	}{
		{"/account", "account", []string{"ann"}},
		{"/account", "account", []string{"account=ann"}},
		{"/account", "account", []string{"header:X-Account=ann"}},
		{"/account", "account", []string{keyOf("/account")}},
		{"/both", "both", []string{"ip=192.0.2.1", "account=ann"}},
		{"/both", "both", []string{keyOf("/both")}},
		{"/all", "all", []string{"all"}},
	} {
		count(t, l, 1, request(row.path, "ann"))
		if ask(t, l, request(row.path, "ann")).Allowed {
			t.Fatalf("%s allows two requests", row.path)
		}
		if row.path != "/all" {
			var other []string
			for _, text := range row.actor {
				other = append(other, strings.ReplaceAll(text, "ann", "eve"))
			}
			reset(t, l, row.rule, other...)
		}
		if ask(t, l, request(row.path, "ann")).Allowed {
			t.Errorf("%v of another actor resets this one", row.actor)
		}
		reset(t, l, row.rule, row.actor...)
		if !ask(t, l, request(row.path, "ann")).Allowed {
			t.Errorf("Reset of %s for %q has no effect", row.rule, row.actor)
		}
	}
}

// The errors of Reset say what was expected.
func TestResetErrors(t *testing.T) {
	t.Parallel()
	l := limiter(t, `
- {url: /account, rules: [{name: account, actor: account, unit: day, rpu: 1}]}
- {url: /both, rules: [{name: both, actor: [account, ip], unit: day, rpu: 1}]}
- {url: /ip, rules: [{name: ip, actor: ip, unit: day, rpu: 1}]}
- {url: /all, rules: [{name: all, unit: day, rpu: 1}]}
`)
	for _, row := range []struct {
		rule  string
		actor []string
		want  string
	}{
		{"none", []string{"ann"}, `no rule has the name "none", expected one of "account", "all", "both", "ip"`},
		{"account", []string{""}, `actor "": expected a value of account`},
		{"account", nil, "actor account is missing, expected a value of account"},
		{"account", []string{"ann", "bob"}, `actor "bob": account is given twice`},
		{"both", []string{"ann"}, `actor "ann": expected account=VALUE and ip=VALUE`},
		{"both", []string{"account=ann"}, "actor ip is missing, expected account=VALUE and ip=VALUE"},
		{"ip", []string{"ann"}, `actor "ann": expected an IP address`},
		{"all", []string{"ann"}, `rule "all" counts all requests together, expected the actor "all"`},
		{"all", nil, `expected the actor "all"`},
	} {
		err := l.Reset(t.Context(), row.rule, row.actor...)
		if err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s, %q: %v, want %s", row.rule, row.actor, err, row.want)
		}
	}
}

// The actors of an override have counters of their own, which Reset forgets too.
func TestResetOfOverrides(t *testing.T) {
	t.Parallel()
	l := limiter(t, `
url: /
rules: [{name: each, actor: device, unit: day, rpu: 2, algo: SL, except: [eve], overrides: {ann: {rpu: 4}, bob: {rpu: 0}}}]
`)
	for name, want := range map[string]int{"ann": 4, "bob": 0, "cid": 2, "eve": 9} {
		for round := range 2 {
			if got := count(t, l, 9, device("/", name)); got != want {
				t.Errorf("%s, round %d: %d allowed, want %d", name, round, got, want)
			}
			reset(t, l, "each", name)
		}
	}
}

// A request that waits because its actor is over the limit proceeds as soon as the actor is reset.
func TestResetWakesAWaiter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newTimeline(t, "{url: /, rules: [{name: each, actor: device, unit: minute, rpu: 2, algo: W, align: first, wait: 5m}]}")
		for i := range 6 {
			s.send(t.Context(), fmt.Sprint(i+1), device("/", "a"))
		}
		s.send(t.Context(), "b1", device("/", "b"))
		s.send(t.Context(), "b2", device("/", "b"))
		s.send(t.Context(), "b3", device("/", "b"))
		time.Sleep(10 * time.Second)
		reset(t, s.l, "each", "a")
		s.want("1 0s", "2 0s", "b1 0s", "b2 0s", "3 10s", "4 10s", "b3 1m0s", "5 1m10s", "6 1m10s")
		if n := s.l.Waiting(); n != 0 || !s.l.Idle() {
			t.Errorf("%d requests wait", n)
		}
	})
}

// Requests in a leaky bucket keep their scheduled times when their actor is reset, and a later
// request comes after them.
func TestResetKeepsScheduledTimes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newTimeline(t, "{url: /, rules: [{name: each, actor: device, unit: second, rpu: 1, algo: LB, queue: 3}]}")
		for i := range 5 {
			s.send(t.Context(), fmt.Sprint(i+1), device("/", "a"))
		}
		reset(t, s.l, "each", "a")
		s.send(t.Context(), "late", device("/", "a"))
		s.want("1 0s", "5 refused 0s", "late refused 0s", "2 1s", "3 2s", "4 3s")
		reset(t, s.l, "each", "a")
		s.send(t.Context(), "at once", device("/", "a"))
		s.want("at once 3s")
	})
}

// Slots stay held: Reset under concurrency changes nothing.
func TestResetKeepsSlots(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t)
	l := gateways(t, 1, r.URL(), "10s", `
- {url: /local, rules: [{name: local, rpu: 1, algo: C}]}
- {url: /global, rules: [{name: global, rpu: 1, algo: C, scope: global}]}
`)[0]
	for _, rule := range []string{"local", "global"} {
		d, err := l.Take(t.Context(), diana.Request{Path: "/" + rule})
		if err != nil || !d.Allowed {
			t.Fatal(d.Allowed, err)
		}
		reset(t, l, rule, "all")
		if ask(t, l, diana.Request{Path: "/" + rule}).Allowed {
			t.Errorf("%s: Reset has freed a slot", rule)
		}
		d.Done()
		if got := count(t, l, 3, diana.Request{Path: "/" + rule}); got != 3 {
			t.Errorf("%s: %d of 3 are allowed one after another", rule, got)
		}
	}
}

// An actor that shares the overflow counter has no counter of its own, so Reset of the actor leaves
// the shared counter as it is.
func TestResetKeepsTheOverflowCounter(t *testing.T) {
	t.Parallel()
	l := limiter(t, `
max_keys: 8
limits:
- {url: /, rules: [{name: each, actor: device, unit: day, rpu: 2, algo: W, align: first}]}
`)
	for i := range 8 {
		count(t, l, 2, device("/", fmt.Sprint(i)))
	}
	if got := count(t, l, 3, device("/", "new")); got != 2 {
		t.Fatalf("the overflow counter allows %d, want 2", got)
	}
	reset(t, l, "each", "new")
	for _, id := range []string{"new", "newer", "0"} {
		if ask(t, l, device("/", id)).Allowed {
			t.Errorf("%s is allowed after the reset of an actor without a counter", id)
		}
	}
	reset(t, l, "each", "0")
	if got := count(t, l, 3, device("/", "0")); got != 2 {
		t.Errorf("%d allowed after Reset of an actor with a counter, want 2", got)
	}
}

// Every gateway forgets an actor that one gateway resets in Redis: the refusals that it remembers,
// its local counters, and a request that waits.
func TestResetInRedis(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t)
	all := gateways(t, 2, r.URL(), "10s", `
- url: /each
  rules: [{name: each, actor: device, unit: day, rpu: 3, algo: SL, scope: global, overrides: {bob: {rpu: 1}}}]
- url: /closed
  rules: [{name: closed, actor: device, unit: day, rpu: 3, algo: W, align: first, scope: global, on_error: closed}]
- url: /wait
  rules: [{name: wait, actor: device, unit: 10m, rpu: 1, algo: W, align: first, scope: global, wait: 10m}]
`)
	for _, row := range []struct{ path, id string }{{"/each", "ann"}, {"/each", "bob"}, {"/closed", "ann"}} {
		request := device(row.path, row.id)
		want := count(t, all[0], 9, request)
		if got := count(t, all[1], 9, request); got != 0 {
			t.Fatalf("%v: %d allowed by another gateway", row, got)
		}
		reset(t, all[0], strings.TrimPrefix(row.path, "/"), row.id)
		testproc.Eventually(t, func() bool { return ask(t, all[1], request).Allowed })
		if got := count(t, all[0], 9, request) + count(t, all[1], 9, request); got != want-1 {
			t.Errorf("%v: %d more allowed after Reset, want %d", row, got, want-1)
		}
	}

	count(t, all[0], 1, device("/wait", "ann"))
	done := make(chan bool)
	go func() {
		d, err := all[1].Take(t.Context(), device("/wait", "ann"))
		done <- err == nil && d.Allowed
		d.Done()
	}()
	testproc.Eventually(t, func() bool { return all[1].Waiting() == 1 })
	reset(t, all[0], "wait", "ann")
	if !<-done {
		t.Error("a request that waits in another gateway is not allowed")
	}
}

// While Redis is down Reset is an error, and can be repeated.
func TestResetWithoutRedis(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t)
	l := gateways(t, 1, r.URL(), "500ms", "- {url: /, rules: [{name: each, actor: device, unit: day, rpu: 3, algo: SL, scope: global}]}")[0]
	if got := count(t, l, 9, device("/", "ann")); got != 3 {
		t.Fatalf("%d allowed, want 3", got)
	}
	r.Freeze()
	testproc.Eventually(t, func() bool { return ask(t, l, device("/", "ann")).Degraded })
	if err := l.Reset(t.Context(), "each", "ann"); !errors.Is(err, redisstore.ErrUnavailable) {
		t.Errorf("Reset while Redis is down: %v", err)
	}
	r.Thaw()
	testproc.Eventually(t, func() bool { return l.Reset(t.Context(), "each", "ann") == nil })
	testproc.Eventually(t, func() bool { return !peek(t, l, device("/", "ann")).Degraded })
	if d := peek(t, l, device("/", "ann")); !d.Allowed || d.Verdicts[0].Remaining == limit.Unknown {
		t.Errorf("after Reset: %+v", d)
	}
}

// A gateway that has served an actor under a global leaky bucket forgets the distance to the next
// request when the actor is reset.
func TestResetGlobalLeakyBucket(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t)
	l := limiter(t, fmt.Sprintf(`
redis: {url: %q, timeout: 10s}
limits: [{url: /, rules: [{name: even, actor: account, scope: global, unit: hour, rpu: 3, algo: LB, queue: 0}]}]
`, r.URL()))
	testproc.Eventually(t, connected(l))
	ann := diana.Request{Path: "/", Actors: map[string]string{"account": "ann"}}
	for range 3 {
		d, err := l.Take(t.Context(), ann)
		if err != nil || !d.Allowed || d.Delayed > 0 && d.Verdicts[0].Wait > 1 {
			t.Fatalf("%+v, %v, want no wait", d, err)
		}
		d.Done()
		if err := l.Reset(t.Context(), "even", "ann"); err != nil {
			t.Fatal(err)
		}
	}
}
