// SPDX-License-Identifier: MIT

package diana_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/diana-limiter/diana"
)

// TestCost consumes what a request costs, under each algorithm.
func TestCost(t *testing.T) {
	t.Parallel()
	for _, algo := range []string{"TB", "W", "SW", "SL"} {
		l := limiter(t, "{url: /, rules: [{algo: "+algo+", unit: day, rpu: 10, cost: 3}]}")
		if n := count(t, l, 10, diana.Request{}); n != 3 {
			t.Errorf("%s: %d of cost 3 pass, want 3", algo, n)
		}
	}
	l := limiter(t, "{url: /, rules: [{algo: C, rpu: 10, cost: 3}]}")
	var inside []diana.Decision
	for range 3 {
		d, err := l.Take(t.Context(), diana.Request{})
		if err != nil || !d.Allowed {
			t.Fatal(d.Allowed, err)
		}
		inside = append(inside, d)
	}
	if ask(t, l, diana.Request{}).Allowed {
		t.Error("a fourth request of cost 3 holds 3 of 10 slots")
	}
	inside[1].Done()
	if !ask(t, l, diana.Request{}).Allowed {
		t.Error("no 3 slots are free after one request has ended")
	}
}

// TestWithCost believes the cost that a filter in front sets, and not the client's.
func TestWithCost(t *testing.T) {
	t.Parallel()
	l := limiter(t, "{url: /, rules: [{unit: day, rpu: 100, cost: 'header:X-Cost'}]}")
	left := func(h http.Handler) string {
		r := httptest.NewRequest("GET", "/", nil)
		r.Header.Set("X-Cost", "0")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Header().Get("RateLimit")
	}
	var seen string
	h := l.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { seen = r.Header.Get("X-Cost") }))
	filter := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.ServeHTTP(w, diana.WithCost(diana.WithCost(r, "X-Other", 9), "x-cost", 40))
	})
	for i, row := range []struct {
		h    http.Handler
		want string
		seen string
	}{
		{h, `"/ all TB 100/day";r=99;t=86400`, "0"},
		{filter, `"/ all TB 100/day";r=59;t=85536`, "40"},
		{filter, `"/ all TB 100/day";r=19;t=50976`, "40"},
	} {
		if got := left(row.h); got != row.want || seen != row.seen {
			t.Errorf("request %d: %s and the header is %q, want %s and %q", i, got, seen, row.want, row.seen)
		}
	}
	if d := ask(t, l, diana.Request{Costs: map[string]int64{"X-Cost": 20}}); d.Allowed {
		t.Error("20 pass where 19 are left")
	}
	if d := ask(t, l, diana.Request{Costs: map[string]int64{"X-Cost": 19}}); !d.Allowed {
		t.Error("19 do not pass where 19 are left")
	}
	r := diana.WithCost(httptest.NewRequest("GET", "/", nil), "X-Cost", 5)
	if e, err := l.Explain(diana.Request{Method: "GET", Path: "/", HTTP: r}); err != nil || e[0].Cost != 5 {
		t.Errorf("explained as a cost of %d, want 5", e[0].Cost)
	}
}

