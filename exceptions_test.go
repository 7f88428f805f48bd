// SPDX-License-Identifier: MIT

package diana_test

import (
	"context"
	"fmt"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/internal/redistest"
	"github.com/diana-limiter/diana/internal/testproc"
)

func account(id string) diana.Request {
	return diana.Request{Path: "/", Actors: map[string]string{"account": id}}
}

// from is a request of an account from an address.
func from(id, ip string) diana.Request {
	return diana.Request{Path: "/", Actors: map[string]string{"account": id, "ip": ip}}
}

func TestExceptionsDecide(t *testing.T) {
	t.Parallel()
	l := limiter(t, `
url: /
rules:
  - {name: each, actor: account, unit: day, rpu: 2, algo: SL, except: [eve, 10.0.0.0/8], overrides: {ann: {rpu: 5}, bob: {rpu: 0}, 192.0.2.0/24: {rpu: 3}}}
  - {name: all, unit: day, rpu: 1000, algo: SL, except: [10.1.0.0/16]}
`)
	passed := 0
	for _, row := range []struct {
		request diana.Request
		want    int // of 10
		limit   int64
	}{
		{account("ann"), 5, 5},
		{account("bob"), 0, 0},
		{account("joe"), 2, 2},
		{from("sue", "192.0.2.9"), 3, 3},
		{from("ann", "192.0.2.9"), 0, 5}, // has used 5, whatever it comes from
		{from("sue", "198.51.100.1"), 0, 2},
		{from("", "192.0.2.9"), 3, 3},
		{account("eve"), 10, -1},
		{from("bob", "10.0.0.1"), 10, -1},
	} {
		if got := count(t, l, 10, row.request); got != row.want {
			t.Errorf("%v: %d passed, want %d", row.request.Actors, got, row.want)
		}
		passed += row.want
		d, err := l.Take(context.Background(), row.request)
		if err != nil {
			t.Fatal(err)
		}
		evaluating := int64(-1)
		for _, v := range d.Verdicts {
			switch v.Rule.Name {
			case "each":
				evaluating = v.Rule.Limit.N
			case "all":
				if v.Rule.Limit.N != 1000 || d.Allowed && v.Remaining != int64(1000-passed-1) {
					t.Errorf("%v: %d are left of %d for all, want %d", row.request.Actors, v.Remaining, v.Rule.Limit.N, 1000-passed-1)
				}
			default:
				t.Errorf("a verdict of %q", v.Rule.Name)
			}
		}
		if d.Allowed {
			passed++
		}
		if evaluating != row.limit {
			t.Errorf("%v: evaluated by a limit of %d, want %d", row.request.Actors, evaluating, row.limit)
		}
		d.Done()
	}
	if d := ask(t, l, from("bob", "10.1.0.1")); !d.Allowed {
		t.Error("a request that no rule evaluates is refused")
	}
	s := l.Status().Rules
	if got := fmt.Sprint(s[0].Except, s[0].Overrides, s[0].Allowed, s[0].Refused, s[1].Allowed, len(s)); got != fmt.Sprint(2, 3, 13, 7*10+7-13, passed, 2) {
		t.Errorf("status: %s", got)
	}
}

