// SPDX-License-Identifier: MIT

package diana_test

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http/httptest"
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
	"github.com/diana-limiter/diana/internal/redistest"
	"github.com/diana-limiter/diana/internal/testproc"
	"github.com/diana-limiter/diana/limit"
	"github.com/diana-limiter/diana/redisstore"
	"github.com/diana-limiter/diana/rule"
)

// peek is ask by Peek.
func peek(t testing.TB, l *diana.Limiter, r diana.Request) diana.Decision {
	t.Helper()
	d, err := l.Peek(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// predicts checks that a decision of Peek is the one that Take made directly afterwards. Peek
// describes the state before the charge, and Take the state after it. Take does not ask about all
// rules if one has refused already.
func predicts(t *testing.T, what string, peeked, taken *diana.Decision, cost int64) {
	t.Helper()
	if peeked.Allowed != taken.Allowed || peeked.Delayed != taken.Delayed || peeked.Degraded != taken.Degraded {
		t.Errorf("%s: Peek: allowed %v, delayed %v, degraded %v; Take: %v, %v, %v", what,
			peeked.Allowed, peeked.Delayed, peeked.Degraded, taken.Allowed, taken.Delayed, taken.Degraded)
	}
	if len(peeked.Verdicts) != len(taken.Verdicts) {
		t.Fatalf("%s: Peek has %d verdicts, and Take %d", what, len(peeked.Verdicts), len(taken.Verdicts))
	}
	for i := range taken.Verdicts {
		p, v := peeked.Verdicts[i], taken.Verdicts[i]
		left := v.Remaining
		switch {
		case v.Rule.Limit.Warmup > 0: // a request consumes more than its cost while the bucket is cold
			left = p.Remaining
		case taken.Allowed && v.Allowed:
			left += cost
		}
		if p.Rule != v.Rule || v.Remaining != limit.Unknown && (p.Allowed != v.Allowed || p.Remaining != left) {
			t.Errorf("%s: Peek of %s: allowed %v, %d left; Take: %v, %d left after %d", what,
				p.Rule.Name, p.Allowed, p.Remaining, v.Allowed, v.Remaining, cost)
		}
	}
}

// Under each algorithm, and under several rules at once, Peek returns what Take then decides.
func TestPeekPredictsTake(t *testing.T) {
	t.Parallel()
	for _, rules := range []string{
		"{rpu: 5, unit: minute, algo: TB}",
		"{rpu: 5, unit: minute, algo: TB, burst: 2, warmup: 1m}",
		"{rpu: 5, unit: minute, algo: W}",
		"{rpu: 5, unit: minute, algo: SW}",
		"{rpu: 5, unit: minute, algo: SL}",
		"{rpu: 5, unit: minute, algo: LB, queue: 3}",
		"{rpu: 2, algo: C}",
		"{rpu: 0}",
		"{rpu: 2, unit: minute, algo: W, mode: shadow}",
		"{rpu: 5, unit: minute, algo: W, wait: 1m}",
		"{rpu: 3, unit: minute, algo: W, scope: global}",
		"{rpu: 9, unit: minute, algo: W}, {rpu: 5, unit: minute, actor: device, algo: SL}, {rpu: 4, algo: C}, " +
			"{rpu: 8, unit: minute, algo: TB, mode: shadow}, {rpu: 7, unit: minute, algo: LB, queue: 2}",
		"{rpu: 3, unit: minute, actor: device, algo: SW, except: [a], overrides: {b: {rpu: 1}, c: {rpu: 0}}}, {rpu: 20, unit: minute}",
	} {
		t.Run(rules, func(t *testing.T) {
			t.Parallel()
			now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
			yaml := "{url: /, rules: [" + rules + "]}"
			if !strings.Contains(rules, "algo: LB") {
				yaml = strings.ReplaceAll(yaml, "rpu: ", "cost: client:Cost, rpu: ")
				yaml = strings.ReplaceAll(yaml, "{cost: client:Cost, rpu: 1}, c: {cost: client:Cost, rpu: 0}", "{rpu: 1}, c: {rpu: 0}")
			}
			l := clocked(t, yaml, &now)
			rnd := rand.New(rand.NewPCG(1, 2))
			var inside []diana.Decision
			allowed := 0
			for step := range 400 {
				now = now.Add(time.Duration(rnd.IntN(10)) * time.Second)
				for len(inside) > 0 && rnd.IntN(2) == 0 {
					inside[0].Done()
					inside = inside[1:]
				}
				cost := int64(1)
				r := device("/", string("abcd"[rnd.IntN(4)]))
				r.HTTP = httptest.NewRequest("GET", "/", nil)
				if !strings.Contains(rules, "algo: LB") && rnd.IntN(4) == 0 {
					cost = 2
				}
				r.HTTP.Header.Set("Cost", fmt.Sprint(cost))
				peeked := peek(t, l, r)
				again := peek(t, l, r)
				taken, err := l.Take(t.Context(), r)
				if err != nil {
					t.Fatal(err)
				}
				predicts(t, fmt.Sprint("step ", step), &peeked, &taken, cost)
				if fmt.Sprint(peeked) != fmt.Sprint(again) {
					t.Errorf("step %d: a second Peek differs: %+v and %+v", step, peeked, again)
				}
				if peeked.RetryAfter != taken.RetryAfter {
					t.Errorf("step %d: retry after %v by Peek, and %v by Take", step, peeked.RetryAfter, taken.RetryAfter)
				}
				if taken.Allowed {
					allowed++
				}
				inside = append(inside, taken)
				if t.Failed() {
					return
				}
			}
			if (allowed == 0) != (rules == "{rpu: 0}") {
				t.Errorf("%d of 400 were allowed", allowed)
			}
		})
	}
}

// Peek leaves no trace: not in the status, not in a hook, and not in what is left.
func TestPeekChangesNothing(t *testing.T) {
	t.Parallel()
	called := 0
	l := limiterOf(t, diana.Options{
		OnDecision: func(*diana.Decision) { called++ },
		OnRefusal:  func(diana.Refusal) { called++ },
	}, `
- {url: /each, rules: [{name: each, actor: device, unit: day, rpu: 3, algo: SL}, {name: shadow, unit: day, rpu: 1, algo: W, mode: shadow}]}
- {url: /held, rules: [{name: held, rpu: 1, algo: C}]}
- {url: /global, rules: [{name: global, unit: day, rpu: 3, algo: W, scope: global}]}
`)
	count(t, l, 5, device("/each", "used up"))
	count(t, l, 1, device("/each", "used"))
	status := func() string {
		text, err := json.Marshal(l.Status())
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	before, calls := status(), called
	for range 20 {
		for _, id := range []string{"used up", "used", "new"} {
			for _, path := range []string{"/each", "/held", "/global"} {
				peek(t, l, device(path, id))
			}
		}
		if _, err := l.Peek(t.Context(), diana.Request{Path: "/a%2f../b"}); err == nil {
			t.Fatal("Peek evaluates a path that is rejected")
		}
	}
	if after := status(); after != before || called != calls {
		t.Errorf("the status was %s\nand is %s\nand there were %d calls", before, after, called-calls)
	}
	if n := l.Rejected()["path"]; n != 0 {
		t.Errorf("%d requests count as rejected", n)
	}
	for _, row := range []struct {
		path, id string
		want     int
	}{{"/each", "used up", 0}, {"/each", "used", 2}, {"/each", "new", 3}, {"/held", "new", 5}, {"/global", "new", 3}} {
		if got := count(t, l, 5, device(row.path, row.id)); got != row.want {
			t.Errorf("%s, %s: %d allowed, want %d", row.path, row.id, got, row.want)
		}
	}
}

// Peek returns the errors of Take, but that of a wait: it does not wait.
func TestPeekErrors(t *testing.T) {
	t.Parallel()
	l := limiter(t, "{url: /, rules: [{rpu: 1, unit: day, algo: W, wait: 10m}]}")
	var rejected *rule.PathError
	if _, err := l.Peek(t.Context(), diana.Request{Path: "/a%2f../b"}); !errors.As(err, &rejected) {
		t.Errorf("a path that is rejected: %v", err)
	}
	count(t, l, 1, diana.Request{})
	ended, end := context.WithCancel(t.Context())
	end()
	if d, err := l.Peek(ended, diana.Request{}); err != nil || d.Allowed || d.Delayed != 0 {
		t.Errorf("over the limit: allowed %v, delayed %v, %v", d.Allowed, d.Delayed, err)
	}
	if n := l.Waiting(); n != 0 {
		t.Errorf("%d requests wait", n)
	}
}

// Peek asks Redis, where it changes nothing either, and sees what other gateways have used.
func TestPeekInRedis(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t)
	all := gateways(t, 2, r.URL(), "10s", `
- url: /
  rules: [{name: local, actor: device, unit: day, rpu: 100, algo: W, align: first}]
- url: /tb
  rules: [{name: tb, actor: device, unit: day, rpu: 3, scope: global}]
- url: /w
  rules: [{name: w, actor: device, unit: day, rpu: 3, algo: W, align: first, scope: global}]
- url: /sw
  rules: [{name: sw, actor: device, unit: day, rpu: 3, algo: SW, scope: global}]
- url: /sl
  rules: [{name: sl, actor: device, unit: day, rpu: 3, algo: SL, scope: global, except: [c], overrides: {b: {rpu: 1}}}]
- url: /c
  rules: [{name: c, actor: device, rpu: 3, algo: C, scope: global}]
- url: /shadow
  rules: [{name: shadow, actor: device, unit: day, rpu: 1, algo: SL, scope: global, mode: shadow}]
- url: /several
  rules:
    - {name: several, actor: device, unit: day, rpu: 4, algo: SL, scope: global}
    - {name: all, unit: day, rpu: 9, algo: SW, scope: global}
    - {name: refuses, actor: device, unit: day, rpu: 2, algo: SL}
`)
	rnd := rand.New(rand.NewPCG(1, 2))
	paths := []string{"/tb", "/w", "/sw", "/sl", "/c", "/shadow", "/several"}
	for _, path := range paths {
		for _, l := range all {
			peek(t, l, device(path, "a"))
		}
	}
	if n := countersIn(t, r); n != 0 {
		t.Errorf("Peek has made %d counters", n)
	}
	var inside []diana.Decision
	for step := range 150 {
		request := device(paths[rnd.IntN(len(paths))], string("abc"[rnd.IntN(3)]))
		l := all[rnd.IntN(2)]
		peeked := peek(t, l, request)
		taken, err := l.Take(t.Context(), request)
		if err != nil {
			t.Fatal(err)
		}
		inside = append(inside, taken)
		predicts(t, fmt.Sprint("step ", step, ", ", request.Path), &peeked, &taken, 1)
	}
	for i := range inside {
		inside[i].Done()
	}
}

// Without Redis, Peek decides as on_error says, as Take does.
func TestPeekWithoutRedis(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t)
	l := gateways(t, 1, r.URL(), "500ms", `
- url: /share
  rules: [{name: share, unit: day, rpu: 3, algo: SL, scope: global}]
- url: /local
  rules: [{name: local, unit: day, rpu: 3, algo: SL, scope: global, on_error: local}, {rpu: 100, unit: day, algo: SL}]
- url: /open
  rules: [{name: open, unit: day, rpu: 3, algo: SL, scope: global, on_error: open}]
- url: /closed
  rules: [{name: closed, unit: day, rpu: 3, algo: SL, scope: global, on_error: closed}]
- url: /shadow
  rules: [{name: shadow, unit: day, rpu: 3, algo: SL, scope: global, on_error: closed, mode: shadow}]
- url: /override
  rules: [{name: override, actor: device, unit: day, rpu: 3, algo: SL, scope: global, except: [b], overrides: {a: {rpu: 2}}}]
`)[0]
	r.Freeze()
	if d := peek(t, l, diana.Request{Path: "/share"}); !d.Allowed || !d.Degraded {
		t.Errorf("Redis does not answer: allowed %v, degraded %v", d.Allowed, d.Degraded)
	}
	if l.Status().Fallback != 0 {
		t.Error("Peek counts as a request that was evaluated without Redis")
	}
	r.Kill()
	testproc.Eventually(t, func() bool { return l.Status().Degraded })
	for path, want := range map[string]int{"/share": 3, "/local": 3, "/open": 6, "/closed": 0, "/shadow": 6, "/override": 2} {
		allowed := 0
		for step := range 6 {
			what := fmt.Sprint(path, " without Redis, step ", step)
			peeked := peek(t, l, device(path, "a"))
			taken := ask(t, l, device(path, "a"))
			if peeked.Allowed != taken.Allowed || !peeked.Degraded || !taken.Degraded || (peeked.RetryAfter > 0) != (taken.RetryAfter > 0) {
				t.Errorf("%s: Peek: %+v; Take: %+v", what, peeked, taken)
			}
			if taken.Allowed {
				allowed++
			}
		}
		if allowed != want {
			t.Errorf("%s: %d allowed, want %d", path, allowed, want)
		}
	}
	if d := peek(t, l, device("/override", "b")); !d.Allowed || len(d.Verdicts) != 0 {
		t.Errorf("an exempt client: %+v", d)
	}
}

// A newcomer that max_keys leaves no room for is evaluated by the overflow counter, in Redis too.
func TestPeekOfTheOverflowCounter(t *testing.T) {
	t.Parallel()
	for _, scope := range []string{"local", "global", "global, on_error: closed", "global, on_error: open"} {
		t.Run(scope, func(t *testing.T) {
			t.Parallel()
			l := sharing(t, 1, fmt.Sprintf(`
max_keys: 8
redis: {url: %q, timeout: 10s}
limits:
- {url: /, rules: [{name: each, actor: device, unit: day, rpu: 2, algo: W, align: first, scope: %s}]}
`, redistest.Start(t).URL(), scope))[0]
			for i := range 20 {
				request := device("/", fmt.Sprint(i))
				peeked := peek(t, l, request)
				if taken := ask(t, l, request); peeked.Allowed != taken.Allowed || taken.Allowed != (i < 8+2) {
					t.Errorf("actor %d: allowed %v by Peek and %v by Take", i, peeked.Allowed, taken.Allowed)
				}
			}
			if n := l.Status().Rules[0].Overflow; n != 12 {
				t.Errorf("%d requests count for the overflow counter, want 12", n)
			}
		})
	}
}

// peeked is what PeekActor says, in one line for each key.
func peeked(t *testing.T, l *diana.Limiter, rule string, actor ...string) string {
	t.Helper()
	explained, verdicts, err := l.PeekActor(t.Context(), rule, actor...)
	var b strings.Builder
	for i, v := range verdicts {
		e := explained[i]
		fmt.Fprintf(&b, "%s %v %d/%d", e.Key, v.Allowed, v.Remaining, v.Rule.Limit.N)
		if e.Excepted {
			b.WriteString(" excepted")
		}
		if e.By != (diana.Explanation{}).By {
			fmt.Fprintf(&b, " by %v", e.By)
		}
		b.WriteString("\n")
	}
	if err != nil {
		fmt.Fprintf(&b, "%v\n", err)
	}
	return b.String()
}

const peekRules = `
identity: {account: [header:X-Account, cookie:u]}
limits:
- {url: /account, rules: [{name: account, actor: account, unit: day, rpu: 3, algo: W, align: first, except: [root], overrides: {eve: {rpu: 9}, bob: {exempt: true, until: 2030-01-01T00:00:00Z}}}]}
- {url: /both, rules: [{name: both, actor: [account, ip], unit: day, rpu: 3, algo: TB, overrides: {198.51.100.0/24: {rpu: 7}}}]}
- {url: /all, rules: [{name: all, unit: day, rpu: 3, algo: SL}]}
- {url: /slots, rules: [{name: slots, actor: ip, algo: C, rpu: 3}]}
`

// PeekActor says what is left for an actor under each of its keys, and changes nothing.
func TestPeekActor(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	l := clocked(t, peekRules, &now)
	request := func(path, account, ip string) diana.Request {
		return diana.Request{Path: path, Actors: map[string]string{"header:X-Account": account, "ip": ip}}
	}
	for _, path := range []string{"/account", "/both", "/all", "/slots"} {
		for range 2 {
			d, err := l.Take(t.Context(), request(path, "ann", "192.0.2.1"))
			if err != nil || !d.Allowed {
				t.Fatalf("%s: %v, %v", path, d.Allowed, err)
			}
			defer d.Done() // until then it holds a slot
		}
	}
	for _, row := range []struct{ rule, actor, want string }{
		{"account", "ann", "account=3:ann; true 3/3\nheader:X-Account=3:ann; true 1/3\ncookie:u=3:ann; true 3/3\n"},
		{"account", "header:X-Account=3:ann;", "header:X-Account=3:ann; true 1/3\n"},
		{"account", "header:X-Account=eve", "header:X-Account=3:eve; true 9/9 by eve\n"},
		{"account", "header:X-Account=3:eve;", "header:X-Account=3:eve; true 9/9 by eve\n"},
		{"account", "header:X-Account=root", "header:X-Account=4:root; true -1/3 excepted by root\n"},
		{"account", "header:X-Account=bob", "header:X-Account=3:bob; true -1/3 excepted by bob\n"},
		{"both", "header:X-Account=ann ip=192.0.2.1", "header:X-Account=3:ann;ip=192.0.2.1; true 1/3\n"},
		{"both", "header:X-Account=ann ip=198.51.100.7", "header:X-Account=3:ann;ip=198.51.100.7; true 7/7 by 198.51.100.0/24\n"},
		{"all", "all", " true 1/3\n"},
		{"slots", "192.0.2.1", "ip=192.0.2.1; true 1/3\n"},
		{"slots", "ann", "actor \"ann\": expected an IP address\n"},
		{"none", "ann", "no rule has the name \"none\""},
	} {
		for range 2 { // it changes nothing
			got := peeked(t, l, row.rule, strings.Fields(row.actor)...)
			if got = strings.ReplaceAll(got, fmt.Sprint(limit.Unknown)+"/", "-1/"); got != row.want && (row.rule != "none" || !strings.HasPrefix(got, row.want)) {
				t.Errorf("%s of %s:\n%s, want\n%s", row.actor, row.rule, got, row.want)
			}
		}
	}
	count(t, l, 1, request("/account", "ann", "192.0.2.1"))
	if got, want := peeked(t, l, "account", "header:X-Account=3:ann;"), "header:X-Account=3:ann; false 0/3\n"; got != want {
		t.Errorf("after the last: %s, want %s", got, want)
	}
}

// Redis answers for a global rule. While it is unavailable, what is left is unknown, and PeekActor says why.
func TestPeekActorInRedis(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	l := gateways(t, 1, s.URL(), "1s", "- {url: /, rules: [{name: g, actor: device, unit: day, rpu: 5, algo: W, align: first, scope: global}]}")[0]
	count(t, l, 2, device("/", "ann"))
	if got, want := peeked(t, l, "g", "device=3:ann;"), "device=3:ann; true 3/5\n"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	s.Kill()
	_, verdicts, err := l.PeekActor(t.Context(), "g", "ann")
	if err == nil || len(verdicts) == 0 || verdicts[0].Remaining != limit.Unknown || !verdicts[0].Allowed {
		t.Errorf("without Redis: %+v, %v", verdicts, err)
	}
}

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
