// SPDX-License-Identifier: MIT

package diana_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/config"
	"github.com/diana-limiter/diana/internal/apikeys"
	"github.com/diana-limiter/diana/internal/race"
	"github.com/diana-limiter/diana/internal/redistest"
	"github.com/diana-limiter/diana/internal/testproc"
	"github.com/diana-limiter/diana/limit"
	"github.com/diana-limiter/diana/rule"
)

// classes has a rule with classes, whose header is believed from 192.0.2.1, and one that believes anyone.
const classes = `
identity: {trusted_proxies: [192.0.2.1]}
limits:
- url: /
  rules:
  - name: plan
    actor: account
    unit: day
    algo: W
    rpu: 5
    class: header:X-Plan
    classes: {free: {rpu: 3}, pro: {rpu: 100}, none: {rpu: 0}}
    except: [root]
    overrides: {ann: {rpu: 7}}
- url: /open
  rules: [{name: open, actor: account, unit: day, rpu: 5, class: client:X-Plan, classes: {pro: {rpu: 10, burst: 50}}}]
`

// limitOf returns the limit that counts for a request, -1 if the rule skips it.
func limitOf(t *testing.T, l *diana.Limiter, q diana.Request) int64 {
	t.Helper()
	d, err := l.Peek(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	if len(d.Verdicts) == 0 {
		return -1
	}
	return d.Verdicts[len(d.Verdicts)-1].Rule.Limit.N
}

// The class of a client picks the limit of a rule.
func TestClass(t *testing.T) {
	t.Parallel()
	l := limiter(t, classes)
	for _, tc := range []struct {
		name, peer, account string
		header              []string
		given               string // by a filter; "-": it has found none
		want                int64
	}{
		{"none", "192.0.2.1", "bob", nil, "", 5},
		{"believed", "192.0.2.1", "bob", []string{"pro"}, "", 100},
		{"spaces", "192.0.2.1", "bob", []string{" pro\t"}, "", 100},
		{"another", "192.0.2.1", "bob", []string{"free"}, "", 3},
		{"refused", "192.0.2.1", "bob", []string{"none"}, "", 0},
		{"unknown", "192.0.2.1", "bob", []string{"gold"}, "", 5},
		{"letter case", "192.0.2.1", "bob", []string{"Pro"}, "", 5},
		{"empty", "192.0.2.1", "bob", []string{""}, "", 5},
		{"twice", "192.0.2.1", "bob", []string{"pro", "pro"}, "", 100},
		{"differing", "192.0.2.1", "bob", []string{"pro", "free"}, "", 5},
		{"list", "192.0.2.1", "bob", []string{"pro, pro"}, "", 5},
		{"many", "192.0.2.1", "bob", strings.Split(strings.Repeat("pro,", 32)+"pro", ","), "", 5},
		{"not believed", "192.0.2.2", "bob", []string{"pro"}, "", 5},
		{"by a filter", "192.0.2.2", "bob", []string{"free"}, "pro", 100},
		{"a filter has found none", "192.0.2.1", "bob", []string{"pro"}, "-", 5},
		{"unknown to a filter", "192.0.2.1", "bob", []string{"pro"}, "gold", 5},
		{"override", "192.0.2.1", "ann", []string{"pro"}, "", 7},
		{"exception", "192.0.2.1", "root", []string{"pro"}, "", -1},
	} {
		r := httptest.NewRequest("GET", "/", nil)
		r.RemoteAddr = tc.peer + ":1"
		r.Header["X-Plan"] = tc.header
		if tc.header == nil {
			delete(r.Header, "X-Plan")
		}
		r.Header.Set("X-Account-Id", tc.account)
		switch tc.given {
		case "":
		case "-":
			r = diana.WithActor(r, "class", "")
		default:
			r = diana.WithActor(r, "class", tc.given)
		}
		if got := limitOf(t, l, diana.Request{Method: "GET", Path: "/", HTTP: r}); got != tc.want {
			t.Errorf("%s: the limit is %d, want %d", tc.name, got, tc.want)
		}
		if tc.want > 5 && tc.name != "override" {
			explained, err := l.Explain(diana.Request{Path: "/", HTTP: r})
			if err != nil || explained[0].Class != "pro" || explained[0].Rule.Limit.N != 100 {
				t.Errorf("%s: %+v, %v", tc.name, explained, err)
			}
		}
	}
	given := diana.Request{Path: "/", Actors: map[string]string{"account": "eve", "class": "free"}}
	if got := limitOf(t, l, given); got != 3 {
		t.Errorf("without HTTP: the limit is %d, want 3", got)
	}
	r := httptest.NewRequest("GET", "/open", nil)
	r.Header.Set("X-Plan", "pro")
	if got := limitOf(t, l, diana.Request{Path: "/open", HTTP: r}); got != 10 {
		t.Errorf("client: the limit is %d, want 10", got)
	}
}

// A change of plan keeps what was used. The fields and the status show the limit.
func TestClassChange(t *testing.T) {
	t.Parallel()
	l := limiter(t, classes)
	send := func(class string) (int, http.Header) {
		r := httptest.NewRequest("GET", "/", nil)
		r.RemoteAddr = "192.0.2.1:1"
		r.Header.Set("X-Account-Id", "bob")
		r.Header.Set("X-Plan", class)
		w := serve(l, r)
		return w.Code, w.Header()
	}
	for i, tc := range []struct {
		class       string
		status      int
		limit, left int
	}{{"free", 200, 3, 2}, {"free", 200, 3, 1}, {"pro", 200, 100, 97}, {"free", 503, 3, 0}, {"", 200, 5, 1}, {"pro", 200, 100, 95}, {"", 503, 5, 0}} {
		status, h := send(tc.class)
		policy, rest := fmt.Sprintf("q=%d;", tc.limit), fmt.Sprintf("r=%d;", tc.left)
		if status != tc.status || !strings.Contains(h.Get("RateLimit-Policy"), policy) || !strings.Contains(h.Get("RateLimit"), rest) {
			t.Errorf("%d: %d %s %s, want %d %s %s", i, status, h["Ratelimit-Policy"], h["Ratelimit"], tc.status, policy, rest)
		}
	}
	s := l.Status().Rules[0]
	if want := map[string]int64{"free": 3, "pro": 100, "none": 0}; !reflect.DeepEqual(s.Classes, want) || s.Overrides != 1 {
		t.Errorf("%+v", s)
	}
	if text, err := json.Marshal(s); err != nil || !strings.Contains(string(text), `"classes":{"free":3,"none":0,"pro":100}`) {
		t.Errorf("%s, %v", text, err)
	}
}

// The limits of classes are exact for 64 clients at once.
func TestClassExact(t *testing.T) {
	t.Parallel()
	for _, algo := range []string{"TB", "W", "SW", "SL"} {
		l := limiter(t, "{url: /, rules: [{actor: account, unit: 31h, algo: "+algo+", rpu: 7, class: client:X-Plan, classes: {free: {rpu: 20}, pro: {rpu: 50}}}]}")
		want := map[string]int64{"": 7, "free": 20, "pro": 50}
		var allowed [3]atomic.Int64
		var clients sync.WaitGroup
		for i := range 64 {
			clients.Go(func() {
				for k := range 6 {
					which := (i + k) % 3
					class := [3]string{"", "free", "pro"}[which]
					d, err := l.Take(t.Context(), diana.Request{Path: "/", Actors: map[string]string{"account": "of " + class, "class": class}})
					if err != nil {
						t.Error(err)
					}
					if d.Allowed {
						allowed[which].Add(1)
					}
					d.Done()
				}
			})
		}
		clients.Wait()
		for i, class := range [3]string{"", "free", "pro"} {
			if n := allowed[i].Load(); n != want[class] {
				t.Errorf("%s: class %q: %d allowed, want %d", algo, class, n, want[class])
			}
		}
	}
}

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
	if race.Enabled {
		t.Skip("it has one goroutine, and runs without the race detector")
	}
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
	if race.Enabled {
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

// The fields of an answer say the length and the end of the present window. A total has neither, and a
// refusal by it no Retry-After.
func TestFieldsOfCalendars(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 28, 23, 0, 0, 0, time.UTC) // midnight in Berlin, before a day of 23 hours
	l := clocked(t, `
- url: /
  rules:
    - {name: day, algo: W, rpu: 5, unit: day, zone: Europe/Berlin}
    - {name: month, algo: W, rpu: 999999999999999, unit: month}
    - {name: all, algo: W, rpu: 2, unit: total}
`, &now)
	for _, want := range []struct {
		at                       string
		status                   int
		policy, limit, retryHint string
	}{
		{"2026-03-28T23:00:00Z", 200, `"day";q=5;w=82800, "month";q=999999999999999;w=2678400, "all";q=2`,
			`"day";r=4;t=82800, "month";r=999999999999998;t=262800, "all";r=1`, ""},
		{"2026-04-01T00:00:00Z", 200, `"day";q=5;w=86400, "month";q=999999999999999;w=2592000, "all";q=2`,
			`"day";r=4;t=79200, "month";r=999999999999998;t=2592000, "all";r=0`, ""},
		{"2026-04-01T00:00:00Z", 503, `"day";q=5;w=86400, "month";q=999999999999999;w=2592000, "all";q=2`,
			`"day";r=4;t=79200, "month";r=999999999999998;t=2592000, "all";r=0`, ""},
	} {
		var err error
		if now, err = time.Parse(time.RFC3339, want.at); err != nil {
			t.Fatal(err)
		}
		w := serve(l, httptest.NewRequest("GET", "/", nil))
		h := w.Header()
		if w.Code != want.status || h.Get("RateLimit-Policy") != want.policy || h.Get("RateLimit") != want.limit || h.Get("Retry-After") != want.retryHint {
			t.Errorf("%s: %d, policy %s, limit %s, retry after %q,\nwant %d, policy %s, limit %s", want.at,
				w.Code, h.Get("RateLimit-Policy"), h.Get("RateLimit"), h.Get("Retry-After"), want.status, want.policy, want.limit)
		}
		if want.status == 503 && !strings.Contains(w.Body.String(), "no wait") && !strings.Contains(w.Body.String(), "never") {
			t.Errorf("the refusal does not say that no wait helps: %s", w.Body)
		}
	}
	var units []float64
	for _, r := range l.Status().Rules {
		units = append(units, r.UnitSeconds)
	}
	if len(units) != 3 || units[0] != 86400 || units[1] != 30*86400 || units[2] != 0 {
		t.Errorf("the units are %v seconds, want those of the present windows", units)
	}
}

// A total never ends, and a reload of the same rule keeps what it has counted. Another zone or unit
// is another counter.
func TestReloadKeepsCalendars(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	const total, month = "{name: total, algo: W, rpu: 3, unit: total}", "{name: month, algo: W, rpu: 3, unit: month}"
	text := func(rules string) string { return "{url: /, rules: [" + rules + "]}" }
	l := clocked(t, text(total), &now)
	if n := count(t, l, 5, diana.Request{}); n != 3 {
		t.Errorf("%d allowed, want 3", n)
	}
	now = now.AddDate(30, 0, 0)
	if d := ask(t, l, diana.Request{}); d.Allowed || d.RetryAfter != 0 {
		t.Errorf("after 30 years: %+v", d)
	}
	update(t, l, text(strings.Replace(total, "rpu: 3", "rpu: 5", 1)))
	if n := count(t, l, 5, diana.Request{}); n != 2 {
		t.Errorf("%d allowed by a larger total, want 2 more", n)
	}
	reset(t, l, "total", "all")
	if n := count(t, l, 9, diana.Request{}); n != 5 {
		t.Errorf("%d allowed after a reset, want 5", n)
	}
	update(t, l, text(month))
	if n := count(t, l, 5, diana.Request{}); n != 3 {
		t.Errorf("%d allowed by a month, want 3", n)
	}
	update(t, l, text(strings.Replace(month, "month}", "month, zone: UTC}", 1)))
	if n := count(t, l, 5, diana.Request{}); n != 0 {
		t.Errorf("%d allowed by a month in UTC, which is no other, want none", n)
	}
	update(t, l, text(strings.Replace(month, "month}", "month, zone: Asia/Tokyo}", 1)))
	if n := count(t, l, 5, diana.Request{}); n != 3 {
		t.Errorf("%d allowed by a month in Tokyo, want 3", n)
	}
}

// Gateways share a total, and each enforces its share of it while Redis is down.
func TestTotalWithoutRedis(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t)
	all := gateways(t, 2, r.URL(), "1s", `
- url: /
  rules: [{name: total, algo: W, rpu: 100, unit: total, scope: global}, {name: year, algo: W, rpu: 1000, unit: year, zone: Asia/Tokyo, scope: global}]
`)
	if got := crowd(t, all, 4, 5, diana.Request{}); sum(got) != 40 {
		t.Fatalf("%v allowed, want 40", got)
	}
	r.Kill()
	if n := count(t, all[0], 60, diana.Request{}); n != 30 {
		t.Errorf("%d allowed without Redis, want what the gateway has not yet used of its 50", n)
	}
	if d := ask(t, all[0], diana.Request{}); d.Allowed || d.RetryAfter != time.Second {
		t.Errorf("without Redis: %+v, want a refusal for a second, because Redis may be back soon", d)
	}
}