// The fields have the limit of the actor, and nothing of rules that skip it.
func TestExceptionsInFields(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var overrides strings.Builder
		for i := range 5000 { // more than max_keys
			fmt.Fprintf(&overrides, "v%d: {rpu: %d}, ", i, 100+i)
		}
		l := limiter(t, `
- url: /
  rules: [{name: each, actor: account, rpu: 10, except: [eve], overrides: {`+overrides.String()+`bob: {rpu: 0}}}]
- url: /x
  rules: [{name: x, rpu: 1000000}]
`)
		get := func(path, id string) *httptest.ResponseRecorder {
			r := httptest.NewRequest("GET", path, nil)
			r.Header.Set("X-Account-Id", id)
			return serve(l, r)
		}
		for range 2 {
			for i := range 5000 {
				if got, want := get("/", fmt.Sprint("v", i)).Header().Get("RateLimit-Policy"), fmt.Sprintf(`"each";q=%d;w=1`, 100+i); got != want {
					t.Fatalf("v%d: %s, want %s", i, got, want)
				}
			}
		}
		for _, row := range []struct {
			path, id      string
			code          int
			policy, limit string
		}{
			{"/", "joe", 200, `"each";q=10;w=1`, `"each";r=9;t=1`},
			{"/", "v7", 200, `"each";q=107;w=1`, `"each";r=104;t=1`},
			{"/", "bob", 503, `"each";q=0;w=1`, `"each";r=0`},
			{"/", "eve", 200, "", ""},
			{"/x", "eve", 200, `"x";q=1000000;w=1`, `"x";r=999999;t=1`},
			{"/x", "v7", 200, `"each";q=107;w=1, "x";q=1000000;w=1`, `"each";r=103;t=1, "x";r=999998;t=1`},
		} {
			w := get(row.path, row.id)
			if h := w.Header(); w.Code != row.code || h.Get("RateLimit-Policy") != row.policy || h.Get("RateLimit") != row.limit {
				t.Errorf("%s by %s: %d %q %q", row.path, row.id, w.Code, h.Get("RateLimit-Policy"), h.Get("RateLimit"))
			}
		}
		if w := get("/", "bob"); !strings.Contains(w.Body.String(), `"violated-policies":["each"]`) {
			t.Errorf("%s", w.Body)
		}
	})
}

// Each actor has exactly its own limit among many others, also if its state has another layout than the
// rule's.
func TestExceptionsUnderConcurrency(t *testing.T) {
	t.Parallel()
	for _, algo := range []string{"TB", "W", "SW", "SL"} {
		for _, more := range []int{700, 1031, 70_000} {
			l := limiter(t, fmt.Sprintf("{url: /, rules: [{actor: account, unit: 700h, rpu: 300, algo: %s, overrides: {ann: {rpu: %d}, bob: {rpu: 700}, joe: {rpu: 0}}, except: [eve]}]}", algo, more))
			want := map[string]int{"ann": min(more, 1600), "bob": 700, "joe": 0, "eve": 1600, "sue": 300}
			got := map[string]int{}
			var mu sync.Mutex
			var wg sync.WaitGroup
			for id := range want {
				wg.Go(func() {
					n := sum(crowd(t, []*diana.Limiter{l}, 16, 100, account(id)))
					mu.Lock()
					got[id] = n
					mu.Unlock()
				})
			}
			wg.Wait()
			if fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("%s, %d: %v, want %v", algo, more, got, want)
			}
		}
	}
}

// An override changes what an actor may use, and not what it has used.
func TestExceptionsChange(t *testing.T) {
	t.Parallel()
	for _, algo := range []string{"W", "SW", "SL"} {
		f := newFolder(t)
		text := func(rpu int, exceptions string) string {
			return fmt.Sprintf("{url: /, rules: [{name: x, actor: account, unit: 700h, rpu: %d, algo: %s%s}]}", rpu, algo, exceptions)
		}
		l := open(t, quiet, f.write("diana.yaml", text(10, "")))
		for _, row := range []struct {
			rpu        int
			exceptions string
			ann, bob   int // of 4
		}{
			{10, "", 4, 4},
			{10, ", overrides: {ann: {rpu: 6}}", 2, 4},                // 6 and 8 are used
			{10, ", overrides: {ann: {rpu: 7}, bob: {rpu: 0}}", 1, 0}, // 7
			{0, ", overrides: {ann: {rpu: 9}, 0.0.0.0/0: {rpu: 5}}", 2, 0},
			{10, ", except: [ann]", 4, 2},               // 9 and 10
			{20, ", overrides: {bob: {rpu: 11}}", 4, 1}, // 13 and 11
			{14, "", 1, 3},
		} {
			f.write("diana.yaml", text(row.rpu, row.exceptions))
			if err := l.Reload(); err != nil {
				t.Fatal(err)
			}
			if ann, bob := count(t, l, 4, account("ann")), count(t, l, 4, account("bob")); ann != row.ann || bob != row.bob {
				t.Errorf("%s, rpu %d%s: %d and %d passed, want %d and %d", algo, row.rpu, row.exceptions, ann, bob, row.ann, row.bob)
			}
		}
		if s := l.Status().Rules[0]; s.Allowed != 4+4+2+4+1+2+2+4+1+1+3 {
			t.Errorf("%s: %d were counted", algo, s.Allowed)
		}
	}
}

