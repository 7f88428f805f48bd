// SPDX-License-Identifier: MIT

package diana_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/internal/redistest"
	"github.com/diana-limiter/diana/internal/testproc"
	"github.com/diana-limiter/diana/limit"
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