// A program can build a configuration itself. Its zero values are the defaults of a file.
func TestHandBuiltConfiguration(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := &config.Config{Limits: []rule.Entry{{
			URL:   rule.Pattern{Path: "/"},
			Rules: []rule.Rule{{Actor: []rule.Actor{{Kind: "account"}}, Limit: limit.Limit{N: 1, Unit: time.Hour}}},
		}}}
		l, err := diana.Options{}.New(c)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		h := l.Handler(http.NotFoundHandler())
		ask := func(account string) *httptest.ResponseRecorder {
			w, r := httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil)
			r.Header.Set("X-Account-Id", account)
			h.ServeHTTP(w, r)
			return w
		}
		if w := ask("ann"); w.Code != http.StatusNotFound || w.Header().Get("RateLimit") == "" {
			t.Errorf("the first request: %d, %v", w.Code, w.Header())
		}
		if w := ask("ann"); w.Code != http.StatusServiceUnavailable {
			t.Errorf("over the limit: %d", w.Code)
		}
		if w := ask("bob"); w.Code != http.StatusNotFound {
			t.Errorf("another account: %d", w.Code)
		}
		if got := l.Config(); got.MaxKeys != 1_000_000 || got.Limits[0].Rules[0].Algorithm.Name() != "TB" {
			t.Errorf("%+v", got)
		}
		if c.MaxKeys != 0 || c.Limits[0].Rules[0].Algorithm.New != nil {
			t.Errorf("New changed the program's configuration: %+v", c)
		}
	})
}