// Exceptions and overrides also hold for rules that wait, hold slots, are in shadow mode, or have no
// Redis.
func TestExceptionsOfOtherKinds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, "{url: /, rules: [{actor: account, rpu: 0, algo: LB, queue: 1, overrides: {ann: {rpu: 2}, bob: {rpu: 1, queue: 0}}}]}")
		for i, want := range []time.Duration{0, time.Second / 2} {
			if d := ask(t, l, account("ann")); !d.Allowed || d.Delayed != want {
				t.Errorf("request %d: %v after %v, want it after %v", i, d.Allowed, d.Delayed, want)
			}
		}
		if a, b := count(t, l, 2, account("bob")), count(t, l, 2, account("joe")); a != 1 || b != 0 {
			t.Errorf("%d and %d passed, want 1 that need not wait, and none", a, b)
		}

		l = limiter(t, "{url: /, rules: [{actor: account, rpu: 1, algo: C, overrides: {ann: {rpu: 3}}, except: [eve]}]}")
		for range 2 {
			for id, places := range map[string]int{"ann": 3, "bob": 1, "eve": 5} {
				var inside []diana.Decision
				for i := range 5 {
					d, err := l.Take(context.Background(), account(id))
					if err != nil || d.Allowed != (i < places) {
						t.Errorf("%s: place %d: %v %v", id, i, d.Allowed, err)
					}
					inside = append(inside, d)
				}
				for i := range inside {
					inside[i].Done()
				}
			}
		}

		l = limiter(t, "{url: /, rules: [{actor: account, unit: day, rpu: 1, mode: shadow, overrides: {ann: {rpu: 3}}, except: [eve]}]}")
		for _, id := range []string{"ann", "bob", "eve"} {
			if n := count(t, l, 5, account(id)); n != 5 {
				t.Errorf("%s: a shadow let %d of 5 pass", id, n)
			}
		}
		if s := l.Status().Rules[0]; s.Allowed != 4 || s.ShadowRefused != 6 {
			t.Errorf("%+v", countsOf(s))
		}

		for onError, want := range map[string][3]int{"share": {3, 1, 5}, "local": {3, 1, 5}, "open": {5, 5, 5}, "closed": {0, 0, 5}} {
			l = limiter(t, fmt.Sprintf("{url: /, rules: [{actor: account, unit: day, rpu: 1, scope: global, on_error: %s, overrides: {ann: {rpu: 3}}, except: [eve]}]}", onError))
			for i, id := range []string{"ann", "bob", "eve"} {
				if n := count(t, l, 5, account(id)); n != want[i] {
					t.Errorf("%s by %s: %d passed without Redis, want %d", onError, id, n, want[i])
				}
			}
			if a, b := ask(t, l, account("ann")), ask(t, l, account("eve")); !a.Degraded || b.Degraded {
				t.Errorf("degraded: %v and %v, want true for the actor that is evaluated", a.Degraded, b.Degraded)
			}
		}
	})
}

