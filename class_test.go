// SPDX-License-Identifier: MIT

package diana_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/diana-limiter/diana"
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