// A configuration that cannot be compiled is an error that names the rule.
func TestHandBuiltMistakes(t *testing.T) {
	t.Parallel()
	for want, r := range map[string]rule.Rule{
		`rule "no unit": limit: unit is 0s`:      {Name: "no unit", Limit: limit.Limit{N: 1}},
		`rule "/ all W 1/0s": limit: unit is 0s`: {Algorithm: limit.FixedWindow(), Limit: limit.Limit{N: 1}},
		`rule "x": unknown actor "ghost"`:        {Name: "x", Limit: limit.Limit{N: 1, Unit: time.Second}, Actor: []rule.Actor{{Kind: "ghost"}}},
	} {
		c := &config.Config{Limits: []rule.Entry{{URL: rule.Pattern{Path: "/"}, Rules: []rule.Rule{r}}}}
		if _, err := (diana.Options{}).New(c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// An empty configuration limits nothing.
func TestHandBuiltEmptyLimitsNothing(t *testing.T) {
	t.Parallel()
	l, err := diana.Options{}.New(&config.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if d, err := l.Take(context.Background(), diana.Request{Path: "/"}); err != nil || !d.Allowed {
		t.Errorf("%+v, %v", d, err)
	}
}

// keyed is a Limiter with API keys, and a handler behind it that notes what arrives.
type keyed struct {
	*diana.Limiter
	keys    map[string]string // by account
	arrived http.Header
	handler http.Handler
}

// withKeys returns a Limiter whose file has a key of ann, a pro, one of bob, and one of eve that has ended.
// identity is text in the mapping of that name.
func withKeys(t *testing.T, identity, limits string) *keyed {
	t.Helper()
	k := &keyed{keys: map[string]string{}}
	var lines []string
	for _, of := range [][3]string{{"ann", "pro", ""}, {"bob", "", ""}, {"eve", "", "2020-01-01"}} {
		key, line, err := apikeys.New(of[0], of[1], of[2])
		if err != nil {
			t.Fatal(err)
		}
		k.keys[of[0]], lines = key, append(lines, line)
	}
	file := filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(file, []byte(strings.Join(lines, "\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := config.Parse("limits.yaml", []byte(fmt.Sprintf("identity: {keys: {file: %q}, account: [key:account], %s}\nlimits:\n- url: /\n  rules: %s\n", file, identity, limits)))
	if err != nil {
		t.Fatal(err)
	}
	if k.Limiter, err = (diana.Options{}).New(c); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = k.Close() })
	k.handler = k.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { k.arrived = r.Header.Clone() }))
	return k
}

// do sends a request from an address with these lines of its header, and returns the response.
func (k *keyed) do(address string, lines ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.RemoteAddr = address + ":1"
	for _, line := range lines {
		name, value, _ := strings.Cut(line, ": ")
		r.Header.Add(name, value)
	}
	k.arrived = nil
	w := httptest.NewRecorder()
	k.handler.ServeHTTP(w, r)
	return w
}

// A key counts for its account whatever field has it, and does not reach the next handler.
func TestKeyAccount(t *testing.T) {
	t.Parallel()
	k := withKeys(t, "upstream_headers: {Authorization: Bearer of-provider}", "[{actor: account, unit: hour, rpu: 4, algo: W}]")
	ann := k.keys["ann"]
	for i, field := range []string{"Authorization: Bearer " + ann, "X-Api-Key: " + ann, "Api-Key: " + ann, "X-Goog-Api-Key: " + ann, "Authorization: bearer  " + ann} {
		want := http.StatusOK
		if i == 4 {
			want = http.StatusServiceUnavailable
		}
		if got := k.do(fmt.Sprintf("192.0.2.%d", i), field); got.Code != want {
			t.Errorf("%d: %d, want %d", i, got.Code, want)
		}
		name, _, _ := strings.Cut(field, ":")
		if want == http.StatusOK && (k.arrived.Get("Authorization") != "Bearer of-provider" || name != "Authorization" && k.arrived[name] != nil) {
			t.Errorf("%s: the next handler got %v", field, k.arrived)
		}
	}
	if got := k.do("192.0.2.1", "X-Api-Key: "+k.keys["bob"]); got.Code != http.StatusOK {
		t.Errorf("bob: %d", got.Code)
	}
}

// The class of a key picks its limit.
func TestKeyClass(t *testing.T) {
	t.Parallel()
	k := withKeys(t, "required: any", "[{actor: account, unit: hour, rpu: 1, algo: W, class: 'key:class', classes: {pro: {rpu: 3}}}]")
	for name, want := range map[string]int{"ann": 3, "bob": 1} {
		n := 0
		for range 5 {
			if k.do("192.0.2.1", "X-Api-Key: "+k.keys[name]).Code == http.StatusOK {
				n++
			}
		}
		if n != want {
			t.Errorf("%s: %d requests, want %d", name, n, want)
		}
	}
}

// A credential that is there and not valid is 401, whatever else the request has.
func TestBadCredentials(t *testing.T) {
	t.Parallel()
	k := withKeys(t, "", "[{actor: account, unit: hour, rpu: 100, algo: W}]")
	ann, bob := k.keys["ann"], k.keys["bob"]
	for i, fields := range [][]string{
		{"X-Api-Key: guessed"},
		{"X-Api-Key: " + k.keys["eve"]},
		{"X-Api-Key: " + ann + "x"},
		{"Authorization: Bearer"},
		{"Authorization: " + ann + " " + bob},
		{"Authorization: Bearer a.b.c"},
		{"Authorization: Bearer " + ann + ", Bearer " + bob},
		{"Authorization: Bearer " + ann, "Authorization: Bearer " + bob},
		{"Authorization: Bearer " + ann, "X-Api-Key: " + bob},
		{"Authorization: Bearer " + ann, "X-Api-Key: guessed"},
		{"X-Api-Key: " + ann, "X-Api-Key: " + bob},
		{"X-Api-Key: " + strings.Repeat("a", 8<<10+1)},
		{"X-Api-Key: \xff"},
	} {
		got := k.do(fmt.Sprintf("192.0.2.%d", i), fields...)
		want := http.StatusUnauthorized
		if i == 4 { // of another scheme, which is not ours
			want = http.StatusOK
		}
		if got.Code != want || want == 401 && (got.Header().Get("WWW-Authenticate") == "" || k.arrived != nil) {
			t.Errorf("%.60q: %d %v", fields, got.Code, got.Header())
		}
	}
	if n := k.Rejected()["token"]; n != 12 {
		t.Errorf("%d rejected, want 12", n)
	}
}

// Without required: any a request without a credential counts by its address, and never gets the upstream's fields.
// A dropped credential gives no fresh allowance where one is required.
func TestDroppedCredential(t *testing.T) {
	t.Parallel()
	k := withKeys(t, "upstream_headers: {X-Provider: secret}", "[{actor: account, unit: hour, rpu: 1, algo: W}]")
	if got := k.do("192.0.2.1", "X-Provider: mine", "Authorization: Basic YTpi"); got.Code != http.StatusOK ||
		k.arrived.Get("X-Provider") != "" || k.arrived.Get("Authorization") != "Basic YTpi" {
		t.Errorf("%d %v", got.Code, k.arrived)
	}
	if got := k.do("192.0.2.1", "X-Api-Key: "); got.Code != http.StatusServiceUnavailable {
		t.Errorf("an empty key: %d", got.Code)
	}
	k = withKeys(t, "required: any", "[{actor: account, unit: hour, rpu: 1, algo: W}]")
	for _, fields := range [][]string{nil, {"X-Api-Key: "}, {"Authorization: Basic YTpi"}} {
		if got := k.do("192.0.2.1", fields...); got.Code != http.StatusUnauthorized {
			t.Errorf("%q: %d", fields, got.Code)
		}
	}
	if k.do("192.0.2.1", "X-Api-Key: "+k.keys["ann"]).Code != 200 || k.do("192.0.2.2", "X-Api-Key: "+k.keys["ann"]).Code != 503 {
		t.Error("the key counts by its account alone")
	}
}

// After 20 failures of an address its credentials are not verified for the rest of the minute. Others are.
func TestGuessedKeys(t *testing.T) {
	t.Parallel()
	k := withKeys(t, "", "[{actor: account, unit: hour, rpu: 100, algo: W}]")
	var statuses []int
	for i := range 22 {
		statuses = append(statuses, k.do("192.0.2.1", fmt.Sprintf("X-Api-Key: guess-%d", i)).Code)
	}
	if want := append(slices.Repeat([]int{401}, 20), 429, 429); !slices.Equal(statuses, want) {
		t.Errorf("%v, want %v", statuses, want)
	}
	right := "X-Api-Key: " + k.keys["ann"]
	if got := k.do("192.0.2.1", right); got.Code != http.StatusTooManyRequests || got.Header().Get("Retry-After") == "" {
		t.Errorf("the right key after the guesses: %d %v", got.Code, got.Header())
	}
	if got := k.do("192.0.2.2", right); got.Code != http.StatusOK {
		t.Errorf("from another address: %d", got.Code)
	}
	if got := k.do("192.0.2.1"); got.Code != http.StatusOK {
		t.Errorf("without a credential: %d", got.Code)
	}
}

// Local rules that need no identity come first: what they refuse is not verified.
func TestRulesBeforeCredentials(t *testing.T) {
	t.Parallel()
	k := withKeys(t, "required: any", "[{actor: ip, unit: hour, rpu: 0, algo: W}, {actor: account, unit: hour, rpu: 100, algo: W}]")
	for range 30 {
		if got := k.do("192.0.2.1", "X-Api-Key: guessed"); got.Code != http.StatusServiceUnavailable {
			t.Fatalf("%d", got.Code)
		}
	}
	if n := k.Rejected()["token"]; n != 0 {
		t.Errorf("%d rejected", n)
	}
}

// A program brings its own kind of credentials, or says what it has verified itself.
func TestProgramsProofs(t *testing.T) {
	t.Parallel()
	k := withKeys(t, "required: any", "[{actor: account, unit: hour, rpu: 1, algo: W}]")
	q := diana.Request{Path: "/", HTTP: httptest.NewRequest(http.MethodGet, "/", nil), Proofs: map[string]rule.Proof{
		"key": func(name string) string { return map[string]string{"account": "zoe"}[name] },
	}}
	for i, want := range []bool{true, false} {
		d, err := k.Take(t.Context(), q)
		if err != nil || d.Allowed != want {
			t.Errorf("%d: %v %v", i, d.Allowed, err)
		}
		d.Done()
	}
	q.Proofs = nil
	if _, err := k.Take(t.Context(), q); err == nil || !strings.Contains(err.Error(), "lacks") {
		t.Error(err)
	}
}

// adaptive returns a Limiter with these rules of one entry.
func adaptive(t *testing.T, o diana.Options, rules ...string) *diana.Limiter {
	t.Helper()
	l, err := o.New(adaptiveConfig(t, rules...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func adaptiveConfig(t *testing.T, rules ...string) *config.Config {
	t.Helper()
	text := "- url: /\n  rules:\n"
	for _, r := range rules {
		text += "    - " + r + "\n"
	}
	c, err := config.Parse("test.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// held returns how many slots the rule ac has in use: its limit less what remains.
func held(t *testing.T, l *diana.Limiter) int64 {
	t.Helper()
	_, verdicts, err := l.PeekActor(t.Context(), "ac", "all")
	if err != nil || len(verdicts) != 1 {
		t.Fatal(verdicts, err)
	}
	s, _ := l.RuleStatus("ac")
	return s.Limit - verdicts[0].Remaining
}

func takes(t *testing.T, l *diana.Limiter, r diana.Request) diana.Decision {
	t.Helper()
	d, err := l.Take(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// It is asked last, and its refusal charges no other rule. Every slot comes back.
func TestAdaptiveIsAskedLast(t *testing.T) {
	t.Parallel()
	l := adaptive(t, diana.Options{}, "{name: ac, algo: AC, rpu: 3}", "{name: w, algo: W, unit: hour, rpu: 100}", "{name: c, algo: C, rpu: 50}")
	var all []diana.Decision
	for range 3 {
		all = append(all, takes(t, l, diana.Request{Path: "/"}))
	}
	refused := takes(t, l, diana.Request{Path: "/"})
	if refused.Allowed || refused.RetryAfter < time.Second || refused.RetryAfter > 3*time.Second {
		t.Errorf("%+v, expected a refusal and 1 to 3 s", refused)
	}
	refused.Done()
	for i := range all {
		all[i].Done()
		all[i].Done()
	}
	_, verdicts, err := l.PeekActor(t.Context(), "w", "all")
	if err != nil || verdicts[0].Remaining != 97 {
		t.Errorf("%v, %v, expected three requests to count", verdicts, err)
	}
	if n := held(t, l); n != 0 {
		t.Errorf("%d slots are held after all requests", n)
	}
	s, _ := l.RuleStatus("ac")
	if s.Shed[""] != 1 || s.Refused != 1 || s.Ceiling != 3 {
		t.Errorf("%+v, expected one refusal", s)
	}
}

// In shadow mode every request proceeds, and counts by its priority if it would have been refused.
func TestAdaptiveInShadow(t *testing.T) {
	t.Parallel()
	l := adaptive(t, diana.Options{}, "{name: ac, algo: AC, rpu: 3, mode: shadow, priority: 'client:X', priorities: [high, low]}")
	for range 5 {
		if d := takes(t, l, diana.Request{Path: "/", Actors: map[string]string{"priority": "low"}}); !d.Allowed {
			t.Errorf("%+v, expected no refusal", d)
		} else {
			defer d.Done()
		}
	}
	s, _ := l.RuleStatus("ac")
	if s.Refused != 0 || s.ShadowRefused == 0 || s.Shed["low"] != s.ShadowRefused || s.Shed["high"] != 0 {
		t.Errorf("%+v, expected each shadow refusal among those of its priority", s)
	}
}

// The lower limit counts.
func TestAdaptiveWithConcurrency(t *testing.T) {
	t.Parallel()
	l := adaptive(t, diana.Options{}, "{algo: AC, rpu: 100}", "{algo: C, rpu: 2}")
	first, second, third := takes(t, l, diana.Request{Path: "/"}), takes(t, l, diana.Request{Path: "/"}), takes(t, l, diana.Request{Path: "/"})
	if !first.Allowed || !second.Allowed || third.Allowed {
		t.Error("expected two slots")
	}
	first.Done()
	second.Done()
	third.Done()
}

func TestAdaptiveRefusal(t *testing.T) {
	t.Parallel()
	c := adaptiveConfig(t, "{algo: AC, rpu: 1, priority: 'client:X-Priority', priorities: [high, low]}")
	c.Response.Status = http.StatusTooManyRequests
	l, err := diana.Options{}.New(c)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	d := takes(t, l, diana.Request{Path: "/"})
	defer d.Done()
	seen := map[int]bool{}
	for i := range 60 {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set("X-Account-Id", strconv.Itoa(i))
		r.Header.Set("X-Priority", "high")
		w := httptest.NewRecorder()
		l.Handler(http.NotFoundHandler()).ServeHTTP(w, r)
		after, err := strconv.Atoi(w.Header().Get("Retry-After"))
		if w.Code != http.StatusServiceUnavailable || err != nil || after < 1 || after > 3 {
			t.Fatalf("%d, Retry-After %q, expected 503 and 1 to 3", w.Code, w.Header().Get("Retry-After"))
		}
		seen[after] = true
	}
	if len(seen) != 3 {
		t.Errorf("Retry-After is one of %v, expected 1, 2 and 3", seen)
	}
	if s := l.Status().Rules[0]; s.Shed["high"] != 60 || s.Shed["low"] != 0 {
		t.Errorf("%v, expected 60 refusals of the priority high", s.Shed)
	}
}

// An entry whose refusals have the form of an API answers an overload as that API does.
func TestAdaptiveForms(t *testing.T) {
	t.Parallel()
	for form, want := range map[string]struct {
		status int
		text   string
	}{
		"":          {503, "temporary-reduced-capacity"},
		"openai":    {503, `"type":"server_error"`},
		"anthropic": {529, `"type":"overloaded_error"`},
		"gemini":    {503, `"status":"UNAVAILABLE"`},
	} {
		c := adaptiveConfig(t, "{algo: AC, rpu: 1}")
		c.Limits[0].Refusal = form
		l, err := diana.Options{}.New(c)
		if err != nil {
			t.Fatal(err)
		}
		d := takes(t, l, diana.Request{Path: "/"})
		w := httptest.NewRecorder()
		l.Handler(http.NotFoundHandler()).ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/", nil))
		if w.Code != want.status || !strings.Contains(w.Body.String(), want.text) {
			t.Errorf("%s: %d %s, expected %d with %s", form, w.Code, w.Body, want.status, want.text)
		}
		d.Done()
		_ = l.Close()
	}
}

// Under overload the limit falls to what the upstream can do, whatever part of the response is measured. No slot
// leaks: of clients that leave, of handlers that panic, and across changes of the rule.
func TestAdaptiveHandler(t *testing.T) {
	t.Parallel()
	for _, measure := range []string{"begin", "byte", "end"} {
		synctest.Test(t, func(t *testing.T) {
			rule := "{name: ac, algo: AC, rpu: %d, measure: " + measure + "}"
			l := adaptive(t, diana.Options{}, fmt.Sprintf(rule, 500))
			worker := make(chan struct{}, 1)
			h := l.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/panics" {
					panic(http.ErrAbortHandler)
				}
				worker <- struct{}{}
				time.Sleep(20 * time.Millisecond)
				<-worker
				w.WriteHeader(http.StatusOK)
				_, _ = w.Write([]byte("x"))
			}))
			var all sync.WaitGroup
			for i := range 8000 {
				all.Go(func() {
					defer func() { _ = recover() }()
					path := "/"
					if i%50 == 0 {
						path = "/panics"
					}
					ctx, cancel := context.WithCancel(t.Context())
					if i%7 == 0 {
						time.AfterFunc(5*time.Millisecond, cancel)
					}
					defer cancel()
					h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, http.MethodPost, path, strings.NewReader("body")))
				})
				time.Sleep(5 * time.Millisecond)
				if i == 500 {
					if err := l.Update(adaptiveConfig(t, "{name: other, rpu: 1000000}")); err != nil {
						t.Error(err)
					}
				}
				if i == 510 {
					if err := l.Update(adaptiveConfig(t, fmt.Sprintf(rule, 100))); err != nil {
						t.Error(err)
					}
				}
			}
			s, _ := l.RuleStatus("ac")
			if s.Limit > 12 || s.Baseline < 0.015 || s.Baseline > 0.25 {
				t.Errorf("measured to the %s: a limit of %d and a baseline of %v s, expected few and 20 ms", measure, s.Limit, s.Baseline)
			}
			all.Wait()
			if n := held(t, l); n != 0 {
				t.Errorf("%d slots are held after all requests", n)
			}
		})
	}
}

// With wait, the last to arrive is the first of its priority, and no lower priority enters before a higher one.
func TestAdaptiveWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := adaptive(t, diana.Options{}, "{name: ac, algo: AC, rpu: 1, wait: 1s, priority: 'client:X', priorities: [high, low]}")
		request := func(priority string) diana.Request {
			return diana.Request{Path: "/", Actors: map[string]string{"priority": priority}}
		}
		first := takes(t, l, request("high"))
		order := make(chan string, 10)
		var all sync.WaitGroup
		for _, who := range []string{"low 1", "high 1", "low 2", "high 2"} {
			all.Go(func() {
				priority, _, _ := strings.Cut(who, " ")
				d, err := l.Take(t.Context(), request(priority))
				if err != nil || !d.Allowed {
					order <- "refused " + who
				} else {
					order <- who
					time.Sleep(10 * time.Millisecond)
				}
				d.Done()
			})
			time.Sleep(time.Millisecond)
		}
		first.Done()
		all.Wait()
		close(order)
		var got []string
		for who := range order {
			got = append(got, who)
		}
		if fmt.Sprint(got) != "[high 2 high 1 low 2 low 1]" {
			t.Errorf("%v, expected the last of the highest priority first", got)
		}
		blocked := takes(t, l, request("low"))
		late := takes(t, l, request("low"))
		if late.Allowed || late.RetryAfter < time.Second {
			t.Errorf("%+v, expected a refusal after a second", late)
		}
		late.Done()
		blocked.Done()
		if n := held(t, l); n != 0 || l.Waiting() != 0 {
			t.Errorf("%d slots are held, %d wait", n, l.Waiting())
		}
	})
}

// A handler that streams reports its latency when it begins, and keeps its slot to the end, or gives it up.
func TestAdaptiveHold(t *testing.T) {
	t.Parallel()
	for _, hold := range []string{"begin", "end"} {
		l := adaptive(t, diana.Options{MeasureBegin: true}, "{name: ac, algo: AC, rpu: 10, hold: "+hold+"}")
		want := map[string]int64{"begin": 0, "end": 1}[hold]
		h := l.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if n := held(t, l); n != 1 {
				t.Errorf("%d slots are held before the response", n)
			}
			w.WriteHeader(http.StatusOK)
			if n := held(t, l); n != want {
				t.Errorf("hold: %s: %d slots are held during the response, expected %d", hold, n, want)
			}
		}))
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil))
		if n := held(t, l); n != 0 {
			t.Errorf("%d slots are held after the response", n)
		}
	}
}