// TestWithActor has filters establish who makes a request, against what its header fields say.
func TestWithActor(t *testing.T) {
	t.Parallel()
	l := limiter(t, `
identity: {account: [header:X-Account], device: [header:X-Device-Id]}
limits:
- {url: /account, rules: [{actor: account, unit: day, rpu: 1}]}
- {url: /header, rules: [{actor: 'header:X-Tenant', unit: day, rpu: 1}]}
- {url: /ip, rules: [{actor: ip, unit: day, rpu: 1}]}
`)
	request := func(path string, actors ...string) *http.Request {
		r := httptest.NewRequest("GET", path, nil)
		r.Header.Set("X-Account", "forged")
		r.Header.Set("X-Tenant", "forged")
		for i := 0; i < len(actors); i += 2 {
			r = diana.WithActor(r, actors[i], actors[i+1])
		}
		return r
	}
	for _, tc := range []struct {
		r    *http.Request
		path string
		want string
	}{
		{request("/"), "/account", "header:X-Account=6:forged;"},
		{request("/", "account", "ann"), "/account", "account=3:ann;"},
		{request("/", "account", "ann", "device", "d", "account", "bob"), "/account", "account=3:bob;"},
		{request("/", "header:x-account", "ann"), "/account", "header:X-Account=3:ann;"},
		{request("/", "account", ""), "/account", "ip=192.0.2.1;"}, // known to be none: the field is not believed
		{request("/", "account", "ann", "account", ""), "/account", "ip=192.0.2.1;"},
		{request("/", "account", "", "header:X-Account", "ann"), "/account", "ip=192.0.2.1;"},
		{request("/"), "/header", "header:X-Tenant=6:forged;"},
		{request("/", "header:x-tenant", "t"), "/header", "header:X-Tenant=1:t;"},
		{request("/", "header:X-Tenant", ""), "/header", "ip=192.0.2.1;"},
		{request("/", "ip", "192.0.2.7"), "/ip", "ip=192.0.2.7;"},
		{request("/", "ip", ""), "/ip", "ip=none;"},
		{request("/", "moon", "x"), "/account", "header:X-Account=6:forged;"},
		{diana.WithCost(request("/", "account", "ann"), "X-Cost", 3), "/account", "account=3:ann;"},
		{diana.WithActor(diana.WithCost(request("/"), "X-Cost", 3), "account", "ann"), "/account", "account=3:ann;"},
	} {
		e, err := l.Explain(diana.Request{Path: tc.path, HTTP: tc.r})
		if err != nil || len(e) != 1 || e[0].Key != tc.want {
			t.Errorf("%s: %+v, %v, want %s", tc.path, e, err, tc.want)
		}
	}
	for i, tc := range []struct {
		r      *http.Request
		actors map[string]string
		want   bool
	}{
		{request("/account", "account", "ann"), nil, true},
		{request("/account", "account", "ann"), nil, false},
		{request("/account", "account", "ann"), map[string]string{"account": "bob"}, true}, // the caller wins
		{request("/account", "account", "bob"), map[string]string{"device": "d"}, false},   // the filter is believed beside it
		{request("/account", "account", "bob"), map[string]string{"account": ""}, false},
		{request("/account", "account", "cid"), nil, true},
	} {
		d, err := l.Take(t.Context(), diana.Request{Method: "GET", Path: "/account", HTTP: tc.r, Actors: tc.actors})
		if err != nil || d.Allowed != tc.want {
			t.Errorf("request %d: %v, %v, want %v", i, d.Allowed, err, tc.want)
		}
		d.Done()
	}
	if w := serve(l, request("/account", "account", "cid")); w.Code != http.StatusServiceUnavailable {
		t.Errorf("Handler: %d, want 503", w.Code)
	}
	if account, _, _ := l.Identify(diana.Request{HTTP: request("/", "account", "ann")}); account != "ann" {
		t.Errorf("identified as %q, want ann", account)
	}
}

// TestWithActorCopies changes no request that another filter has.
func TestWithActorCopies(t *testing.T) {
	t.Parallel()
	l := limiter(t, "{url: /, rules: [{actor: account, rpu: 10, unit: day, cost: 'header:X-Cost'}]}")
	key := func(r *http.Request) string {
		e, err := l.Explain(diana.Request{Path: "/", HTTP: r})
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(e[0].Key, " ", e[0].Cost)
	}
	plain := httptest.NewRequest("GET", "/", nil)
	ann := diana.WithActor(plain, "account", "ann")
	dear := diana.WithCost(ann, "X-Cost", 3)
	bob := diana.WithActor(dear, "account", "bob")
	cheap := diana.WithCost(bob, "X-Cost", 2)
	for i, row := range []struct {
		r    *http.Request
		want string
	}{
		{plain, "ip=192.0.2.1; 1"}, {ann, "account=3:ann; 1"}, {dear, "account=3:ann; 3"}, {bob, "account=3:bob; 3"}, {cheap, "account=3:bob; 2"},
	} {
		if got := key(row.r); got != row.want {
			t.Errorf("request %d: %s, want %s", i, got, row.want)
		}
	}
}