func TestExceptionsInRedis(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t)
	all := gateways(t, 2, r.URL(), "10s", `
- url: /
  rules:
    - {actor: account, unit: 700h, rpu: 100, algo: SL, scope: global, except: [eve], overrides: {ann: {rpu: 400}, bob: {rpu: 0}, 192.0.2.0/24: {rpu: 250}}}
`)
	got := map[string]int{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for name, requests := range map[string][]diana.Request{
		"ann": {account("ann")}, "bob": {account("bob")}, "eve": {account("eve")}, "joe": {account("joe")},
		"sue": {from("sue", "192.0.2.1"), from("sue", "198.51.100.1")}, // one counter, and two limits
	} {
		for _, request := range requests {
			wg.Go(func() {
				n := sum(crowd(t, all, 16, 20, request))
				mu.Lock()
				got[name] += n
				mu.Unlock()
			})
		}
	}
	wg.Wait()
	if want := (map[string]int{"ann": 400, "bob": 0, "eve": 640, "joe": 100, "sue": 250}); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("two gateways let %v pass, want %v", got, want)
	}

	// Without Redis each gateway allows the rest of its share of each limit.
	r.Kill()
	for _, l := range all {
		ask(t, l, account("nobody"))
		testproc.Eventually(t, func() bool { return l.Status().Degraded })
	}
	for id, share := range map[string]int{"ned": 50, "bob": 0} {
		for i, n := range crowd(t, all, 8, 30, account(id)) {
			if n != share {
				t.Errorf("gateway %d let %d of %s pass without Redis, want %d", i, n, id, share)
			}
		}
	}
	for i, n := range crowd(t, all, 8, 30, from("tom", "192.0.2.1")) {
		if n != 125 {
			t.Errorf("gateway %d let %d pass without Redis from a network, want 125", i, n)
		}
	}
	for i, n := range crowd(t, all, 8, 30, account("eve")) {
		if n != 240 {
			t.Errorf("gateway %d let %d pass without Redis that are exempt, want 240", i, n)
		}
	}
}

func TestExceptionsDoNotAllocate(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	var overrides strings.Builder
	for i := range 10_000 {
		fmt.Fprintf(&overrides, "v%d: {rpu: %d}, ", i, 1_000_000+i)
	}
	l := limiter(t, "{url: /, rules: [{actor: account, rpu: 1000000, except: [eve, 10.0.0.0/8], overrides: {"+overrides.String()+"}}, {rpu: 1000000, except: [10.0.0.0/8]}]}")
	for _, r := range []diana.Request{account("v77"), account("joe"), account("eve"), from("joe", "10.0.0.1")} {
		ask(t, l, r)
		if got := testing.AllocsPerRun(100, func() { ask(t, l, r) }); got != 0 {
			t.Errorf("%v: %v allocations", r.Actors, got)
		}
	}
}

// An override and an exemption end at their moment, by the limiter's clock and without a new configuration.
// Then the rule counts by its own limit, and knows what was counted before.
func TestOverridesEndByThemselves(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		end := time.Now().Add(time.Minute)
		l := limiter(t, fmt.Sprintf(`
url: /
rules: [{name: each, actor: account, unit: day, rpu: 2, algo: W, overrides: {ann: {rpu: 5, until: %[1]s}, eve: {exempt: true, until: %[1]s}, 10.0.0.0/8: {exempt: true}}}]
`, end.UTC().Format(time.RFC3339)))
		explained := func(r diana.Request, want string) {
			t.Helper()
			x, err := l.Explain(r)
			if err != nil {
				t.Fatal(err)
			}
			if got := fmt.Sprint(x[0].Excepted, " ", x[0].Rule.Limit.N, " ", x[0].Until.Equal(end), " ", l.Status().Rules[0].Ended); got != want {
				t.Errorf("%v: explained %s, want %s", r.Actors, got, want)
			}
		}
		time.Sleep(time.Until(end) - time.Nanosecond)
		explained(account("ann"), "false 5 true 0")
		explained(account("eve"), "true 2 true 0")
		if ann, eve := count(t, l, 4, account("ann")), count(t, l, 20, account("eve")); ann != 4 || eve != 20 {
			t.Errorf("before the end %d and %d are allowed, want 4 and 20", ann, eve)
		}
		time.Sleep(time.Nanosecond)
		explained(account("ann"), "false 2 false 2")
		explained(account("eve"), "false 2 false 2")
		if ann, eve := count(t, l, 4, account("ann")), count(t, l, 20, account("eve")); ann != 0 || eve != 2 {
			t.Errorf("after the end %d and %d are allowed, want 0 and 2", ann, eve)
		}
		if n := count(t, l, 10, from("joe", "10.0.0.1")); n != 10 {
			t.Errorf("an exemption without an end allows %d of 10", n)
		}
	})
}