// No other scope learns from the requests of one process.
func TestAdaptiveScope(t *testing.T) {
	t.Parallel()
	c := adaptiveConfig(t, "{name: ac, rpu: 3}")
	c.Limits[0].Rules[0].Algorithm = limit.AdaptiveConcurrency()
	c.Limits[0].Rules[0].Limit.Unit = 0
	c.Limits[0].Rules[0].Scope = "global"
	if l, err := (diana.Options{}).New(c); err == nil {
		_ = l.Close()
		t.Error("a global rule of adaptive concurrency is accepted")
	}
}

// The upstream has a limit of its own for each client. One that exceeds it does not shrink the limit of all.
func TestAdaptiveRejectedClient(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := adaptive(t, diana.Options{}, "{name: ac, algo: AC, rpu: 100}")
		h := l.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(20 * time.Millisecond)
			if r.Header.Get("X-Account-Id") == "greedy" {
				w.WriteHeader(http.StatusTooManyRequests)
			}
		}))
		var all sync.WaitGroup
		for i := range 10_000 {
			r := httptest.NewRequest(http.MethodGet, "/", nil)
			r.Header.Set("X-Account-Id", strconv.Itoa(i))
			if i%4 == 0 {
				r.Header.Set("X-Account-Id", "greedy")
			}
			all.Go(func() { h.ServeHTTP(httptest.NewRecorder(), r) })
			time.Sleep(2 * time.Millisecond)
		}
		if s, _ := l.RuleStatus("ac"); s.Limit < 15 || s.Refused > 0 {
			t.Errorf("a limit of %d and %d refusals, expected none", s.Limit, s.Refused)
		}
		all.Wait()
	})
}
